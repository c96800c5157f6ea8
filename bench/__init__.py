"""Benchmarks of `make bench`: each row of the quality targets, measured against a baseline in the same run."""
