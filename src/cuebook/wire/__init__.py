"""Formats of providers: chat completions, Responses, Anthropic messages, and their streams. Pure."""
