"""Anthropic-compatible routes: messages."""
