"""Cuebook: the prompt book of an agent. It holds every line, cue and change, so the show goes on."""
