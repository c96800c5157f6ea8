"""Word lists of languages, English patterns, and the language detector.

A list names what its words indicate (`health`, `rule`, `date`, `question` …). For languages without a file only
numbers, names and numeric dates are recognized. docs/languages.md explains how to add a language. The folder `english`
has what only English has: patterns and words by subject, one TOML file each.

The detector looks at the script first, then at the words: the common words of English against those of eighteen other
languages in the Latin script. Short texts work: "werkt niet" has two words, both Dutch.
"""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from cuebook.records.expression import Expression

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
        self.capitalizes_nouns = code == "de"  # so capitals do not mark names
        self._exact: dict[str, list[str]] = {}
        self._prefixes: dict[str, list[str]] = {}
        self._suffixes: dict[str, list[str]] = {}
        self._phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        self._lists = lists
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
            for name in self.kinds(word):
                found[name] += 1
            for phrase, name in self._phrases.get(word, ()):
                if len(phrase) > 1 and _begins(words[at : at + len(phrase)], phrase):
                    found[name] += 1
        if not self.spaced:
            found.update(self._runs(text))
        return found

    def without(self, text: str, *names: str) -> str:
        """Return a text without the words of some lists."""
        return self._expression(names).sub(" ", text)

    @cache  # noqa: B019  # six languages, which live as long as the process
    def _expression(self, names: tuple[str, ...]) -> re.Pattern[str]:
        """Return a pattern of the words of some lists, the longest first, with and without their accents."""
        entries = [entry for name in names for entry in self._lists.get(name, "").split()]
        forms = sorted({*entries, *map(unmarked, entries)}, key=len, reverse=True)
        parts = [re.escape(each).replace("'", "['’]").replace(":", r"\s+") for each in forms]
        if not self.spaced:
            return re.compile("|".join(parts) or r"(?!)")
        words = "|".join(each.replace(r"\*", r"\w*") for each in parts)
        return re.compile(rf"\b(?:{words})\b" if words else r"(?!)", re.IGNORECASE)

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
    if len(words) != len(phrase):
        return False
    for word, part in zip(words, phrase, strict=True):
        if word != part and not (part.endswith("*") and word.startswith(part[:-1])):
            return False
    return True


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
def english_pattern(subject: str, name: str) -> str:
    """Return a regular expression of the alternatives in a file, one per line. `<<NAME>>` inserts another pattern."""
    text = _PART.sub(lambda match: english_pattern(subject, match[1]), english(subject)[name])
    return "|".join(line for line in text.split("\n") if line and not line.startswith("# "))


def english_expression(subject: str, name: str, flags: re.RegexFlag = re.NOFLAG) -> Expression:
    """Return a pattern as an expression, which is loaded with its first use."""
    return Expression(lambda: english_pattern(subject, name), flags)


@cache
def english_words(subject: str, name: str) -> frozenset[str]:
    """Return a list of words."""
    return frozenset(english(subject)[name].split())


# ---- the detector ---------------------------------------------------------------------------------------------------

#: The code of an undetermined language (ISO 639-2).
UNDETERMINED: Final = "und"
#: Characters of a text that are examined.
LOOKED_AT: Final = 2_000
#: The share of letters that may be in another script, as in names and quotations.
FOREIGN: Final = 0.3
#: Number of unknown words from which a text is in another language.
UNKNOWN_WORDS: Final = 4

_LETTER: Final = re.compile(r"[^\W\d_]")
_LATIN_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
#: Text without a language: code, paths and quotations.
_QUOTED: Final = re.compile(
    r"`[^`\n]*`|\b\w+\(|\b\w*_\w+|\b\w+[./=]\w[\w./=-]*|(?<!\w)(?:'[^'\n]{1,80}'|\"[^\"\n]{1,80}\"|\u201c[^\u201d\n]{1,80}\u201d)(?!\w)"
)
_KANA: Final = re.compile(r"[\u3040-\u30ff]")
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
        if len(_HAN.findall(text)) * 2 > len(_LATIN_WORD.findall(text)):
            return "zh"
        latin = sum(letter.isascii() or _is_latin(letter) for letter in letters)
        if latin < (1 - FOREIGN) * len(letters):
            return UNDETERMINED
    results = _LATIN_WORD.findall(_QUOTED.sub(" ", text)) or _LATIN_WORD.findall(text)
    return _by_words([word.replace("\u2019", "'").lower() for word in results if word.isascii() or _is_latin(word[0])])


def _by_words(words: list[str]) -> str:
    everyday = _everyday()
    points = {"en": 0.0}
    marked = sum(map(_is_foreign, words))
    for plain in map(unmarked, words):
        codes = everyday.get(plain, ())
        if "en" not in codes and _ENDING.search(plain):
            points["en"] += 0.5
        for code in codes:
            points[code] = points.get(code, 0.0) + (1 if len(plain) > 1 or code == "en" else 0.5)
    best = max(points, key=lambda code: points[code])  # a tie goes to English
    if best != "en" or marked > points["en"]:
        return best if best != "en" else UNDETERMINED
    return "en" if points["en"] else UNDETERMINED if len(words) >= UNKNOWN_WORDS else ""


def _is_foreign(word: str) -> bool:
    """Return whether a word has diacritics that English does not use."""
    if word.isascii():
        return False
    return any(not each.isascii() and each not in _BORROWED for each in unicodedata.normalize("NFC", word))


@cache
def _everyday() -> dict[str, tuple[str, ...]]:
    """Return the languages of each common word."""
    lists = tomllib.loads(files(__package__).joinpath("everyday.toml").read_text("utf-8"))
    results: dict[str, tuple[str, ...]] = {}
    for code, words in lists.items():
        function = language(code).function
        for word in {*words.split(), *map(unmarked, function)}:
            results[word] = (*results.get(word, ()), code)
    return results


@cache
def months() -> Mapping[str, int]:
    """Return the numbers of the months, 1 to 12, by their names in lower case, in all languages with a list."""
    lists = tomllib.loads(files(__package__).joinpath("months.toml").read_text("utf-8"))
    named = (
        (name, no) for text in lists.values() for no, names in enumerate(text.split(), 1) for name in names.split("|")
    )
    return {form: no for name, no in named for form in (name, unmarked(name))}


def everyday_words(code: str) -> frozenset[str]:
    """Return the everyday words of a language, without diacritics."""
    return frozenset(word for word, codes in _everyday().items() if code in codes)


@lru_cache(maxsize=4096)
def _is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(("LATIN", "FULLWIDTH LATIN"))
