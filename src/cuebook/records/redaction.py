"""Redact secrets: replace each by a typed token with a keyed fingerprint before anything is stored.

`credentials` detects the secrets. Uncertain ones (e-mail addresses, phone numbers, high-entropy strings) are never
replaced, only reported by `flags`.
"""

import hmac
import json
import re
from collections.abc import Iterator

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.records.credentials import TOKEN_START, announced, family_of, hinted, is_card, spans
from cuebook.records.expression import Expression

_FLAGS: tuple[tuple[str, Expression], ...] = (
    ("email", Expression(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")),
    (
        "phone",
        Expression(
            r"(?<![\w.+-])(?:(?:\+|00)[1-9](?:[ ()./-]{0,2}[0-9]){7,14}|\(?[0-9]{3}\)?[ .-][0-9]{3}[ .-][0-9]{4})(?!\w)"
        ),
    ),
    (
        "high_entropy",
        Expression(r"(?<![\w+/=-])(?=[\w+/=-]{0,64}[0-9])(?=[\w+/=-]{0,64}[a-z])(?=[\w+/=-]{0,64}[A-Z])[\w+/=-]{32}"),
    ),
)
_LITERAL = Expression(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"|-?[0-9][0-9.eE+-]*+', re.DOTALL)
_COLON = Expression(r"[ \t\r\n]*:[ \t\r\n]*")
#: A character of a JSON string in its escaped form.
_CHARACTER = Expression(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
_HIDING = ("\\u", "\\/")  # escapes that can hide a hint in the raw document
_SHORTEST = 6  # minimum characters of a text with a named secret: 密码=123
_NUMBER_FAMILIES = frozenset({"pin", "password"})


class SecretFinding(Struct, frozen=True):
    """A replaced secret: characters `start` to `end` of the original text, and its fingerprint."""

    family: str
    start: int
    end: int
    fingerprint: str


class _Secret(Struct, frozen=True):
    start: int
    end: int
    family: str
    value: str
    quoted: bool = False  # the token needs its own quotes


class Redactor:
    """Replaces secrets by `[[secret:family#fingerprint]]`; under one key equal values have equal fingerprints."""

    def __init__(self, key: bytes) -> None:
        """`key` is the fingerprint key, never stored beside the tokens. Raises InvalidInput if it is empty."""
        if not key:
            raise InvalidInput("The fingerprint key is empty. Use 32 random bytes.")
        self._key = key

    def text(self, value: str) -> tuple[str, tuple[SecretFinding, ...]]:
        """Replace a text's secrets; return it with the findings in order. Without secrets, return the same object."""
        secrets = [_Secret(start, end, family, value[start:end]) for start, end, family in spans(value)]
        return self._replaced(value, secrets) if secrets else (value, ())

    def json(self, document: bytes) -> tuple[bytes, tuple[SecretFinding, ...]]:
        """Replace the secrets in every key, string and number of a JSON document; all other bytes are unchanged.

        Without secrets, return the same object. Findings count characters of the decoded document. A value is also
        judged by its key, and a number that is a secret becomes a string. Invalid JSON is treated as text.
        """
        text = document.decode("utf-8", "surrogateescape")
        if not any(escape in text for escape in _HIDING) and not hinted(text):
            return document, ()
        try:
            json.loads(text, parse_int=str)  # int() refuses more than 4300 digits
        except (ValueError, RecursionError):
            clean, findings = self.text(text)
        else:
            clean, findings = self._replaced(text, list(_json_secrets(text)))
        return (clean.encode("utf-8", "surrogateescape"), findings) if findings else (document, ())

    def fingerprint(self, value: str, family: str = "") -> str:
        """Return 16 hex digits of HMAC-SHA256 over a card's digits, a key without whitespace, or a trimmed text."""
        if family == "card":
            value = re.sub(r"[ -]", "", value)
        elif family == "private_key":
            value = re.sub(r"\s|\\+[nrt]", "", value)
        return hmac.digest(self._key, value.strip().encode("utf-8", "surrogatepass"), "sha256")[:8].hex()

    def _replaced(self, text: str, secrets: list[_Secret]) -> tuple[str, tuple[SecretFinding, ...]]:
        """Replace secrets, which are ordered and disjoint."""
        pieces: list[str] = []
        findings: list[SecretFinding] = []
        done = 0
        for secret in secrets:
            mark = self.fingerprint(secret.value, secret.family)
            token = f"{TOKEN_START}{secret.family}#{mark}]]"
            pieces += (text[done : secret.start], f'"{token}"' if secret.quoted else token)
            findings.append(SecretFinding(secret.family, secret.start, secret.end, mark))
            done = secret.end
        return "".join((*pieces, text[done:])), tuple(findings)


def flags(text: str) -> tuple[str, ...]:
    """Return kinds of possible secrets that are not replaced: "email", "phone", "high_entropy", in this order."""
    return tuple(name for name, pattern in _FLAGS if pattern.search(text))


def _json_secrets(text: str) -> Iterator[_Secret]:
    """Find the secrets of a JSON document: in each literal, and in each value whose key names one."""
    value_at, name = -1, ""
    for literal in _LITERAL.finditer(text):
        family = name if literal.start() == value_at else ""
        if literal[1] is None:
            number = literal.group()
            if is_card(number):
                family = "card"
            if family == "card" or (family in _NUMBER_FAMILIES and announced(number, "pin")):
                yield _Secret(literal.start(), literal.end(), family, number, quoted=True)
        else:
            value = json.loads(literal.group()) if "\\" in literal[1] else literal[1]
            yield from _literal_secrets(literal, value, family)
            if colon := _COLON.match(text, literal.end()):
                value_at, name = colon.end(), family_of(value)


def _literal_secrets(literal: re.Match[str], value: str, family: str) -> Iterator[_Secret]:
    """Find the secrets of one string, at their positions in the document; `family` is the one that its key names."""
    results = spans(value) if len(value) >= _SHORTEST else []
    if family and (place := announced(value, family)):
        results = [(min(place[0], results[0][0]), place[1], results[0][2])] if results else [(*place, family)]
    if results:
        raw = literal[1]
        places = [*(one.start() for one in _CHARACTER.finditer(raw)), len(raw)]
        base = literal.start(1)
        for start, end, kind in results:
            yield _Secret(base + places[start], base + places[end], kind, value[start:end])
