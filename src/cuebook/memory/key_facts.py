"""Find key facts, which a shorter form of a text must keep verbatim. A pattern runs only if a cheap check finds its
sign.
"""

from typing import Final, NamedTuple

from cuebook.records.expression import Expression

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
