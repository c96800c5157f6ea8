"""Adapters for models, embedders and upstream servers, and the system clock and ids."""
