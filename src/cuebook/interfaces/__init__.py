"""Ports of the engine: protocols for stores, models and embedders, and their frozen records. No code."""
