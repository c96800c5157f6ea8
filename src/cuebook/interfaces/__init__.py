"""Ports of the engine: Protocols of models, upstreams, embedders and sinks, and the structs of the store. No code."""
