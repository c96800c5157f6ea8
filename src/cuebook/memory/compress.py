"""How a long post becomes a short one without a model: its first line, its last line, and every fact that must
survive.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cuebook.records.memory import Line

#: C, Memory Compression: texts up to here are kept as they are; also the longest kept first and last line.
SHORT: Final = 200
#: C's own code (notes/seed-origins.md 3.1): a batch shows 5 actions and 5 results of 150 characters.
BATCH_LINES: Final = 5
BATCH_WIDTH: Final = 150

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_SECRET = re.compile(r"\[\[secret:[^\]]*\]\]")
#: C's eight patterns in C's order, then ours: dates, money, file paths, quoted identifiers. Every quantifier is
#: bounded or
#: followed by what it cannot contain, so that a hostile text of any length is read in linear time.
_FACTS: Final = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"\bhttps?://[^\s<>\"'`\])}]{1,2000}", re.IGNORECASE),
        (r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}", 0),
        (r"\b\w{0,40}(?:error|exception)\b[^\n]{0,200}", re.IGNORECASE),
        (
            (
                r"\b(?:css |xpath )?selector['\"]?\s{0,3}[:=]?\s{0,3}(?:'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|"
                r"`[^`\n]{1,200}`)"
            ),
            re.IGNORECASE,
        ),
        (r"\bclass(?:Name)?=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}')", re.IGNORECASE),
        (r"\bid=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}')", re.IGNORECASE),
        (r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\d.]\d)", 0),
        (r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b", 0),
        (
            rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)? (?:of )?)?{_MONTH} \d{{1,4}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?",
            re.IGNORECASE,
        ),
        (rf"\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?!\w)", re.IGNORECASE),
        (
            (
                r"[$€£¥]\s?\d[\d.,]{0,20}(?:k|m|bn)?\b|\b\d[\d.,]{0,20}\s?(?:[€£¥]|(?:usd|eur|gbp|chf|dollars?|euros?|"
                r"pounds?)\b)"
            ),
            re.IGNORECASE,
        ),
        (r"(?<![\w/.:])(?:~|\.{1,2})?(?:/[\w.@+-]{1,100}){2,30}|(?<![\w\\])[A-Za-z]:(?:\\[\w.@+ -]{1,100}){1,30}", 0),
        (r"`[^`\n]{2,80}`|(?<!\w)'[A-Za-z_][\w.:-]{1,60}'(?!\w)|(?<!\w)\"[A-Za-z_][\w.:-]{1,60}\"(?!\w)", 0),
        (r"(?<![\w.,])\d{1,3}(?:,\d{3}){1,6}(?![\w,])|(?<!\w)\d{3,40}(?!\w)", 0),
    )
)


def compress(text: str, *, role: str = "") -> str | None:
    """Return a shorter form of `text`, or None where there is none: C's compressor, losing no fact while it stays
    smaller.

    The form is the first line, `... last line` and `[preserved: …]` with every unique fact that the two lines do not
    show already.
    """
    if len(text) <= SHORT:
        return None
    kept = _kept_lines(text)
    if role:
        kept[0] = f"[{role}] {kept[0]}"
    shown = "\n".join(kept)
    facts = _fitting(facts_in(text), shown, room=len(text) - 1 - len(shown) - len("\n[preserved: ]"))
    result = f"{shown}\n[preserved: {', '.join(facts)}]" if facts else shown
    return result if len(result) < len(text) else None


def compress_batch(lines: Sequence[Line]) -> str:
    """Return C's `[Summary of N messages]` of posts, oldest first: what was asked, what came of it, and the facts of
    all.
    """
    total = sum(len(line.text) for line in lines)
    actions = [_shown(line) for line in lines if line.role == "user" and line.text.strip()]
    results = [_shown(line) for line in lines if line.role != "user" and line.text.strip()]
    parts = [f"[Summary of {len(lines)} messages]"]
    parts += [f"Actions: {' | '.join(actions[-BATCH_LINES:])}"] if actions else []
    parts += [f"Results: {' | '.join(results[-BATCH_LINES:])}"] if results else []
    shown = "\n".join(parts)
    found = dict.fromkeys(fact for line in lines for fact in facts_in(line.text))
    facts = _fitting(found, shown, room=total - 1 - len(shown) - len("\nKey facts: "))
    return f"{shown}\nKey facts: {', '.join(facts)}" if facts else shown


def facts_in(text: str) -> list[str]:
    """Return the unique facts of `text` in the order of their first place; a fact inside a longer one is not told
    twice.
    """
    hidden = _SECRET.sub(lambda match: "\0" * len(match[0]), text)
    taken = bytearray(len(hidden))
    found: list[tuple[int, str]] = []
    for pattern in _FACTS:
        for match in pattern.finditer(hidden):
            start, end = match.span()
            if taken[start] or taken[end - 1]:
                continue
            taken[start:end] = b"\1" * (end - start)
            found.append((start, match[0].split("\0")[0].rstrip(" .,;:!?)")))
    return list(dict.fromkeys(fact for _, fact in sorted(found) if fact))


def _kept_lines(text: str) -> list[str]:
    """Return the first and the last line, each cut to C's 200 characters; of a single long line its two ends."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    first = cut(lines[0], SHORT)
    if len(lines) > 1:
        return [first, f"... {cut(lines[-1], SHORT)}"]
    if len(lines[0]) > 2 * SHORT:
        return [first, f"... {_ending(lines[0])}"]
    return [first]


def cut(text: str, width: int) -> str:
    """Return the first `width` characters of `text`, never half of a secret's token."""
    for match in _SECRET.finditer(text):
        if match.start() < width < match.end():
            return text[: match.start()].rstrip()
    return text[:width].rstrip()


def _ending(line: str) -> str:
    """Return the last whole words of one long line."""
    start = len(line) - SHORT
    for match in _SECRET.finditer(line):
        if match.start() < start < match.end():
            start = match.end()
    words = line[start:]
    return words.partition(" ")[2].strip() or words.strip()


def _fitting(facts: Iterable[str], shown: str, *, room: int) -> list[str]:
    """Return the facts `shown` does not show, as many as `room` characters hold."""
    return list(_fill((fact for fact in facts if not _visible(fact, shown)), room=room))


def _fill(facts: Iterable[str], *, room: int) -> Iterator[str]:
    for fact in facts:
        cost = len(fact) + 2
        if cost - 2 <= room:
            room -= cost
            yield fact


def _visible(fact: str, shown: str) -> bool:
    """Tell whether `shown` holds `fact` as a whole: 123 is not visible in 91234."""
    start = shown.find(fact)
    while start >= 0:
        before, after = shown[start - 1 : start], shown[start + len(fact) : start + len(fact) + 1]
        if not (before.isalnum() and fact[0].isalnum()) and not (after.isalnum() and fact[-1].isalnum()):
            return True
        start = shown.find(fact, start + 1)
    return False


def _shown(line: Line) -> str:
    speaker = line.speaker or line.role
    words = " ".join(line.text.split())
    return f"{speaker[:1].upper()}{speaker[1:]}: {cut(words, BATCH_WIDTH)}"
