"""Conversations as people read them: lists, search, the live view."""
