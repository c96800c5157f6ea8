"""The public API without `await`. `scripts/blocking.py` generates its methods from the asynchronous ones."""

from cuebook.app.blocking.book import BlockingCuebook

__all__ = ["BlockingCuebook"]
