"""What `make bench` measures: each row of the performance table against something raw, in the same run."""
