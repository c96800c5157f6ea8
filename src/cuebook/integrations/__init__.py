"""Adapters for agent frameworks, over the public API. Each needs its framework, which Cuebook does not install."""
