"""Load the word lists of languages, one TOML file each, and match texts against them.

A list names what its words indicate (`health`, `rule`, `date`, `question` …). For languages without a file only
numbers, names and numeric dates are recognized. docs/languages.md explains how to add a language.

The folder `english` has what only English has: patterns and words by subject, one TOML file each.
"""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

#: Languages with a file, and the scripts that are checked before words.
CODES: Final = ("en", "de", "es", "fr", "zh", "ja")
#: Longest prefix, suffix, or run of characters in a list.
_LONGEST: Final = 14
#: Latin letters that are not a base letter with a diacritic.
_LETTERS: Final = str.maketrans({"ß": "ss", "ı": "i", "ł": "l", "æ": "ae", "ø": "o", "œ": "oe"})
#: Endings that are always written apart from their word.
_APART: Final = ("'ll", "'d")
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_HAN: Final = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_PART: Final = re.compile(r"<<(\w+)>>")


class Language:
    """The word lists of one language, indexed so that one pass over a text matches all lists."""

    def __init__(self, code: str, lists: Mapping[str, str]) -> None:
        self.code = code
        self.spaced = code not in {"zh", "ja"}
        self._exact: dict[str, list[str]] = {}
        self._prefixes: dict[str, list[str]] = {}
        self._suffixes: dict[str, list[str]] = {}
        self._phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for name, text in lists.items():
            for entry in {*text.split(), *unmarked(text).split()}:  # many people omit the accents
                # Many people write "dont"; but "ill" and "wed" are words of their own.
                for form in {entry, entry if entry.endswith(_APART) else entry.replace("'", "")}:
                    self._add(name, form)
        self.function = self.words("function")

    def _add(self, name: str, entry: str) -> None:
        if ":" in entry:
            words = tuple(entry.split(":"))
            self._phrases.setdefault(words[0].removesuffix("*"), []).append((words, name))
        elif entry.endswith("*"):
            self._prefixes.setdefault(entry[:-1], []).append(name)
        elif entry.startswith("*"):
            self._suffixes.setdefault(entry[1:], []).append(name)
        else:
            self._exact.setdefault(entry, []).append(name)

    def words(self, name: str) -> frozenset[str]:
        """Return the single words of a list."""
        return frozenset(entry for entry, names in self._exact.items() if name in names)

    def signs(self, text: str) -> Counter[str]:
        """Return the number of words of a text that match each list, by list name."""
        found: Counter[str] = Counter()
        words = words_of(unmarked(text))
        for at, word in enumerate(words):
            found.update(self.kinds(word))
            for phrase, name in self._phrases.get(word, ()):
                if len(phrase) > 1 and _begins(words[at : at + len(phrase)], phrase):
                    found[name] += 1
        if not self.spaced:
            found.update(self._runs(text))
        return found

    @cache  # noqa: B019  # six languages, which live as long as the process
    def kinds(self, word: str) -> tuple[str, ...]:
        """Return the lists that contain a word."""
        word = unmarked(word)
        results = list(self._exact.get(word, ()))
        for size in range(2, min(len(word), _LONGEST) + 1):
            results += self._prefixes.get(word[:size], ())
            results += self._suffixes.get(word[-size:], ())
        return tuple(dict.fromkeys(results))

    def _runs(self, text: str) -> Iterator[str]:
        """Yield a list for each run of characters that it contains, the longest at each position."""
        at = 0
        while at < len(text):
            for size in range(min(_LONGEST, len(text) - at), 0, -1):
                names = self._exact.get(text[at : at + size])
                if names:
                    yield from names
                    at += size - 1
                    break
            at += 1

    def topic(self, text: str) -> list[str]:
        """Return the topic words of a text: no function words, values or words of change."""
        return [word for word in self.content(text) if _VALUES.isdisjoint(self.kinds(word)) and not word.isdigit()]

    def content(self, text: str) -> list[str]:
        """Return the words of a text without function words, in order; in Chinese and Japanese pairs of characters."""
        if self.spaced or not _HAN.search(text):
            return [word for word in words_of(text) if word not in self.function]
        plain = text
        for word in sorted(self.function, key=len, reverse=True):
            plain = plain.replace(word, " ")
        return [run[at : at + 2] for run in re.findall(r"[^\W\d_]{2,}", plain) for at in range(len(run) - 1)]


#: Lists whose words are values, not topics.
_VALUES: Final = frozenset({"function", "date", "number", "unit", "update", "smalltalk"})


def unmarked(text: str) -> str:
    """Return a Latin text without diacritics; other scripts are unchanged."""
    if text.isascii():
        return text
    return "".join(_bare(character) for character in text)


@cache
def _bare(character: str) -> str:
    if character.isascii() or not unicodedata.name(character, "").startswith("LATIN"):
        return character
    plain = unicodedata.normalize("NFKD", character.translate(_LETTERS))
    return "".join(each for each in plain if not unicodedata.combining(each))


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, with straight apostrophes."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


def _begins(words: list[str], phrase: tuple[str, ...]) -> bool:
    return len(words) == len(phrase) and all(
        word.startswith(part[:-1]) if part.endswith("*") else word == part
        for word, part in zip(words, phrase, strict=True)
    )


@cache
def language(code: str) -> Language:
    """Return the lists of a language; empty ones for a language without a file."""
    if code not in CODES:
        return Language(code, {})
    lists = tomllib.loads(files(__package__).joinpath(f"{code}.toml").read_text("utf-8"))
    return Language(code, {name: text for name, text in lists.items() if name not in {"name", "code"}})


# ---- English patterns -----------------------------------------------------------------------------------------------


@cache
def english(subject: str) -> Mapping[str, Any]:
    """Return the patterns and words of a subject, by name."""
    return tomllib.loads(files(__package__).joinpath("english", f"{subject}.toml").read_text("utf-8"))


@cache
def english_lines(subject: str, name: str) -> tuple[str, ...]:
    """Return the alternatives of a pattern, one per line of the file. `<<NAME>>` inserts another pattern."""
    text = _PART.sub(lambda match: english_pattern(subject, match[1]), english(subject)[name])
    return tuple(line for line in text.split("\n") if line and not line.startswith("# "))


def english_pattern(subject: str, name: str) -> str:
    """Return a pattern as a regular expression."""
    return "|".join(english_lines(subject, name))


@cache
def english_words(subject: str, name: str) -> frozenset[str]:
    """Return a list of words."""
    return frozenset(english(subject)[name].split())
