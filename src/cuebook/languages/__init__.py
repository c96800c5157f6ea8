"""Word lists of languages, English patterns, and the language detector."""

from cuebook.languages.detector import UNDETERMINED, detect, reads
from cuebook.languages.lists import (
    CODES,
    Language,
    english,
    english_lines,
    english_pattern,
    english_words,
    language,
    words_of,
)

__all__ = [
    "CODES",
    "UNDETERMINED",
    "Language",
    "detect",
    "english",
    "english_lines",
    "english_pattern",
    "english_words",
    "language",
    "reads",
    "words_of",
]
