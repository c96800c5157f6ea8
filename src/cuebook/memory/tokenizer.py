"""Tokenize: split text into words for the store's full-text index and the ranking, and make keys of posts and items.

Words are lower-cased, stripped of diacritics and stemmed with Snowball's English stemmer, in every language. A query in
another language searches by prefix (`prefix_term`). Scripts without spaces (Chinese, Japanese, Thai …) and Hangul yield
single characters and pairs, like Lucene's CJKAnalyzer, so that a name inside a run is found. Identifiers yield their
parts and the whole: `getUserId` is `getuserid`, `user`, `id`. A word has only letters and digits, so FTS5's `unicode61`
keeps it in one piece.
"""

import hashlib
import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache, partial
from itertools import chain, pairwise, takewhile
from operator import eq
from typing import Any, Final

from cuebook.languages import CODES, detect, english, everyday_words, language, months, unmarked
from cuebook.records.expression import Expression
from cuebook.records.memory import Category, Memory

LONGEST_WORD: Final = 48  # maximum characters of a word; hex digests differ in far fewer
KEY_WORDS: Final = 4_000  # words of a post indexed in order; beyond, each other distinct word once
MOST_WORDS: Final = 50_000  # indexed words of a post; its text is stored whole
SEGMENT: Final = 300  # bytes of half a passage: 45 English words; a text of up to five halves is one passage
MARK: Final = "/"  # between the segments of a key
PREFIX_LETTERS: Final = 5  # of a word in a query that is not in English (docs/design/031)

