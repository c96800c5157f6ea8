"""The synchronous (blocking) public API. `scripts/blocking.py` generates its methods from the asynchronous ones."""
