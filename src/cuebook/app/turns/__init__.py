"""Turns: what each prompt held and why, replay, feedback."""
