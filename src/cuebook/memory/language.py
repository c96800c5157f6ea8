"""Whether a text is written in a language somebody knows: by its script, and by the little words of four languages."""

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from cuebook.memory.words import little_words

#: Characters of a text that are looked at.
LOOKED_AT: Final = 2_000
#: The share of its letters that may stand in another script: names and quotations do.
FOREIGN: Final = 0.3
#: Languages of the Latin script that are told apart; one of none of them passes as any.
_LATIN: Final = ("en", "de", "fr", "es")
_LETTER: Final = re.compile(r"[^\W\d_]")
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")


def speaks(languages: Collection[str], text: str) -> bool:
    """Tell whether a text can be given to who knows these languages (ISO 639-1; none = all of them).

    Code, numbers and names are every language's. A Latin text is another's where it holds two little words of that
    language or more, and more of them than of each known one.
    """
    if not languages:
        return True
    beginning = text[:LOOKED_AT]
    letters = _LETTER.findall(beginning)
    if not letters:
        return True
    latin = sum(letter.isascii() or _is_latin(letter) for letter in letters)
    if latin < (1 - FOREIGN) * len(letters):
        return False
    words = [word.casefold() for word in _WORD.findall(_plain(beginning))]
    counts = {language: sum(word in little_words(language) for word in words) for language in _LATIN}
    known = max((counts[language] for language in _LATIN if language in languages), default=0)
    other = max((counts[language] for language in _LATIN if language not in languages), default=0)
    return other < 2 or other <= known


def _plain(text: str) -> str:
    """Give a text without diacritics, as the lists of little words are written."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text.replace("\u2019", "'"))
    return "".join(character for character in apart if not unicodedata.combining(character))


@lru_cache(maxsize=4096)
def _is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(("LATIN", "FULLWIDTH LATIN"))
