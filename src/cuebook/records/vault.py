"""What a vault keeps of a post: what stood where a token stands now, and how it is put back (docs/design/010)."""

import json
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from cuebook.records.credentials import TOKEN

#: By token what it replaced, in the order in which it was found; the last stands for all behind it.
Values = Mapping[str, tuple[str, ...]]


class Secret(Struct, frozen=True):
    """What a token replaced in one post: nothing that is stored or shown."""

    token: str
    values: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Secret({self.token})"


class Sealed(Struct, frozen=True):
    """The same sealed, and the id of the key it was sealed with."""

    token: str
    body: bytes
    key: str


class Opened(Struct, frozen=True, kw_only=True):
    """What a conversation's posts had, by post id, and what its users said themselves."""

    posts: Mapping[str, Values] = {}
    said: Values = {}


class Census(Struct, frozen=True, kw_only=True):
    """How much a vault keeps: secrets (each once for its conversation), posts, conversations, secrets by family."""

    on: bool
    key: str  # the first digits of its key's id, empty where it never kept anything
    secrets: int
    posts: int
    conversations: int
    families: Mapping[str, int]
    unreadable: int | None  # rows that do not open; None where it is off


class Kept(Struct, frozen=True, kw_only=True):
    """What a vault keeps of one conversation, in numbers."""

    conversation: str
    user: str | None
    secrets: int
    posts: int


def collected(found: Iterable[tuple[str, str]]) -> tuple[Secret, ...]:
    """Give what was replaced in a post, by token; `found` is token and value in order."""
    values: dict[str, list[str]] = {}
    for token, value in found:
        values.setdefault(token, []).append(value)
    return tuple(
        Secret(token, tuple(each[:1] if len(set(each)) == 1 else each)) for token, each in sorted(values.items())
    )


def values_of(secrets: Iterable[Secret]) -> Values:
    """Give what secrets put back."""
    return {secret.token: secret.values for secret in secrets}


def put_back(text: str, values: Values) -> str:
    """Put back what tokens of a text replaced. Values are not looked into again."""
    return _put_back(text, values, json_text=False)


def put_back_json(document: bytes, values: Values) -> bytes:
    """Put back what tokens in the strings of a JSON document replaced."""
    return _put_back(document.decode(), values, json_text=True).encode()


def _put_back(text: str, values: Values, *, json_text: bool) -> str:
    pieces: list[str] = []
    done, met = 0, dict.fromkeys(values, 0)
    for token in TOKEN.finditer(text):
        name = token.group()
        if name not in values:
            continue
        each = values[name]
        value = each[min(met[name], len(each) - 1)]
        met[name] += 1
        pieces += (text[done : token.start()], _spelled(value) if json_text else value)
        done = token.end()
    return "".join((*pieces, text[done:]))


def _spelled(value: str) -> str:
    """Spell a value as it stands in a JSON string."""
    try:
        return msgspec.json.encode(value)[1:-1].decode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON spells as an escape only
        return json.dumps(value)[1:-1]
