"""What is suspicious about a text by itself: secrets, phrases of injections, characters that are not what they seem.

Every search is linear. Places are offsets of characters; a message never shows a secret.
"""

import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from cuebook.records.credentials import spans
from cuebook.records.expression import Expression, lowered

#: Unseen characters that turn the reading order of what follows: the text a person reads is another than the model's.
_BIDI = Expression("[\u202a-\u202e\u2066-\u2069]")
#: Unseen characters: controls, soft hyphen, zero widths, fillers, ASCII's tag twins, runs of variation selectors.
_HIDDEN = Expression(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u2060-\u2064\u206a-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]|[\ufe00-\ufe0f]{2}"
    # Scripts and emoji need the joiners and marks of direction; Latin words do not.
    "|(?<=[A-Za-z])[\u061c\u200c-\u200f](?=[A-Za-z])"
)
#: Letters of Cyrillic and Greek that look like Latin ones (Unicode TR 39, confusables), beside a Latin letter.
_TWINS = "аеорсухіјѕԁһԛѡАВЕКМНОРСТХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧνορ"
_CONFUSABLE = Expression(rf"[A-Za-z][{_TWINS}]|[{_TWINS}][A-Za-z]")
_WORD = Expression(r"\w{1,80}")

_ALL = r"(?:(?:all|any|every|each|of|the|your|my|our|these|those|this|that)\s{1,20}){0,5}"
_OLD = r"(?:previous|prior|above|earlier|preceding|former|existing|original|system|foregoing)"
_ORDERS = r"(?:instructions?|prompts?|rules?|messages?|directions?|guidelines?|commands?|orders?|constraints?|context)"
#: Phrases known from injections, in lower case. Sources: OWASP LLM01 and the corpora it names; seen in five languages.
_PHRASES: Final = (
    Expression(
        rf"\b(?:ignore|disregard|forget|override|bypass|overrule)\s{{1,20}}{_ALL}{_OLD}\s{{1,20}}(?:\w{{1,20}}\s){{0,2}}"
        rf"{_ORDERS}"
    ),
    Expression(
        rf"\b(?:ignore|disregard|forget)\s{{1,20}}(?:all|everything|any)\s{{1,20}}(?:{_ORDERS}|you|above|before)"
    ),
    Expression(r"\byou\s{1,20}are\s{1,20}now\b"),
    Expression(r"\bfrom\s{1,20}now\s{1,20}on,?\s{1,20}you\b"),
    Expression(r"\b(?:do\s{1,20}anything\s{1,20}now|developer\s{1,20}mode|jailbreak|god\s{1,20}mode)\b"),
    Expression(
        r"\b(?:reveal|print|repeat|show|output|leak)\s{1,20}(?:me\s{1,20})?(?:your|the)\s{1,20}"
        r"(?:full\s{1,20}|entire\s{1,20})?(?:system|initial|hidden|secret|developer)\s{1,20}(?:prompt|instructions?|message)"
    ),
    Expression(r"\b(?:do\s{1,20}not|don'?t|never)\s{1,20}(?:tell|inform|alert|notify)\s{1,20}the\s{1,20}user\b"),
    Expression(r"\bwithout\s{1,20}(?:telling|informing|notifying)\s{1,20}the\s{1,20}user\b"),
    Expression(r"\bignorier\w{0,3}\s{1,20}(?:alle\s{1,20})?(?:die\s{1,20})?(?:vorherigen|bisherigen|obigen)\b"),
    Expression(r"\bignore[zr]?\s{1,20}(?:toutes\s{1,20})?les\s{1,20}(?:instructions|consignes)\b"),
    Expression(r"\bignor[ae]\s{1,20}(?:todas\s{1,20})?(?:las|tus)\s{1,20}(?:instrucciones|reglas)\b"),
    Expression(r"игнорируй\w{0,2}\s{1,20}(?:все\s{1,20})?(?:предыдущие|прошлые)"),
    Expression(
        "(?:忽略|无视|忽視)[^。\n]{0,8}(?:指令|指示|提示|规则)|(?:以前|これまで|上記)の指示を(?:全て|すべて)?無視"
    ),
    Expression(
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|>|\[/?inst\]|<</?sys>>"
    ),
    Expression(r"!\[[^\]\n]{0,200}\]\(https?://[^)\s]{0,500}?(?:\$|\{\{)"),  # an image that carries a value away
)


class Spot(NamedTuple):
    """Something in a text: the rule it breaks, where, and what it is."""

    rule: str
    start: int
    message: str


def spots(text: str) -> Iterator[Spot]:
    """Give what is suspicious about a text; of a kind, only the first is told."""
    for start, _, family in spans(text)[:1]:
        yield Spot(
            "secret", start, f"holds a secret ({family.replace('_', ' ')}); give it as a parameter, or not at all"
        )
    yield from _phrases(text)
    if text.isascii() and text.isprintable():
        return
    yield from _characters(text)


def _phrases(text: str) -> Iterator[Spot]:
    plain = _folded(text)
    found = [match for phrase in _PHRASES if (match := phrase.search(plain))]
    if found:
        first = min(found, key=lambda match: match.start())
        shown = " ".join(text[first.start() : first.end()].split())[:60]
        yield Spot(
            "injection", first.start(), f"says {shown!r}, as injections do; a rule against it is better said otherwise"
        )


def _characters(text: str) -> Iterator[Spot]:
    for rule, pattern, what in (
        ("bidi", _BIDI, "which turns the order in which people read"),
        ("hidden", _HIDDEN, "which nobody sees"),
    ):
        if match := pattern.search(text):
            char = match.group()[0]
            name = unicodedata.name(char, "a control character")
            yield Spot(rule, match.start(), f"holds U+{ord(char):04X} ({name}), {what}; remove it")
    twin = _CONFUSABLE.search(text)
    if twin:
        start = next(
            word.start() for word in _WORD.finditer(text, max(0, twin.start() - 80)) if word.end() > twin.start()
        )
        shown = text[start : twin.end() + 10].split(maxsplit=1)[0]
        yield Spot("confusable", twin.start(), f"{shown!a} mixes scripts with letters that look alike; write it in one")


def _folded(text: str) -> str:
    """Return a text in lower case and in plain letters, place for place."""
    if text.isascii():
        return text.lower()
    return lowered("".join(map(_plain_letter, text)))


def _plain_letter(char: str) -> str:
    plain = char if char < "\u2000" else unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 else char
