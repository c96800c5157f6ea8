"""Views of conversations for people: list, search, branches, live view."""
