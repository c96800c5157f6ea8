"""The synchronous (blocking) public API. `scripts/blocking.py` generates its methods from the asynchronous ones."""

from cuebook.app.blocking.cuebook import BlockingCuebook

__all__ = ["BlockingCuebook"]
