"""Compress a long post without a model: keep its first line, its last line, and its key facts."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from msgspec.structs import replace

from cuebook.records.expression import Expression
from cuebook.records.memory import Line
from cuebook.records.redaction import card_numbers

#: C, Memory Compression: shorter texts are unchanged. Also the maximum length of the first and the last line.
SHORT: Final = 200
#: BrowserOS's own code: a batch shows 5 actions and 5 results of 150 characters each.
BATCH_LINES: Final = 5
BATCH_WIDTH: Final = 150


def compress(text: str, *, role: str = "") -> str | None:
    """Return a shorter form of `text` (BrowserOS's compressor), or None if there is none. It keeps every fact.

    The form is the first line, `... last line`, and `[preserved: …]` with every unique fact that the two lines do not
    contain.
    """
    if len(text) <= SHORT:
        return None
    text = without_accounts(text)
    lines = _kept_lines(text)
    if role:
        lines[0] = f"[{role}] {lines[0]}"
    content = "\n".join(lines)
    facts = _fitting(facts_in(text), content, room=len(text) - 1 - len(content) - len("\n[preserved: ]"))
    result = f"{content}\n[preserved: {', '.join(facts)}]" if facts else content
    return result if len(result) < len(text) else None


def compress_batch(lines: Sequence[Line]) -> str:
    """Return BrowserOS's `[Summary of N messages]` of posts, oldest first: the requests, the results, and all facts."""
    lines = [replace(line, text=without_accounts(line.text)) for line in lines]
    total = sum(len(line.text) for line in lines)
    actions = [_shown(line) for line in lines if line.role == "user" and line.text.strip()]
    results = [_shown(line) for line in lines if line.role != "user" and line.text.strip()]
    parts = [f"[Summary of {len(lines)} messages]"]
    parts += [f"Actions: {' | '.join(actions[-BATCH_LINES:])}"] if actions else []
    parts += [f"Results: {' | '.join(results[-BATCH_LINES:])}"] if results else []
    text = "\n".join(parts)
    data = dict.fromkeys(fact for line in lines for fact in facts_in(line.text))
    facts = _fitting(data, text, room=total - 1 - len(text) - len("\nKey facts: "))
    return f"{text}\nKey facts: {', '.join(facts)}" if facts else text


def without_accounts(text: str) -> str:
    """Return a text without card numbers and IBANs (ISO 13616), which no compressed form repeats."""
    for number in sorted({text[start:end] for start, end in card_numbers(text)}, key=len, reverse=True):
        text = text.replace(number, "[card number]")
    return _IBAN.sub(_without_iban, text)


def _without_iban(match: re.Match[str]) -> str:
    """Return a match without its IBAN, which ends before a word that does not belong to it."""
    words = match[0].split()
    for count in range(len(words), 0, -1):
        code = "".join(words[:count]).upper()
        if len(code) >= _SHORTEST_IBAN and int("".join(str(int(each, 36)) for each in code[4:] + code[:4])) % 97 == 1:
            return " ".join(["[IBAN]", *words[count:]])
    return match[0]


def _kept_lines(text: str) -> list[str]:
    """Return the first and the last line, each cut to 200 characters; for one long line, its beginning and end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    first = cut(lines[0], SHORT)
    if len(lines) > 1:
        return [first, f"... {cut(lines[-1], SHORT)}"]
    if len(lines[0]) > 2 * SHORT:
        return [first, f"... {_ending(lines[0])}"]
    return [first]


def cut(text: str, width: int) -> str:
    """Return the first `width` characters of `text`, never a part of a secret's placeholder."""
    for match in SECRET.finditer(text):
        if match.start() < width < match.end():
            return text[: match.start()].rstrip()
    return text[:width].rstrip()


def _ending(line: str) -> str:
    """Return the last whole words of a long line."""
    start = len(line) - SHORT
    for match in SECRET.finditer(line):
        if match.start() < start < match.end():
            start = match.end()
    words = line[start:]
    return words.partition(" ")[2].strip() or words.strip()


def _fitting(facts: Iterable[str], text: str, *, room: int) -> list[str]:
    """Return the facts that a text does not contain, as many as fit into `room` characters."""
    fitting: list[str] = []
    for fact in facts:
        if len(fact) <= room and not visible(fact, text):
            room -= len(fact) + 2
            fitting.append(fact)
    return fitting


def visible(fact: str, text: str) -> bool:
    """Return whether a text contains a fact as a whole token: 123 is not visible in 91234."""
    start = text.find(fact)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(fact) : start + len(fact) + 1]
        if not (before.isalnum() and fact[0].isalnum()) and not (after.isalnum() and fact[-1].isalnum()):
            return True
        start = text.find(fact, start + 1)
    return False


def _shown(line: Line) -> str:
    speaker = line.speaker or line.role
    words = " ".join(line.text.split())
    return f"{speaker[:1].upper()}{speaker[1:]}: {cut(words, BATCH_WIDTH)}"


# ---- key facts ------------------------------------------------------------------------------------------------------

#: The shape of an IBAN: country, two check digits, and groups of up to 30 characters.
_IBAN: Final = re.compile(
    r"(?i)(?<![A-Z0-9])[A-Z]{2}[0-9]{2}(?:[ \u00a0]?[A-Z0-9]{4}){2,7}(?:[ \u00a0]?[A-Z0-9]{1,3})?(?![A-Z0-9])"
)
_SHORTEST_IBAN: Final = 15
#: The placeholder of a secret.
SECRET: Final = Expression(r"\[\[secret:[^\]]*\]\]")
_DIGIT = Expression(r"\d")
#: A pattern of facts, strings of which each fact contains one (any case), and whether each fact has a digit.
_Kind = tuple[Expression, tuple[str, ...], bool]


@cache
def _kinds() -> tuple[_Kind, ...]:
    """Load the kinds of facts (`facts.toml`)."""
    tables = tomllib.loads(files(__package__).joinpath("facts.toml").read_text("utf-8"))
    return tuple(
        (
            Expression(each["pattern"].replace("<<month>>", tables["month"])),
            tuple(each.get("signs", ())),
            each.get("digits", False),
        )
        for each in tables["facts"]
    )


def facts_in(text: str) -> list[str]:
    """Return the unique facts of `text`, ordered by first occurrence, without facts that lie inside a longer one."""
    hidden = SECRET.sub(lambda match: "\0" * len(match[0]), text)
    folded, digits = hidden.casefold(), _DIGIT.search(hidden) is not None
    taken = bytearray(len(hidden))
    results: list[tuple[int, str]] = []
    for pattern, signs, has_digit in _kinds():
        if (has_digit and not digits) or (signs and not any(map(folded.__contains__, signs))):
            continue
        for match in pattern.finditer(hidden):
            start, end = match.span()
            if taken[start] or taken[end - 1]:
                continue
            taken[start:end] = b"\1" * (end - start)
            results.append((start, match[0].split("\0")[0].rstrip(" .,;:!?)")))
    return list(dict.fromkeys(fact for _, fact in sorted(results) if fact))
