"""Check the text of JSON bodies: UTF-8, bounded depth and number of posts, no NUL, no lone surrogates.

A server checks large bodies in its child process, so this module imports little.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from cuebook.config import ServerConfig
from cuebook.errors import InvalidInput, TooLarge
from cuebook.records.expression import nests_deeper

#: Maximum nesting depth of a body. A chat request with tools needs about 12; deeper ones risk the stack.
DEPTH = 64

#: Matches the escape of a NUL or of a lone surrogate. It is wrong only beside an escaped backslash.
_SUSPECT = re.compile(
    rb"\\u(?:0000|[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|[c-fC-F]..(?<!\\u[dD][89abAB]..\\u[dD]...)))", re.DOTALL
)
_BACKSLASH = rb"\\u"  # an escaped backslash, whose second half may look like the start of an escape


def check_json(body: bytes) -> None:
    """Check a body's encoding, depth and characters. Raises InvalidInput."""
    if not body:
        msg = "body: empty. Send a JSON object."
        raise InvalidInput(msg, where="body")
    try:
        _ = body.isascii() or body.decode()
    except UnicodeDecodeError as error:
        msg = f"body: not UTF-8 (byte {error.start}). Send JSON as UTF-8."
        raise InvalidInput(msg, where="body") from None
    if nests_deeper(body, DEPTH):
        msg = f"body: nested deeper than {DEPTH} levels. Flatten it."
        raise InvalidInput(msg, where="body")
    if _SUSPECT.search(body) or _BACKSLASH in body:
        _check_texts(body)


def _check_texts(body: bytes) -> None:
    """Check the characters of each text. Raises InvalidInput that names the field."""
    try:
        document = json.loads(body)
    except ValueError as error:
        msg = f"body: not valid JSON ({error}). Send a JSON document."
        raise InvalidInput(msg, where="body") from None
    for where, text in _texts(document, ""):
        if what := "a NUL character" if "\x00" in text else _surrogate(text):
            msg = f"{where or 'body'}: contains {what}. Send valid Unicode without it."
            raise InvalidInput(msg, where=where or "body")


def _surrogate(text: str) -> str:
    if text.isprintable():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a lone surrogate"
    return ""


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for n, each in enumerate(value):
            yield from _texts(each, f"{where}[{n}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            shown = key.encode("unicode_escape").decode() if not key.isprintable() else key
            below = f"{where}.{shown}" if where else shown
            yield below, key
            yield from _texts(each, below)


class _Parts(Struct):
    """A post or message: the values in it that are counted."""

    attachments: list[Raw] | str | None = None
    parts: list[Raw] | str | None = None
    content: list[Raw] | str | None = None


class _Amount(Struct):
    """A body: the values in it that are counted."""

    posts: list[_Parts] = []
    messages: list[_Parts] = []
    attachments: list[Raw] = []


_amount = msgspec.json.Decoder(_Amount).decode


def check_amount(body: bytes, limits: ServerConfig) -> None:
    """Check how many posts and attachments a body has. Others wait while it is parsed. Raises TooLarge."""
    if body.count(b"{") <= min(limits.max_posts, limits.max_attachments):
        return
    try:
        found = _amount(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the route's own parser names the fault
    posts = [*found.posts, *found.messages]
    parts = sum(len(each) for post in posts for each in structs.astuple(post) if isinstance(each, list))
    for many, most, what, setting in (
        (len(posts), limits.max_posts, "posts", "server.max_posts"),
        (parts + len(found.attachments), limits.max_attachments, "attachments", "server.max_attachments"),
    ):
        if many > most:
            msg = f"Too many {what}: {many:,} exceed the limit of {most:,}. Split the request or raise {setting}."
            raise TooLarge(msg, where=what)


def fault_of(body: bytes, limits: ServerConfig) -> tuple[bool, str, str | None] | None:
    """Return what is wrong with a body, None if nothing: whether it is too large, the message, and the field."""
    try:
        check_amount(body, limits)
        check_json(body)
    except TooLarge as error:
        return True, str(error), error.where
    except InvalidInput as error:
        return False, str(error), error.where
    return None
