"""Compress a long post without a model: keep its first line, its last line, and its key facts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from cuebook.records.expression import Expression
from cuebook.records.memory import Line

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
    lines = _kept_lines(text)
    if role:
        lines[0] = f"[{role}] {lines[0]}"
    content = "\n".join(lines)
    facts = _fitting(facts_in(text), content, room=len(text) - 1 - len(content) - len("\n[preserved: ]"))
    result = f"{content}\n[preserved: {', '.join(facts)}]" if facts else content
    return result if len(result) < len(text) else None


def compress_batch(lines: Sequence[Line]) -> str:
    """Return BrowserOS's `[Summary of N messages]` of posts, oldest first: the requests, the results, and all facts."""
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
    """Return the facts that `shown` does not contain, as many as fit into `room` characters."""
    return list(_fill((fact for fact in facts if not _visible(fact, text)), room=room))


def _fill(facts: Iterable[str], *, room: int) -> Iterator[str]:
    for fact in facts:
        cost = len(fact) + 2
        if cost - 2 <= room:
            room -= cost
            yield fact


def _visible(fact: str, text: str) -> bool:
    """Return whether `shown` contains `fact` as a whole token: 123 is not visible in 91234."""
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

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MONTHS = tuple("jan feb mar apr may jun jul aug sep oct nov dec".split())
#: The placeholder of a secret.
SECRET: Final = Expression(r"\[\[secret:[^\]]*\]\]")
_DIGIT = Expression(r"\d")


class _Kind(NamedTuple):
    """A kind of fact: its pattern, strings of which each fact contains one (any case), and whether it has a digit."""

    pattern: str
    signs: tuple[str, ...] = ()
    digits: bool = False


#: BrowserOS's eight patterns in its order, then ours: dates, money, file paths, quoted identifiers. Every quantifier is
#: bounded or followed by what it cannot contain, so a hostile text of any length takes linear time. If a pattern begins
#: with a digit or a quote, its lookbehind comes after that character: the engine then jumps from one such character to
#: the next, four to ten times faster.
_KINDS: Final = tuple(
    (Expression(kind.pattern), kind)
    for kind in (
        _Kind(r"(?i:\bhttps?://[^\s<>\"'`\])}]{1,2000})", ("://",)),
        _Kind(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}", ("@",)),
        _Kind(r"(?i:\b\w{0,40}(?:error|exception)\b[^\n]{0,200})", ("error", "except")),
        _Kind(
            r"(?i:\b(?:css |xpath )?selector['\"]?\s{0,3}[:=]?\s{0,3}"
            r"(?:'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`))",
            ("selector",),
        ),
        _Kind(r"(?i:\bclass(?:Name)?=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'))", ("class=", "classname=")),
        _Kind(r"(?i:\bid=(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'))", ("d=",)),
        _Kind(r"\d(?<![\d.]\d)\d{0,2}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\d.]\d)", digits=True),
        _Kind(
            r"\d(?<!\w\d)(?:\d{3}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?|\d?[./]\d{1,2}[./]\d{2,4})\b",
            digits=True,
        ),
        _Kind(
            rf"(?i:\b(?=[\djfmasond])(?:\d{{1,2}}(?:st|nd|rd|th)? (?:of )?)?{_MONTH} \d{{1,4}}(?:st|nd|rd|th)?\b"
            rf"(?:,? \d{{4}}\b)?)",
            _MONTHS,
            digits=True,
        ),
        _Kind(rf"(?i:\d(?<!\w\d)\d?(?:st|nd|rd|th)? (?:of )?{_MONTH}(?!\w))", _MONTHS, digits=True),
        _Kind(
            r"(?i:[$€£¥]\s?\d[\d.,]{0,20}(?:k|m|bn)?\b"
            r"|\b\d[\d.,]{0,20}\s?(?:[€£¥]|(?:usd|eur|gbp|chf|dollars?|euros?|pounds?)\b))",
            ("$", "€", "£", "¥", "usd", "eur", "gbp", "chf", "dollar", "pound"),
            digits=True,
        ),
        _Kind(r"[A-Za-z]:\\(?<![\w\\][A-Za-z]:\\)[\w.@+ -]{1,100}(?:\\[\w.@+ -]{1,100}){0,29}", (":\\",)),
        _Kind(r"(?=[~./])(?<![\w/.:])(?:~|\.{1,2})?(?:/[\w.@+-]{1,100}){2,30}", ("/",)),
        _Kind(
            r"`[^`\n]{2,80}`|'(?<!\w')[A-Za-z_][\w.:-]{1,60}'(?!\w)|\"(?<!\w\")[A-Za-z_][\w.:-]{1,60}\"(?!\w)",
        ),
        _Kind(r"\d(?:(?<![\w.,]\d)\d{0,2}(?:,\d{3}){1,6}(?![\w,])|(?<!\w\d)\d{2,39}(?!\w))", digits=True),
    )
)


def facts_in(text: str) -> list[str]:
    """Return the unique facts of `text`, ordered by first occurrence, without facts that lie inside a longer one."""
    hidden = SECRET.sub(lambda match: "\0" * len(match[0]), text)
    folded, digits = hidden.casefold(), _DIGIT.search(hidden) is not None
    taken = bytearray(len(hidden))
    results: list[tuple[int, str]] = []
    for pattern, kind in _KINDS:
        if (kind.digits and not digits) or (kind.signs and not any(map(folded.__contains__, kind.signs))):
            continue
        for match in pattern.finditer(hidden):
            start, end = match.span()
            if taken[start] or taken[end - 1]:
                continue
            taken[start:end] = b"\1" * (end - start)
            results.append((start, match[0].split("\0")[0].rstrip(" .,;:!?)")))
    return list(dict.fromkeys(fact for _, fact in sorted(results) if fact))
