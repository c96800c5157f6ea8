"""Redact secrets: replace each by a typed token with a keyed fingerprint before anything is stored.

Only high-precision families of credentials are detected: API keys of a known format, private keys, passwords in URLs,
values after a secret word, payment cards. The search is linear: a clean text costs a few dozen substring searches, a
pattern runs only where its hint was found, and its repetitions are bounded or consumed. Tokens that replaced a secret
are opaque. Uncertain secrets (e-mail addresses, phone numbers, high-entropy strings) are never replaced.
"""

import hmac
import json
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from cuebook.errors import InvalidInput
from cuebook.records.expression import Expression

#: Characters `start` to `end` hold a secret of `family`.
Span = tuple[int, int, str]

TOKEN_START = "[[secret:"  # noqa: S105  prefix of a token that replaces a secret
TOKEN = Expression(r"\[\[secret:[a-z_]{1,32}#[0-9a-f]{16}\]\]")


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("secrets.toml").read_text("utf-8"))


def _filled(pattern: str) -> str:
    return _PART.sub(lambda part: str(_tables()[part[1]]), pattern)


def _pattern(name: str, flags: re.RegexFlag = re.NOFLAG) -> Expression:
    return Expression(lambda: _filled(_tables()[name]), flags)


@cache
def _key_formats() -> tuple[tuple[tuple[str, ...], str, Expression, int], ...]:
    """Return the keys of a known format: hints (one must occur), the family, the format, the least number of digits."""
    return tuple(
        (tuple(each["hints"]), each["family"], Expression(_filled(each["pattern"])), 3 * each.get("random", False))
        for each in _tables()["shapes"]
    )


@cache
def _hints() -> tuple[str, ...]:
    return tuple(hint for hints, *_ in _key_formats() for hint in hints)


@cache
def _secret_words() -> tuple[tuple[str, str, Expression | None], ...]:
    """Return the words that announce a secret: the word, its family, and what must be right before it, if anything."""
    return tuple(
        (word, each["family"], Expression(each["before"]) if "before" in each else None)
        for each in _tables()["words"]
        for word in each["words"]
    )


@cache
def _announcing() -> tuple[str, ...]:
    return tuple(word for word, *_ in _secret_words())


@cache
def _no_secrets() -> frozenset[str]:
    return frozenset(_tables()["no_secrets"].split())


