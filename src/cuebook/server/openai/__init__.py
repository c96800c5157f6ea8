"""Serve OpenAI-compatible routes: chat completions, Responses, conversations."""
