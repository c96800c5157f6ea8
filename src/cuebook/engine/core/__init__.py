"""Shared parts of the engine: services and settings, queues, drafts, time zones."""
