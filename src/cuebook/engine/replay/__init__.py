"""Replay recorded turns: what-if replay, prompt impact, use of memories."""
