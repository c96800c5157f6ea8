"""What a statement is about and which values it gives: stems, typed values (dates, money, numbers, names, places),
rarity.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from cuebook.memory.vocabulary import GENERIC, IRREGULAR, STOP
from cuebook.records.expression import Expression

WORD: Final = Expression(r"[^\W_]+(?:['’][^\W_]+)*")

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar janvier enero gennaio",
            "february feb februar février febrero febbraio",
            "march mar märz mars marzo",
            "april apr avril abril aprile",
            "may mai mayo maggio",
            "june jun juni juin junio giugno",
            "july jul juli juillet julio luglio",
            "august aug août agosto",
            "september sep sept septembre septiembre settembre",
            "october oct oktober octobre octubre ottobre",
            "november nov novembre noviembre",
            "december dec dezember décembre diciembre dicembre",
        ),
        1,
    )
    for name in names.split()
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAYS: Final = {
    "mon": "mon",
    "tue": "tue",
    "tues": "tue",
    "wed": "wed",
    "thu": "thu",
    "thur": "thu",
    "thurs": "thu",
    "fri": "fri",
    "sat": "sat",
    "sun": "sun",
}
_WEEKDAY = Expression(
    r"\b(?:(first|second|third|fourth|last) )?(mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(mon|tues?|wed|thur?s?|"
    r"fri)\b(?=[\s,.]|$)",
    re.IGNORECASE,
)
_DATE = Expression(
    rf"\b(?P<iso>\d{{4}}-\d{{2}}-\d{{2}})\b"
    rf"|\b(?:the )?(?P<d1>\d{{1,2}})(?:st|nd|rd|th|\.)?(?: of)? (?P<m1>{_MONTH})\b\.?"
    rf"|\b(?P<m2>{_MONTH})\b\.? (?:the )?(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.]\d)"
    rf"|\b(?P<d3>\d{{1,2}})(?:st|nd|rd|th)\b(?! (?:floor|grade|street|avenue|birthday|year|time|"
    r"anniversary|century|edition))"
    rf"|\b(?P<m3>{_MONTH})\b",
    re.IGNORECASE,
)
_MONTH_ALONE = Expression(rf"\b(?=[a-z])(?P<m3>{_MONTH})\b", re.IGNORECASE)
_TIME = Expression(
    r"\b(?P<h>\d{1,2})(?:[:.](?P<min>\d{2}))?\s?(?P<half>[ap])\.?m\b\.?|\b(?P<h2>[01]?\d|2[0-3]):(?P<min2>[0-5]\d)\b"
    r"|\b(?:at|before|after|by|until|till|from|past) (?P<word>one|two|three|four|five|six|seven|eight|"
    r"nine|ten|eleven|twelve|noon)(?= (?:in the|on|o'clock|sharp|every|each|tomorrow|tonight|instead|now|"
    r"with|from)\b|[.,;!?]|$)"
    r"|\b(?:the|at|leaves|from|until|till) (?P<h4>[01]?\d|2[0-3])\.(?P<min4>[0-5]\d)\b(?! ?(?:kg|km|m|euros?|%|a\b|"
    r"per\b))"
    r"|\bat (?P<h3>\d{1,2})(?=[\s,.!?]|$)(?! (?:euros?|dollars?|pounds?|percent|%|[a-z]+s\b))",
    re.IGNORECASE,
)
_MONEY = Expression(
    r"(?P<sign>[$€£¥]|\b(?:eur|usd|gbp|chf|rs)\s?)(?P<n1>\d[\d.,]*)\s?(?P<k1>k\b|m\b|million\b|thousand\b)?"
    r"|\b(?P<n2>\d[\d.,]*)\s?(?P<k2>k|m|million|thousand)?\s?(?:[€£¥$]|\b(?:eur|usd|gbp|chf|euros?|"
    r"dollars?|pounds?|bucks|quid|francs?|kr|kroner|crowns?|rupees?|yen|pesos?)\b)"
    r"|\b(?P<n3>\d[\d.,]*)(?P<k3>k)\b(?!\s?(?:run|race|steps|walk))",
    re.IGNORECASE,
)
_NUMBER_WORDS: Final = {
    word: str(number)
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
    if word != "one"
}
_NUMBER = Expression(
    (
        rf"(?<![\w.,])(?P<n>\d[\d.,]*|{'|'.join(_NUMBER_WORDS)})(?P<glued>%|[a-z]{{1,4}}\b)?(?P<per>\s(?:a|an|"
        r"per)\b)?[\s-]?(?P<unit>[a-z]+)?"
    ),
    re.IGNORECASE,
)
#: A number with a unit that is no thing: "640 square metres" is a size, "three dogs" are dogs.
_MEASURE = Expression(
    r"\b\d[\d.,]*\s?-?(?:(?:square|cubic) )?(?:%|percent|per cent|m2|m²|km|cm|mm|m|kg|g|mg|ml|l|met(?:er|"
    r"re)s?|kilomet(?:er|re)s?|miles?|feet|foot|ft|inch(?:es)?|litres?|liters?|pounds?|lbs?|kilos?|grams?|"
    r"hours?|hrs?|minutes?|mins?|"
    r"seconds?|degrees?|kwh|kw|gb|mb|tb|hectares?|acres?)\b",
    re.IGNORECASE,
)
_CODE = Expression(
    r"\b(?=[A-Z0-9-]*\d)(?=[A-Z0-9-]*[A-Z])[A-Z0-9][A-Z0-9-]{2,}\b|\+?\d[\d ()-]{6,}\d\b"
    r"|\b[a-z]{3,20}\d{1,8}[a-z\d]{0,8}\b"
    r"|\b(?=[\w.-]{0,60}\d)(?=[\w.-]{0,60}[a-z])[a-z\d]{1,30}(?:[-._][a-z\d]{1,30}){1,6}\b"
)
_NAME = Expression(
    r"(?:(?:Dr|Mr|Mrs|Ms|Prof|St)\.? )?[A-ZÀ-ÖØ-Þ][\w'’&-]*(?: (?:(?:de|da|di|van|von|der|la|le|of|the|&|"
    r"and) )?[A-ZÀ-ÖØ-Þ][\w'’&-]*)*"
)
_PLACE = Expression(
    r"\b(?:live|lives|living|lived|move|moved|moving|moves|relocat\w+|based|settled|staying|located|"
    r"resid\w+|flat|apartment|house|home)\b"
    r"[^.,;!?]{0,40}?\b(?:in|to|at|near)\s+(?:the\s+)?(?P<place>[^\W\d_][\w'’-]*(?: [A-ZÀ-Þ][\w'’-]*)*)",
    re.IGNORECASE,
)

#: Nouns made of verbs: "presentation", "submission", "payment" are about what "present", "submit", "pay" are about.
_NOUN_ENDINGS: Final = (
    ("ations", ""),
    ("ation", ""),
    ("issions", "it"),
    ("ission", "it"),
    ("ments", ""),
    ("ment", ""),
    ("eries", "er"),
    ("ery", "er"),
)

_NOUN_LAST: Final = frozenset(ending[-1] for ending, _ in _NOUN_ENDINGS)
_ENDINGS: Final = (("ies", 5), ("ying", 6), ("ing", 6), ("ied", 5), ("ed", 5), ("es", 5), ("s", 4))
_LAST: Final = frozenset(ending[-1] for ending, _ in _ENDINGS)

#: Where an amount, a measure or a bare number stands.
AMOUNT: Final = Expression(rf"{_MONEY.pattern}|{_MEASURE.pattern}|(?<![\w.,-])\d[\d.,]*(?![\w-])", re.IGNORECASE)

_DIGIT = Expression(r"\d")
Value = tuple[str, str]


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """Return a word's rough stem: lower case, no possessive, plural, -ed or -ing; the same for all forms of most
    words.
    """
    word = word.lower().replace("’", "'")
    word = word.removesuffix("'s").removesuffix("'")
    if word in IRREGULAR:
        return IRREGULAR[word].removesuffix("e")
    for ending, instead in _NOUN_ENDINGS if word[-1:] in _NOUN_LAST else ():
        if len(word) >= len(ending) + 3 and word.endswith(ending):
            return word.removesuffix(ending) + instead
    for ending, least in _ENDINGS if word[-1:] in _LAST else ():
        if (
            len(word) >= least
            and word.endswith(ending)
            and not word.endswith("ss")
            and not (ending == "s" and word.endswith(("us", "is")))
        ):
            word = word.removesuffix(ending)
            if ending in {"ies", "ied", "ying"}:
                word += "y"
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" and ending in {"ing", "ed"}:
                word = word[:-1]
            break
    return word.removesuffix("e") if len(word) > 3 else word


def words(text: str) -> list[str]:
    """Return the words of a text in order."""
    return WORD.findall(text)


def stems(text: str) -> frozenset[str]:
    """Return the stems of what `text` is about: no function words, no bare numbers."""
    return frozenset(stem(word) for word in WORD.findall(text) if _topical(word))


def topic(text: str) -> frozenset[str]:
    """Return `stems` without values ("12 euros") and the verbs that only say that something changed."""
    if _DIGIT.search(text):
        for pattern in (_MONEY, _TIME, _DATE, _MEASURE):
            text = pattern.sub(" ", text)
    return frozenset(found for found in stems(text) if found not in GENERIC)


@lru_cache(maxsize=1 << 14)
def _topical(word: str) -> bool:
    lower = word.lower().replace("’", "'")
    if lower in STOP or lower.removesuffix("'s") in STOP:
        return False
    if (
        lower[0].isdigit()
        or lower in _MONTHS
        or lower in _NUMBER_WORDS
        or lower.removesuffix("s").removesuffix("day") in _DAY_STEMS
    ):
        return False
    return len(lower) > 1 or not lower.isascii()


_DAY_STEMS: Final = frozenset("mon tues wednes thurs fri satur sun".split())


def values(text: str) -> frozenset[Value]:
    """Return the typed values of `text`, as (type, normalised value); a number's type holds its unit."""
    found: set[Value] = set()
    rest = text
    digits = _DIGIT.search(text)
    for pattern, read, needs in _READERS:
        if digits or not needs:
            pattern = _MONTH_ALONE if pattern is _DATE and not digits else pattern  # noqa: PLW2901, one of two for speed
            matches = list(pattern.finditer(rest))
            found.update(filter(None, map(read, matches)))
            for match in matches:
                rest = rest[: match.start()] + " " * len(match[0]) + rest[match.end() :]
    found.update(filter(None, map(_number, _NUMBER.finditer(rest))))
    found.update(("name", name.lower()) for name in names(text))
    found.update(
        ("place", match["place"].lower()) for match in _PLACE.finditer(text) if match["place"].lower() not in STOP
    )
    return frozenset(found)


