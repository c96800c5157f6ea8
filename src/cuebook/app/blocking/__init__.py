"""The same book without `await`: `scripts/blocking.py` makes its parts from the asynchronous ones."""

from cuebook.app.blocking.book import BlockingCuebook

__all__ = ["BlockingCuebook"]
