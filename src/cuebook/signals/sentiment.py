"""The methods that read how a message sounds, by their names. Method `llm` is none of these: `signals/judged`."""

from collections.abc import Iterable
from typing import Any, Final

from cuebook.records.tracking import METHODS
from cuebook.signals.lexicon import Lexicon

#: What stands in for a method that has not answered yet.
FALLBACK: Final = Lexicon.name


def analyzers_of() -> dict[str, Any]:
    """Give the methods a book has of its own. Nothing is loaded until one of them reads."""
    return {each.name: each for each in (Lexicon(),)}


def methods_of(analyzers: Iterable[str]) -> tuple[str, ...]:
    """Name the methods a persona may ask for: A's, and those a book has beside them."""
    return tuple(dict.fromkeys((*METHODS, *analyzers)))
