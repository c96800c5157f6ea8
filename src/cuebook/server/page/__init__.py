"""Render the inspector: the HTML pages that show a project. A few small scripts update them; there is no build step."""