_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\uff07": "'", "_": " "})
_MARKS: Final = Expression("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff]+")
# Letters, digits and, in the scripts of India, their vowel signs (marks, which `\w` does not match).
_TOKEN: Final = Expression("[^\\W_\u0900-\u0dff]+(?:'[^\\W_]+)*|[\u0900-\u0963\u0966-\u0dff]+")
_PLAIN_TOKEN: Final = Expression("[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")  # the same of an ASCII text, twice as fast
_UNSPACED: Final = Expression(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_CAPTION: Final = Expression(r"(?:\s*\[image:[^\]]*\])+\s*\Z")
_MONTHS: Final = "January February March April May June July August September October November December".split()
_DAYS: Final = "monday tuesday wednesday thursday friday saturday sunday".split()
_UNITS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}  # days
_AGO: Final = Expression(r"\b([0-9]{1,3}|an?|one|two|three) (day|week|month|year)s? ago\b", re.IGNORECASE)
_NUMBERS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3}
_LATELY: Final = Expression(
    rf"\b(?:(today|yesterday)|(this|last) (week|month|year|{'|'.join(_DAYS)}))\b", re.IGNORECASE
)
_NUMERIC: Final = Expression(  # 2024-05-13, 2024-05, 13.5.2024, 2024年5月13日
    r"\b([0-9]{4})-([0-9]{1,2})(?:-([0-9]{1,2}))?\b|\b([0-9]{1,2})\. ?([0-9]{1,2})\. ?([0-9]{4})\b"
    r"|([0-9]{4})年 ?([0-9]{1,2})月(?: ?([0-9]{1,2})日)?"
)
#: A consonant in any language of the Latin script. A capitalized word of two or three letters without a vowel is an
#: abbreviation: "Dr.", "Sgt." (measured: 9 of 9; of other capitalized words up to four letters, 1 %).
CONSONANT: Final = "[b-df-hj-np-tv-xz]"
_SENTENCE: Final = Expression(
    rf"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b[A-Z]{CONSONANT}\.)(?<!\b[A-Z]{CONSONANT}{{2}}\.)\s+|(?<=[。！？])|\n+"
)
_PIECE: Final = Expression(r".{1,200}(?:\s|\Z)|.{200}", re.DOTALL)  # of a sentence or line that is longer
_NAMED_DATE: Final = Expression(  # 15 August 2023, August 15, 2023, August 2023, 15. August 2023, 15 de agosto de 2023
    lambda: (
        r"\b(?:([0-9]{1,2})(?:st|nd|rd|th|er)?\.?\s*(?:(?:of|de)\s+)?)?"
        rf"({_longest_first(months())})\b"
        r"\.?,?\s+(?:([0-9]{1,2})(?:st|nd|rd|th)?,?\s+)?(?:(?:of|de)\s+)?((?:1[89]|2[01])[0-9]{2})\b"
    ),
    re.IGNORECASE,
)
#: What makes the name of a month a date in English, German, French and Spanish, since August may be a person too.
_BEFORE_MONTH: Final = "in|since|until|im|seit|bis|en|depuis|desde|hasta"
_YEARLESS_DATE: Final = Expression(  # 15 August, 15 de agosto, August 15, in August; not "2 may", "May I", "May '23"
    lambda: (
        rf"\b(?:(?i:{_BEFORE_MONTH})\s+((?i:{_longest_first(months())}))"
        rf"|([0-9]{{1,2}})(?:st|nd|rd|th|er)?\.?\s+(?:(?:of|de)\s+)?({_longest_first(_titles_and_long(months()))})"
        rf"|(?<![0-9]{{4}} )({_longest_first(map(str.title, months()))})\s+([0-9]{{1,2}})(?:st|nd|rd|th)?)"
        r"\b(?!,?\s+'?[0-9]{2})"
    )
)
_ORDINAL: Final = Expression("([0-9]+)(?:st|nd|rd|th)")
_HUMP: Final = Expression("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words(text: str) -> list[str]:
    """Return the words of a text in order, stemmed, without English stop words. Costs about 0.2 µs a word."""
    plain = text.isascii()
    folded = _fold(text, plain=plain)
    tokens = (_PLAIN_TOKEN if plain else _TOKEN).findall(folded)
    if plain or not _UNSPACED.search(folded):
        return [stem for token in tokens for stem in _stems(token[:LONGEST_WORD])]
    results: list[str] = []
    for run in chain.from_iterable(map(_runs, tokens)):
        # Pairs of neighbors and each character, so that a query of one character matches too.
        results += [*run, *_pairs(run)] if _UNSPACED.match(run) else _stems(run[:LONGEST_WORD])
    return results


def query_words(text: str, code: str = "") -> list[str]:
    """Return the search words of a query: only the pairs of an unspaced run, without stop words of its language.

    If `code` has no word list, the stop words in `text` decide the language.
    """
    results: list[str] = []
    for token in _drop_foreign(_TOKEN.findall(_fold(text, plain=text.isascii())), code):
        for run in _runs(token):
            if _UNSPACED.match(run):
                results += _pairs(run) or [run]
            else:
                results += _stems(run[:LONGEST_WORD])
    return results


def prefix_term(word: str) -> str:
    """Return the prefix term of a word, which matches all words with the same first letters: "verlo*" for "verloren".

    The index stores stems, so a fifth letter that the stemmer removes is not part of it: "katz*" for "katzen", as the
    stem of "katze" is "katz". Shorter words, numbers, and the words of dates are returned unchanged.
    """
    if len(word) < PREFIX_LETTERS or not word.isalpha() or word in _calendar_stems():
        return word
    first = word[:PREFIX_LETTERS]
    shared = sum(1 for _ in takewhile(bool, map(eq, first, _stem(first))))
    return f"{first[:shared] if shared == PREFIX_LETTERS - 1 else first}*"


def key_pattern(term: str) -> str:
    """Return the substring to look for in a key that is padded with spaces."""
    return f" {term[:-1]}" if term.endswith("*") else f" {term} "


def terms_in(terms: Iterable[str], words: Iterable[str]) -> set[str]:
    """Return the terms that match one of `words`."""
    text = f" {' '.join(words)} "
    return {term for term in terms if key_pattern(term) in text}


@cache
def _calendar_stems() -> frozenset[str]:
    """Return the words of dates in keys, which are English."""
    return frozenset(words(" ".join([*_MONTHS, *_DAYS])))


def key_text(speaker: str, when: float, text: str, *, zone: tzinfo = UTC) -> str:
    """Return the index entry of a post: its date and speaker, `|`, its text, and `?` if it ends in a question.

    Its words are already folded and stemmed, so every full-text engine that splits at spaces agrees with `rank`. `/`
    separates the segments of a long text. FTS5 ignores `|`, `/` and `?`. `when` is in Unix seconds; the date is that in
    the speaker's `zone`.
    """
    body: list[str] = []
    seen: set[str] | None = None
    total = 0
    for first, last in segments_of(text):
        segment = words(text[first:last])
        if total + len(segment) > KEY_WORDS:
            seen = set(body) if seen is None else seen
            segment = [word for word in dict.fromkeys(segment) if word not in seen][: MOST_WORDS - total]
            seen.update(segment)
        total += len(segment)
        body += [MARK, *segment] if first else segment
    end = text[-400:].rstrip()
    end = _CAPTION.sub("", end) if end.endswith("]") else end
    asks = end.rstrip().endswith(("?", "？", "؟"))
    return " ".join([*_date_words(when, zone), *words(speaker), "|", *body, *(["?"] if asks else [])])


def redated(key: str, when: float, zone: tzinfo) -> str:
    """Return a `key_text` made for UTC with the date that `when` had in a zone."""
    old, new = (" ".join(_date_words(when, each)) for each in (UTC, zone))
    return new + key.removeprefix(old) if key.startswith(old) else key


def on_the_wall(when: float, zone: tzinfo) -> float:
    """Return the time (Unix seconds) at which UTC clocks show what those of a zone show at `when`."""
    offset = datetime.fromtimestamp(when, zone).utcoffset()
    return when + (offset.total_seconds() if offset else 0.0)


def day_of(when: float, zone: tzinfo = UTC) -> str:
    """Return the day of a time (Unix seconds) in a zone as YYYY-MM-DD."""
    return datetime.fromtimestamp(when, zone).date().isoformat()


def _date_words(when: float, zone: tzinfo) -> list[str]:
    """Return year, month, day and weekday; nothing for times outside the calendar."""
    try:
        day = datetime.fromtimestamp(when, zone)
    except (ValueError, OverflowError, OSError):
        return []
    return words(f"{day.year} {_MONTHS[day.month - 1]} {day.day} {_DAYS[day.weekday()]}")


def read_period(text: str, now: float, *, zone: tzinfo = UTC) -> tuple[float, float] | None:
    """Return the period that a text names, seen from `now`: Unix seconds [from, to), or None.

    Days are those of `zone`, so a day may have 23 or 25 hours. A date is a day or a month, in numbers or with the
    month's name in any language that has a list. Without a year, it is the latest that has begun. The others are
    English: "yesterday", "last Monday", "3 days ago" are a day; "two weeks ago" is the week around it; "this month" and
    "last month" are calendar months.
    """
    try:
        today = datetime.fromtimestamp(now, zone).replace(fold=0, hour=0, minute=0, second=0, microsecond=0)
        if numeric := _NUMERIC.search(text):
            year, month, day = (int(part) if part else None for part in _parts(numeric.groups()))
            return _calendar(today, year, month, day)
        if named := _named_date(text):
            return _calendar(today, *named)
        ago, lately = _AGO.search(text), _LATELY.search(text)
        if ago:
            unit = _UNITS[ago[2].lower()]
            count = _NUMBERS.get(ago[1].lower()) or int(ago[1])
            return _days(today - timedelta(days=unit * count + unit // 2), unit)
        if lately:
            return _days(*_recent(today, (lately[1] or lately[3]).lower(), last=(lately[2] or "").lower() == "last"))
        if yearless := _yearless_date(text):
            return _latest(today, now, *yearless)
    except (ValueError, OverflowError, OSError):
        pass  # outside the calendar
    return None


def names_month(text: str) -> bool:
    """Return whether a text has a date with the name of its month.

    Its words are searched like others, because posts soon after a day often tell of it.
    """
    other = (_NUMERIC, _AGO, _LATELY)
    by_name = _named_date(text) or (not any(each.search(text) for each in other) and _yearless_date(text))
    return bool(by_name)


def _named_date(text: str) -> tuple[int, int, int | None] | None:
    """Return year, month and day of a date with the name of its month; the day is None for a month."""
    match = _NAMED_DATE.search(text if text.isascii() else unicodedata.normalize("NFC", text))
    month = months().get(unmarked(match[2].lower())) if match else None  # `ſ` and `ı` match s and i in any case
    if match is None or month is None:
        return None
    day = match[3] or match[1]
    return int(match[4]), month, int(day) if day else None


def _yearless_date(text: str) -> tuple[int, int | None] | None:
    """Return month and day of a date without a year; the day is None for a month."""
    match = _YEARLESS_DATE.search(text if text.isascii() else unicodedata.normalize("NFC", text))
    month = months().get(unmarked((match[1] or match[3] or match[4]).lower())) if match else None
    if match is None or month is None:
        return None
    day = match[2] or match[5]
    return month, int(day) if day else None


def _titles_and_long(names: Iterable[str]) -> set[str]:
    """Return names of months with a capital, and the longer ones without: "3 mar" and "2 may" are no dates."""
    return {form for name in names for form in (name.title(), name) if len(form) > len("may") or form != name}


def _longest_first(words: Iterable[str]) -> str:
    """Return a pattern of words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


def _parts(groups: Sequence[str | None]) -> Sequence[str | None]:
    """Return year, month and day of a numeric date's groups."""
    return groups[:3] if groups[0] else (groups[5], groups[4], groups[3]) if groups[3] else groups[6:]


def _calendar(today: datetime, year: int | None, month: int | None, day: int | None) -> tuple[float, float]:
    """Return the period of a day, or without one of a month. Raises ValueError."""
    first = today.replace(year=year or 0, month=month or 0, day=1 if day is None else day)
    return _days(first, 1 if day else monthrange(first.year, first.month)[1])


def _latest(today: datetime, now: float, month: int, day: int | None) -> tuple[float, float] | None:
    """Return the latest such day or month that has begun. February 29 may be eight years ago."""
    for year in range(today.year, today.year - 9, -1):
        with suppress(ValueError):
            period = _calendar(today, year, month, day)
            if period[0] <= now:
                return period
    return None


def date_text(period: tuple[float, float], zone: tzinfo) -> str:
    """Return the date of a day, or year and month of a calendar month, as in index entries; "" for other periods."""
    first, days = datetime.fromtimestamp(period[0], zone), round((period[1] - period[0]) / 86_400)
    if days == 1:
        return f"{first.year} {_MONTHS[first.month - 1]} {first.day}"
    is_month = first.day == 1 and days == monthrange(first.year, first.month)[1]
    return f"{first.year} {_MONTHS[first.month - 1]}" if is_month else ""


def _recent(today: datetime, what: str, *, last: bool) -> tuple[datetime, int]:
    """Return the first day and the number of days of "yesterday", "this week", "last month", "last monday"."""
    if what in _DAYS:
        back = (today.weekday() - _DAYS.index(what)) % 7
        return today - timedelta(days=back or 7 * last), 1
    if what == "week":
        return today - timedelta(days=today.weekday() + 7 * last), 7
    if what in ("month", "year"):
        first = today.replace(day=1) if what == "month" else today.replace(month=1, day=1)
        begin = (first - timedelta(days=1)).replace(day=1) if last else first
        begin = begin.replace(month=1) if what == "year" else begin
        return begin, (first - begin).days if last else (today - begin).days + 1
    return today - timedelta(days=what == "yesterday"), 1


def _days(first: datetime, days: int) -> tuple[float, float]:
    return first.timestamp(), (first + timedelta(days=days)).timestamp()


def spans_of(text: str) -> list[tuple[int, int]]:
    """Return the spans [first, last) of sentences and lines, in order; those over 200 characters are split."""
    cuts = [0, *(match.end() for match in _SENTENCE.finditer(text)), len(text)]
    pieces = (match.span() for first, last in pairwise(cuts) for match in _PIECE.finditer(text, first, last))
    return [(first, last) for first, last in pieces if not text[first:last].isspace()]


def segments_of(text: str) -> list[tuple[int, int]]:
    """Return the spans [first, last) of the segments of a text, which cover it in order; two in a row are a passage.

    They end with a line or sentence where possible. A text with few bytes is one segment.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size <= 5 * SEGMENT // 2:
        return [(0, len(text))]
    most, first, spans = max(2, SEGMENT * len(text) // size), 0, list[tuple[int, int]]()
    while len(text) - first > most * 3 // 2:
        least, last = first + most // 2, first + most
        ends = [match.end() for match in _SENTENCE.finditer(text, least, last)]
        end = ends[-1] if ends else text.rfind(" ", least, last) + 1 or last
        spans.append((first, end))
        first = end
    return [*spans, (first, len(text))]


@cache
def stop_words(code: str) -> frozenset[str]:
    """Return the stop words of a language, without diacritics: its function words and small talk.

    Measured on LoCoMo: stop words and stems together are worth 9 points of R@10.
    """
    lists = language(code)
    return frozenset(_fold(word, plain=word.isascii()) for word in lists.function | lists.words("smalltalk"))


@cache
def everyday_stems(code: str) -> frozenset[str]:
    """Return the everyday words of a language as search words."""
    return frozenset(stem for word in everyday_words(code) for stem in _stems(word))


def is_pair(word: str) -> bool:
    """Return whether a word is a pair of an unspaced run, which may span two words of its language."""
    return len(word) == 2 and _UNSPACED.fullmatch(word) is not None


def _fold(text: str, *, plain: bool) -> str:
    """Return plain text: compatibility forms and diacritics removed, with one kind of apostrophe."""
    if plain:
        return text.replace("_", " ") if "_" in text else text
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)))
    return unicodedata.normalize("NFC", bare)


@lru_cache(maxsize=1 << 15)
def _stems(token: str) -> tuple[str, ...]:
    """Return the words of one token as written: none for a stop word, several for an identifier."""
    lower = token.casefold()
    if "'" in lower:
        return _contracted(token)
    if lower in stop_words("en") and token != "May":  # noqa: S105 - the month, unlike the verb, has its capital
        return ()
    ordinal = _ORDINAL.fullmatch(lower)
    if ordinal:
        return (ordinal[1],)
    parts = _HUMP.split(token) if lower != token and len(token) > 3 else [token]
    whole = (_stem(lower),)
    if len(parts) == 1:
        return whole
    return whole + tuple(
        _stem(part) for part in map(str.casefold, parts) if len(part) > 1 and part not in stop_words("en")
    )


def _contracted(token: str) -> tuple[str, ...]:
    """Return the words of a contraction: of `Anna's` Anna, of `don't` none, of `l'amour` and `O'Brien` both sides."""
    head, *rest = token.split("'")
    if rest[-1].casefold() == "t":
        return ()
    sides = [head, *(side for side in rest if len(side) > 2)]
    return tuple(stem for side in sides if len(side) > 1 for stem in _stems(side))


def _stem(word: str) -> str:
    """Return the stem of a word, by a new stemmer (0.2 µs): threads must not share one."""
    return str(_english()().stemWord(_base_forms().get(word, word))) if word.isascii() and not word.isdigit() else word


@cache
def _base_forms() -> dict[str, str]:
    """Return the base form of each irregular form that the stemmer misses."""
    lines = [line.split() for line in english("words")["irregular"].split(",")]
    return {form: base for base, *forms in lines for form in forms}


@cache
def _english() -> Callable[[], Any]:
    """Return the constructor of the English stemmer. It is loaded with the first word that needs it."""
    from Stemmer import Stemmer

    return partial(Stemmer, "english", 0)  # without its cache: `_stems` has one


def _runs(token: str) -> list[str]:
    """Split a token where a script without spaces begins or ends."""
    results: list[str] = []
    place = 0
    for match in _UNSPACED.finditer(token):
        results += [token[place : match.start()], match[0]]
        place = match.end()
    return [run for run in [*results, token[place:]] if run]


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _drop_foreign(tokens: list[str], code: str) -> list[str]:
    """Return a query's tokens without the stop words of its language. `_stems` drops the English ones.

    If `code` has no list, the language with the most stop words counts, if there are at least two and more than in
    English.
    """
    lowered = [token.casefold() for token in tokens]
    if code not in CODES:
        counts = {each: sum(word in stop_words(each) for word in lowered) for each in CODES}
        most = max(CODES, key=lambda each: counts[each])  # English in a tie
        code = most if counts[most] >= 2 else "en"
    if code == "en":
        return tokens
    return [token for token, word in zip(tokens, lowered, strict=True) if word not in stop_words(code)]


# ---- identity of items ----------------------------------------------------------------------------------------------

#: Words of a subject key.
WORDS = 3


def item_id(category: Category, text: str, voice: str = "") -> str:
    """Return an item's stable id: 16 hex digits of SHA-256 over category, normalized text and a participant's name."""
    said = f"{category}|{voice}|{normal(text)}" if voice else f"{category}|{normal(text)}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def normal(text: str) -> str:
    """Return a text normalized for deduplication: trimmed, lower case, whitespace collapsed."""
    return " ".join(text.lower().split())


def subject_of(text: str) -> str:
    """Return the key of a text's subject: its first content words."""
    return " ".join(dict.fromkeys(language(detect(text)).content(text)[:WORDS]))


# ---- print a memory -------------------------------------------------------------------------------------------------


def said_of(memory: Memory) -> str:
    """Return a memory as it is printed: its text, after its key or name if the text does not contain that."""
    return f"{memory.name}: {memory.text}" if memory.name and memory.name not in memory.text else memory.text


def memory_key(memory: Memory, *, zone: tzinfo = UTC) -> str:
    """Return what the store indexes for a memory: the `key_text` of its printed form."""
    return key_text("", memory.valid_from, said_of(memory), zone=zone)
