"""Placeholder."""


def plain(markdown: str) -> str:
    return markdown
