"""The synchronous (blocking) public API. `scripts/blocking.py` generates its methods from the asynchronous ones."""

from cuebook.app.blocking.book import BlockingCuebook

__all__ = ["BlockingCuebook"]
