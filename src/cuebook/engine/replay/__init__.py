"""Recorded turns decided again: what-if replay, impact of prompts, use of memories."""
