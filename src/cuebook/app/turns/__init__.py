"""Turns: the contents of each prompt and their reasons, replay, what-if, feedback."""
