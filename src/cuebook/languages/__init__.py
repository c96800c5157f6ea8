"""Word lists of languages as data, and the one detector that says which language a text is written in."""

from cuebook.languages.detector import UNDETERMINED, detect, reads
from cuebook.languages.lists import CODES, Language, language, words_of

__all__ = ["CODES", "UNDETERMINED", "Language", "detect", "language", "reads", "words_of"]
