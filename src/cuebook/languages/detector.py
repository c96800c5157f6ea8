"""Detect the language of a text: the package's only language detector.

The script decides first, then the words: the common words of English against those of eighteen other languages in the
Latin script. Short texts work: "werkt niet" has two words, both Dutch.
"""

import re
import tomllib
import unicodedata
from collections.abc import Collection
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from cuebook.languages.lists import language

#: The code of an undetermined language (ISO 639-2).
UNDETERMINED: Final = "und"
#: Characters of a text that are examined.
LOOKED_AT: Final = 2_000
#: The share of letters that may be in another script, as in names and quotations.
FOREIGN: Final = 0.3
#: Number of unknown words from which a text is in another language.
UNKNOWN_WORDS: Final = 4

_LETTER: Final = re.compile(r"[^\W\d_]")
_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
#: Text without a language: code, paths and quotations.
_QUOTED: Final = re.compile(
    r"`[^`\n]*`|\b\w+\(|\w*_\w+|\w+[./=]\w[\w./=-]*|(?<!\w)(?:'[^'\n]{1,80}'|\"[^\"\n]{1,80}\"|\u201c[^\u201d\n]{1,80}\u201d)(?!\w)"
)
_KANA: Final = re.compile(r"[\u3040-\u30ff]")
_HAN: Final = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
#: Endings of English words that are rare in other languages.
_ENDING: Final = re.compile(r"...(?:ing|ly|ness|ght|ould|less|able)\Z")
#: Accented letters that English also has, in names and loanwords; any other one indicates another language.
_BORROWED: Final = frozenset("éèêëçñüöïáíóâôÉ")


def detect(text: str) -> str:
    """Return the ISO 639-1 code of a text's language, "und" if unknown, "" for code, numbers and names."""
    return _detect(text[:LOOKED_AT])


def reads(languages: Collection[str], text: str) -> bool:
    """Return whether a text is in one of these languages; none means any. Code and numbers fit every language."""
    return not languages or detect(text) in {"", *languages}


@lru_cache(maxsize=1 << 12)
def _detect(text: str) -> str:
    letters = _LETTER.findall(text)
    if not letters:
        return ""
    if not text.isascii():
        if _KANA.search(text):
            return "ja"
        if len(_HAN.findall(text)) * 2 > len(_WORD.findall(text)):
            return "zh"
        latin = sum(letter.isascii() or _is_latin(letter) for letter in letters)
        if latin < (1 - FOREIGN) * len(letters):
            return UNDETERMINED
    results = _WORD.findall(_QUOTED.sub(" ", text)) or _WORD.findall(text)
    return _by_words([word.replace("\u2019", "'").lower() for word in results if word.isascii() or _is_latin(word[0])])


def _by_words(words: list[str]) -> str:
    everyday = _everyday()
    points = {"en": 0.0}
    marked = 0.0
    for word in words:
        plain, strange = _unmarked(word)
        marked += strange
        codes = everyday.get(plain, ())
        if "en" not in codes and _ENDING.search(plain):
            points["en"] += 0.5
        for code in codes:
            points[code] = points.get(code, 0.0) + (1 if len(plain) > 1 or code == "en" else 0.5)
    best = max(points, key=lambda code: points[code])  # a tie goes to English
    if best != "en" or marked > points["en"]:
        return best if best != "en" else UNDETERMINED
    return "en" if points["en"] else UNDETERMINED if len(words) >= UNKNOWN_WORDS else ""


@lru_cache(maxsize=1 << 13)
def _unmarked(word: str) -> tuple[str, float]:
    """Return a word without diacritics, and the weight of those as evidence against English."""
    if word.isascii():
        return word, 0.0
    plain = unicodedata.normalize("NFKD", word.replace("ı", "i").replace("ł", "l").replace("ß", "ss"))
    plain = "".join(each for each in plain if not unicodedata.combining(each))
    strange = any(not each.isascii() and each not in _BORROWED for each in unicodedata.normalize("NFC", word))
    return plain.replace("æ", "ae").replace("ø", "o").replace("œ", "oe"), 1.0 if strange else 0.0


@cache
def _everyday() -> dict[str, tuple[str, ...]]:
    """Return the languages of each common word."""
    lists = tomllib.loads(files(__package__).joinpath("everyday.toml").read_text("utf-8"))
    results: dict[str, tuple[str, ...]] = {}
    for code, words in lists.items():
        function = language(code).function
        for word in {*words.split(), *(_unmarked(each)[0] for each in function)}:
            results[word] = (*results.get(word, ()), code)
    return results


@lru_cache(maxsize=4096)
def _is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(("LATIN", "FULLWIDTH LATIN"))
