"""Background jobs: what is due is found in stored state, and done until nothing is left."""