def names(text: str) -> list[str]:
    """Return the proper names of `text`: capitalised words that do not merely begin a sentence."""
    found: list[str] = []
    for match in _NAME.finditer(text):
        name = match[0].rstrip("'’-&")
        name = name.removesuffix("'s").removesuffix("’s")
        if _opens(text, match.start()):
            first, _, rest = name.partition(" ")
            if first.lower().split("'")[0].split("’")[0] in STOP or (not rest and not _known_name(first)):
                name = rest
        parts = [part for part in name.split() if not _common(part)]
        if parts:
            found.append(" ".join(parts))
    return found


def _opens(text: str, at: int) -> bool:
    before = text[:at].rstrip(" \"'(“‘")
    return not before or before[-1] in ".!?:…\n"


def _known_name(word: str) -> bool:
    """Tell whether a word that opens a sentence is a name all the same: possessive, or inner capitals or digits."""
    return word.endswith(("'s", "’s")) or any(char.isupper() or char.isdigit() for char in word[1:])


def _common(part: str) -> bool:
    lower = part.lower().replace("’", "'").rstrip(".")
    return (
        lower.split("'")[0] in STOP
        or lower in STOP
        or lower in _MONTHS
        or lower.removesuffix("s").removesuffix("day") in _DAY_STEMS
        or lower in _DAYS
        or len(lower) < 2
    )


