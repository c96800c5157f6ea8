"""The same book without `await`: each part of the public API as thin methods that wait for it."""

from cuebook.app.blocking.book import BlockingCuebook

__all__ = ["BlockingCuebook"]
