"""What the model is told: names, parameters, rendering, inheritance, differences, merges, digests. Pure."""