def _plain(number: str, scale: str | None) -> str:
    """Return a number in one form: 4.200 = 4,200 = 4200 = 4.2k."""
    number = number.rstrip(".,")
    if re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", number):
        number = number.replace(".", "").replace(",", "")
    factor = {"k": 1_000, "thousand": 1_000, "m": 1_000_000, "million": 1_000_000}.get((scale or "").lower(), 1)
    try:
        return f"{float(number.replace(',', '.')) * factor:.10g}"
    except ValueError:
        return number


def _money(match: re.Match[str]) -> Value:
    number = match["n1"] or match["n2"] or match["n3"]
    return ("money", _plain(number, match["k1"] or match["k2"] or match["k3"]))


def _time(match: re.Match[str]) -> Value | None:
    if match["word"]:
        return (
            "time",
            f"{int(_NUMBER_WORDS.get(match['word'].lower(), '12' if match['word'].lower() == 'noon' else '1')):02}:00",
        )
    hour = int(match["h"] or match["h2"] or match["h3"] or match["h4"])
    minute = int(match["min"] or match["min2"] or match["min4"] or 0)
    if hour > 24 or (match["h3"] and not 1 <= hour <= 23):
        return None
    if (match["half"] or "").lower() == "p" and hour < 12:
        hour += 12
    return ("time", f"{hour % 24:02}:{minute:02}")


