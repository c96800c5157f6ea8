"""Render the inspector: HTML pages of a project, live, with a few small scripts and no build step."""
