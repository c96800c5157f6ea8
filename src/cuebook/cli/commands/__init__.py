"""The commands of `cuebook`, one module each."""