_PART = re.compile(r"<<(\w+)>>")
_KEY_WORD = Expression(r"[!-~]{15}")  # each key of a known format has as many characters without a space
_PEM = Expression(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\+[nrt]){0,16}(?=[A-Za-z0-9+/=]{16}|[A-Za-z-]{4,20}:)"
)
_PEM_END = Expression(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|(?=\[\[secret:)")
_URL = Expression(r"://[^\s/?#@:\"'<>\[\]]{0,128}:((?:(?!\[\[secret:)[^\s/?#\"'<>]){1,256})@")

# ---------------------------------------------------------------- values after a secret word

_KEY_SUFFIX = Expression(lambda: _filled("<<suffix>>$"))
_LINK = _pattern("link", re.VERBOSE | re.IGNORECASE)
_FLAG = Expression(r"--[a-z0-9_-]{0,40}$")  # `--password VALUE` on a command line
_FLAG_LINK = Expression(r"[ \t]{1,3}(?!-)")
#: A value is quoted (with an optional string prefix), or ends at a space or a delimiter.
_OPEN = Expression(lambda: _filled(r"[bfru]{0,2}(\\{0,8})([\"'`“‘«])<<scheme>>"), re.IGNORECASE)
_SCHEMED = _pattern("scheme", re.IGNORECASE)
_CLOSERS = {"“": "”", "‘": "’", "«": "»"}
_BARE = _pattern("bare", re.VERBOSE)
_LONGEST = 4096
_WORDED = frozenset({"password", "secret"})  # families whose values people choose; other values are machine-generated
_KEYLIKE = Expression(r"[0-9].{5}|.{5}[0-9]|^[A-Za-z]{16,}$", re.DOTALL)
_PIN = Expression(r"[0-9]{3,12}")
_PLACEHOLDER = _pattern("placeholder", re.VERBOSE | re.IGNORECASE)
#: The text after a plain word that is a whole value: after `=`, after other signs, and in both cases.
_SETTING_END = Expression(r"[ \t]*(?:[\r\n]|\Z)|[;&]|\s+[\w.-]{1,40}=|[\"'`]")
_CLAUSE_END = Expression(r"[ \t]*(?:[\r\n]|\Z)|[.,;](?:\s|\Z)|[)}\]\"'`<]|\\+[nrt\"']")
_LINE_END = Expression(r"[ \t]*(?:[\r\n]|\Z)")
#: Code instead of a value: a call, a subscript, a parenthesis.
_EXPRESSION = Expression(r"[A-Za-z_][\w.:]{0,80}[(\[{]|\(")
#: A full or partial mask, or a blank to fill in.
_MASKED = Expression(r"[*•●·.#xX_-]+|\W+|.*(?:\*{3}|[xX]{4}|\.{3}|…|•{3}|\{[A-Za-z_][^{}]*\}|%s|%\().*", re.DOTALL)
_REFERENCE = _pattern("reference", re.IGNORECASE)
_CONSTANT = Expression(r"[A-Z]+(?:_[A-Z]+)+")
_PROSE = _pattern("prose", re.IGNORECASE)

# ---------------------------------------------------------------- payment cards

#: A number as printed on cards: in one group, in 4-4-4-4 with up to three more (group 2), in 4-6-5 or 4-6-4. Numbers
#: may overlap: the match is the first digit.
_CARD_AT = Expression(
    r"[2-6](?<![0-9][2-6])"
    r"(?=([0-9]{12,18}(?![0-9])|[0-9]{3}(?:[ -][0-9]{4}){3}(?![0-9])|[0-9]{3}[ -][0-9]{6}[ -][0-9]{4,5}(?![0-9]))"
    r"([ -][0-9]{1,3}(?![0-9]))?)"
)
_CARD_LENGTHS = range(13, 20)
_DOUBLED = bytes.maketrans(b"0123456789", b"0246813579")
_CARD = _pattern("card", re.VERBOSE)


def spans(text: str) -> list[Span]:
    """Return all secrets, ordered and disjoint; overlapping secrets are merged under the more specific family."""
    cards = [(start, end, "card") for start, end in card_numbers(text) if _stands_alone(text, start, end)]
    if not cards and not _mentions(text):
        return []
    results = [*_shapes(text), *_private_keys(text), *_url_passwords(text), *cards, *_named(text)]
    if not results:
        return []
    rank: dict[str, int] = {"": -1}  # a token has priority: secrets that overlap it are ignored
    for _, _, family in results:
        rank.setdefault(family, len(rank))
    results += [(token.start(), token.end(), "") for token in TOKEN.finditer(text)]
    merged: list[Span] = []
    for start, end, family in sorted(results):
        if merged and start < merged[-1][1]:
            first, last, other = merged.pop()
            merged.append((first, max(end, last), min(family, other, key=rank.__getitem__)))
        else:
            merged.append((start, end, family))
    return [span for span in merged if span[2]]


def begun(text: str) -> int:
    """Return the start of a key of a known format that is cut off at the end of a text; the text's length if none."""
    word = len(text) - len(text.rsplit(maxsplit=1)[-1]) if text and not text[-1].isspace() else len(text)
    at = [text.find(hint, word) for hint in _hints()]
    return min((place for place in at if place >= 0 and not text[:place][-1:].isalnum()), default=len(text))


def hinted(text: str) -> bool:
    """Return whether `spans` could find anything, by a fast check."""
    return _mentions(text) or next(card_numbers(text), None) is not None


def _mentions(text: str) -> bool:
    """Return whether a text has a part of a secret that is no card."""
    lower = _lower(text)
    return (
        (_KEY_WORD.search(text) is not None and any(map(text.__contains__, _hints())))
        or any(map(lower.__contains__, _announcing()))
        or "PRIVATE KEY" in text
        or ("://" in text and "@" in text)
    )


def family_of(key: str) -> str:
    """Return the family of secrets that a field name announces ("db_password", "apiKey"), "" for none."""
    lower = _KEY_SUFFIX.sub("", _lower(key))
    for word, family, before in _secret_words():
        if lower.endswith(word) and (before is None or before.search(lower[: -len(word)])):
            return family
    return ""


def announced(value: str, family: str) -> tuple[int, int] | None:
    """Return the position of the secret in the value of an announced field; None for a placeholder or prose."""
    scheme = _SCHEMED.match(value)
    start = scheme.end() if scheme else 0
    return (start, len(value)) if TOKEN_START not in value and _may_be(value[start:], family) else None


def is_card(digits: str) -> bool:
    """Return whether a number is a payment card: issuer prefix, length and Luhn checksum (ISO/IEC 7812-1, annex B)."""
    if len(digits) not in _CARD_LENGTHS or not _CARD.fullmatch(digits):
        return False
    values = digits.encode()
    return (sum(values[-1::-2]) + sum(values[-2::-2].translate(_DOUBLED)) - len(values) * ord("0")) % 10 == 0


def _lower(text: str) -> str:
    """Return the text in lower case, at the same length: only dotted İ has a longer lower case."""
    return text.lower() if "İ" not in text else text.replace("İ", "i").lower()


def _shapes(text: str) -> Iterator[Span]:
    for hints, family, pattern, digits in _key_formats():
        for hint in hints:
            if hint in text:
                for match in pattern.finditer(text):
                    if not digits or sum(map(str.isdigit, match.group())) >= digits:
                        yield match.start(), match.end(), family
                break


def _private_keys(text: str) -> Iterator[Span]:
    """Find private keys, each up to its end line, or to the end of a truncated text."""
    at = 0
    while "PRIVATE KEY" in text and (begin := _PEM.search(text, at)):
        end = _PEM_END.search(text, begin.end())
        at = end.end() if end else len(text)
        yield begin.start(), at, "private_key"


def _url_passwords(text: str) -> Iterator[Span]:
    if "://" in text and "@" in text:
        for match in _URL.finditer(text):
            if not _is_no_secret(match[1]):
                yield match.start(1), match.end(1), "url_password"


def card_numbers(text: str) -> Iterator[tuple[int, int]]:
    """Find card numbers regardless of their neighbors: in JSON an escaped line break ends in a letter."""
    for first in _CARD_AT.finditer(text):
        start, end = first.start(), first.end(1)
        digits = text[start:end].replace(" ", "").replace("-", "")
        if is_card(digits):
            yield start, end
        if first[2] and len(digits) == end - start - 3 and is_card(digits + first[2][1:]):
            yield start, first.end(2)


def _stands_alone(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start] if start else "", text[end : end + 2]
    joined = _joins(before) or _joins(after[:1]) or before in {"_", "."} or after[:1] == "_"
    return not joined and not (after[:1] == "." and after[1:].isdigit())


def _joins(character: str) -> bool:
    """Return whether a letter or digit continues a number; scripts without capitals write numbers without a space."""
    return character.isalnum() and unicodedata.category(character) != "Lo"


def _named(text: str) -> Iterator[Span]:
    """Find the values after secret words."""
    lower = _lower(text)
    for word, family, before in _secret_words():
        at = lower.find(word)
        while at >= 0:
            end = at + len(word)
            if (before is None or before.search(lower[max(0, at - 16) : at])) and not _is_part(text, at, end):
                link = _LINK.match(text, end)
                if link is None and _FLAG.search(lower[max(0, at - 48) : at]):
                    link = _FLAG_LINK.match(text, end)
                span = _value(text, link, family) if link else None
                if span:
                    yield *span, family
                    end = max(end, span[1])
            at = lower.find(word, end)


def _is_part(text: str, at: int, end: int) -> bool:
    """Return whether a word is part of a name: of a CSS selector (`#password`), an ARN (`:secret:`) or a token."""
    before = text[at - 1] if at else ""
    return before == "#" or (before in {":", "["} and text.startswith(":", end))


def _value(text: str, link: re.Match[str], family: str) -> tuple[int, int] | None:
    """Return the position of the value after a link, or None if it is no secret."""
    at, groups = link.end(), link.groupdict()
    if _PLACEHOLDER.match(text, at) or _EXPRESSION.match(text, at):
        return None
    opened = _OPEN.match(text, at)
    end = _closing(text, opened) if opened else -1
    if opened and end >= 0:
        value = text[opened.end() : end]
        secret = _may_be(value, family) and (not groups.get("gap") or _is_random(value))
        return (opened.end(), end) if secret else None
    bare = _BARE.match(text, opened.end() if opened else at)
    value = bare.group().rstrip(".,;:)]}?*_") if bare else ""
    if (
        bare is None
        or text.startswith(TOKEN_START, bare.end())
        or not _may_be(value, family)
        or _REFERENCE.fullmatch(value)
    ):
        return None
    end = bare.start() + len(value)
    if family == "pin":
        trusted = True
    elif groups.get("verb"):
        trusted = len(value) >= 6 and (_is_random(value) or _is_worded(text, end, family=family, value=value))
    else:
        trusted = _is_random(value) or (len(value) >= 4 and _ends(text, end, link=link.group(), value=value))
    return (bare.start(), end) if trusted else None


def _closing(text: str, opened: re.Match[str]) -> int:
    """Return the end of a quoted value, -1 if unclosed; the quotes may be escaped to any depth."""
    depth, quote, at = len(opened[1]), _CLOSERS.get(opened[2], opened[2]), opened.end()
    limit = min(at + _LONGEST, len(text))
    for stop in ("\n", TOKEN_START):
        found = text.find(stop, at, limit)
        limit = limit if found < 0 else found
    while (at := text.find(quote, at, limit)) >= 0:
        body = text[opened.end() : at]
        slashes = len(body) - len(body.rstrip("\\"))
        if slashes % (2 * (depth + 1)) == depth:
            return at - depth
        at += 1
    return -1


def _may_be(value: str, family: str) -> bool:
    """Return whether an announced value may be a secret of the family: not a placeholder, name or prose."""
    if family == "pin":
        return _PIN.fullmatch(value) is not None
    if len(value) < 3 or _is_no_secret(value) or (" " in value and _PROSE.search(value)):
        return False
    return family in _WORDED or _KEYLIKE.search(value) is not None


def _is_no_secret(value: str) -> bool:
    return bool(
        value.casefold() in _no_secrets()
        or _PLACEHOLDER.match(value)
        or _MASKED.fullmatch(value)
        or _CONSTANT.fullmatch(value)
    )


def _is_random(value: str) -> bool:
    """Return whether a word has digits, symbols or inner capitals, like a password and unlike prose."""
    inner = any(map(str.isupper, value[1:])) and any(map(str.islower, value))
    return inner or any(char.isdigit() or not (char.isalnum() or char in "-–—'’._,/:") for char in value)


def _is_worded(text: str, end: int, *, family: str, value: str) -> bool:
    """Return whether words after a bare verb ("is") are a password.

    They are if a capitalized word ends a clause, or if three words are joined.
    """
    capital = value.isalpha() and value.istitle() and _CLAUSE_END.match(text, end)
    return family == "password" and bool(capital or value.count("-") >= 2)


def _ends(text: str, end: int, *, link: str, value: str) -> bool:
    """Return whether a plain word is the whole value: its line or clause ends there, and it is not a name in code."""
    after = text[end : end + 48]
    if "_" in value and (" =" in link or not _LINE_END.match(after)):
        return False
    return bool((_CLAUSE_END if "=" not in link else _SETTING_END).match(after))


# ---------------------------------------------------------------- replacement

_LITERAL = Expression(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"|-?[0-9][0-9.eE+-]*+', re.DOTALL)
_COLON = Expression(r"[ \t\r\n]*:[ \t\r\n]*")
#: A character of a JSON string in its escaped form.
_CHARACTER = Expression(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
_DATA_MARK, _DATA_LENGTH = ";base64,", 1_000
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_HIDING = ("\\u", "\\/")  # escapes that can hide a hint in the raw document
_SHORTEST = 6  # minimum characters of a text with a named secret: 密码=123
_NUMBER_FAMILIES = frozenset({"pin", "password"})


#: The start and end of a secret, its family, its value, and whether its token needs quotes of its own.
_Secret = tuple[int, int, str, str, bool]


class Redactor:
    """Replaces secrets by `[[secret:family#fingerprint]]`; under one key equal values have equal fingerprints."""

    def __init__(self, key: bytes) -> None:
        """`key` is the fingerprint key, never stored beside the tokens. Raises InvalidInput if it is empty."""
        if not key:
            raise InvalidInput("The fingerprint key is empty. Use 32 random bytes.")
        self._key = key

    def text(self, value: str) -> str:
        """Return a text with its secrets replaced; without secrets, the same object."""
        secrets = [(start, end, family, value[start:end], False) for start, end, family in spans(value)]
        return self._replaced(value, secrets) if secrets else value

    def json(self, document: bytes) -> bytes:
        """Replace the secrets in every key, string and number of a JSON document; all other bytes are unchanged.

        Without secrets, return the same object. A value is also judged by its key, and a number that is a secret
        becomes a string. Invalid JSON is treated as text.
        """
        text = document.decode("utf-8", "surrogateescape")
        short = _without_data(text, "")
        if not any(escape in short for escape in _HIDING) and not hinted(short):
            return document
        shown = _without_data(text, " ")
        try:
            json.loads(shown, parse_int=str)  # int() refuses more than 4300 digits
        except (ValueError, RecursionError):
            clean = self.text(text)
        else:
            clean = self._replaced(text, _json_secrets(shown))
        return document if clean is text else clean.encode("utf-8", "surrogateescape")

    def fingerprint(self, value: str, family: str = "") -> str:
        """Return 16 hex digits of HMAC-SHA256 over a card's digits, a key without whitespace, or a trimmed text."""
        if family == "card":
            value = re.sub(r"[ -]", "", value)
        elif family == "private_key":
            value = re.sub(r"\s|\\+[nrt]", "", value)
        return hmac.digest(self._key, value.strip().encode("utf-8", "surrogatepass"), "sha256")[:8].hex()

    def _replaced(self, text: str, secrets: Iterable[_Secret]) -> str:
        """Replace secrets, which are ordered and disjoint; without any, return the same object."""
        pieces: list[str] = []
        done = 0
        for start, end, family, value, quoted in secrets:
            token = f"{TOKEN_START}{family}#{self.fingerprint(value, family)}]]"
            pieces += (text[done:start], f'"{token}"' if quoted else token)
            done = end
        return "".join((*pieces, text[done:])) if pieces else text


def _without_data(text: str, blank: str) -> str:
    """Return a JSON text with blanks for the base64 data of images and files, in which keys occur by chance."""
    pieces: list[str] = []
    at = 0
    while (begin := text.find(_DATA_MARK, at)) >= 0:
        begin += len(_DATA_MARK)
        end = max(begin, text.find('"', begin))
        data = text[begin:end]
        is_data = len(data) >= _DATA_LENGTH and data.isascii() and not data.encode().translate(None, _BASE64)
        pieces += (text[at:begin], blank * len(data) if is_data else data)
        at = end
    return "".join((*pieces, text[at:])) if pieces else text


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
                yield literal.start(), literal.end(), family, number, True
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
            yield base + places[start], base + places[end], kind, value[start:end], False