def _date(match: re.Match[str]) -> Value | None:
    alone = match["m3"]
    if alone:
        month = _MONTHS[alone.lower()]
        return None if alone in {"may", "mar", "march", "mars"} else ("date", f"{month:02}-")
    if match["iso"]:
        return ("date", match["iso"][5:])
    month = _MONTHS.get((match["m1"] or match["m2"] or "").lower(), 0)
    day = int(match["d1"] or match["d2"] or match["d3"])
    return ("date", f"{month:02}-{day:02}" if month else f"-{day:02}") if 1 <= day <= 31 else None


def _weekday(match: re.Match[str]) -> Value:
    """Return a weekday, with which of the month's it is: "the first friday"."""
    return ("weekday", f"{(match[1] or '').lower()} {(match[2] or match[3])[:3].lower()}".strip())


def _code(match: re.Match[str]) -> Value:
    return ("code", re.sub(r"[\s()-]", "", match[0]).lower())


def _number(match: re.Match[str]) -> Value | None:
    number = _NUMBER_WORDS.get(match["n"].lower(), match["n"])
    glued, unit = (match["glued"] or "").lower(), (match["unit"] or "").lower()
    if glued in {"st", "nd", "rd", "th"}:
        glued = ""
    kind = glued or (stem(unit) if unit not in STOP or unit in _UNITS else "")
    return (f"number {'per ' if match['per'] and kind else ''}{kind}".strip(), _plain(number, None))


_UNITS: Final = frozenset("day days week weeks month months year years time times night nights".split())


def clash(new: Iterable[Value], old: Iterable[Value]) -> set[str]:
    """Return the types in which two statements give different values and share none."""
    left, right = _by_type(new), _by_type(old)
    return {
        kind
        for kind in left.keys() & right.keys()
        if not any(_agree(one, two) for one in left[kind] for two in right[kind])
    }


def _by_type(found: Iterable[Value]) -> dict[str, set[str]]:
    types: dict[str, set[str]] = {}
    for kind, value in found:
        types.setdefault(kind, set()).add(value)
    return types


def _agree(one: str, two: str) -> bool:
    """Tell whether two values may be the same: equal, or a date that leaves out what the other says."""
    if one == two:
        return True
    if len(one) in {3, 5} and len(two) in {3, 5} and "-" in one and "-" in two:
        (month1, day1), (month2, day2) = one.split("-", 1), two.split("-", 1)
        return (not month1 or not month2 or month1 == month2) and (not day1 or not day2 or day1 == day2)
    if ":" in one and ":" in two:  # "at 5" may be 17:00
        return one[-3:] == two[-3:] and abs(int(one[:2]) - int(two[:2])) == 12
    return one in two.split() or two in one.split()


_READERS: Final[tuple[tuple[Expression, Callable[[re.Match[str]], Value | None], bool], ...]] = (
    (_MONEY, _money, True),
    (_TIME, _time, False),
    (_DATE, _date, False),
    (_WEEKDAY, _weekday, False),
    (_CODE, _code, True),
)
