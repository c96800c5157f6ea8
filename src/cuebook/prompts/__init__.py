"""Prompt management: names, parameters, rendering, inheritance, diffs, merges, digests. Pure functions."""
