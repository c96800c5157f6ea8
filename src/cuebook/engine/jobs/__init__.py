"""Background jobs: find due work in stored state and run it until nothing is left."""
