"""Serve Anthropic-compatible routes: messages."""
