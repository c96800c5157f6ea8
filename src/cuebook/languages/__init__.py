"""Word lists of languages, and the language detector."""

from cuebook.languages.detector import UNDETERMINED, detect, reads
from cuebook.languages.lists import CODES, Language, language, words_of

__all__ = ["CODES", "UNDETERMINED", "Language", "detect", "language", "reads", "words_of"]
