"""A command starts a quarter sooner where its modules are not searched for garbage: what they make is there to stay."""

import gc

gc.disable()


def done() -> None:
    """Collect garbage again, from here on."""
    gc.enable()


def keep() -> None:
    """Leave out of every later search what is there now."""
    gc.freeze()
