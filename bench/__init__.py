"""Benchmarks of `make bench`: each row of the quality targets, compared with a baseline of the same run."""
