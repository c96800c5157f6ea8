"""Paginate long lists with one kind of cursor, and refuse the cursor of another list."""

import base64
from collections.abc import Sequence
from typing import Annotated, TypeVar
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from cuebook.errors import InvalidInput
from cuebook.records.answer import Page

T = TypeVar("T")

#: Default page size.
LIMIT = 50

Number = Annotated[int, Meta(ge=0, lt=2**62)]


class Cursor(Struct, frozen=True, array_like=True):
    """The position where the next page of a list starts.

    `no` is the store's number of the conversation that the list belongs to, 0 for others.
    """

    name: str
    no: Number
    at: tuple[Number | str, ...]


def write_cursor(name: str, *at: int | str, no: int = 0) -> str:
    """Return a position in a list as an opaque string."""
    return base64.urlsafe_b64encode(msgspec.json.encode(Cursor(name, no, at))).decode().rstrip("=")


def read_cursor(text: str, name: str, *, no: int = 0) -> tuple[int | str, ...]:
    """Return the position in a list. Raises InvalidInput for any other cursor."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=Cursor)
    except ValueError:  # msgspec's errors are ValueErrors too
        raise no_cursor(text) from None
    if (cursor.name, cursor.no) != (name, no):
        raise no_cursor(text)
    return cursor.at


def page_of(rows: Sequence[T], name: str, *, state: int, limit: int | None, cursor: str | None, no: int = 0) -> Page[T]:
    """Return a page of a list that is rebuilt for each call, or all of it without `limit` and `cursor`.

    `state` is a number that changes when rows have moved. Raises InvalidInput.
    """
    if limit is None and cursor is None:
        return Page(items=tuple(rows))
    limit = LIMIT if limit is None else limit
    if limit < 1:
        msg = f"limit: {limit}. Must be 1 or more."
        raise InvalidInput(msg, where="limit")
    at, first = read_cursor(cursor, name, no=no) if cursor is not None else (state, 0)
    if at != state:
        raise no_cursor(cursor or "")
    end = int(first) + limit
    more = write_cursor(name, state, end, no=no) if end < len(rows) else None
    return Page(items=tuple(rows[int(first) : end]), next=more)


def short_page(rows: Sequence[T], name: str, *, limit: int | None, cursor: str | None, grows: bool = False) -> Page[T]:
    """Return a page of a list of files or settings, or all of it without `limit` and `cursor`.

    If the list changed, its cursor is refused. If it `grows` at its front, rows are repeated instead.
    """
    state = 0 if grows else crc32(msgspec.json.encode(rows, enc_hook=repr))
    return page_of(rows, name, state=state, limit=limit, cursor=cursor)


def no_cursor(text: str) -> InvalidInput:
    """Return the error for an unusable cursor."""
    return InvalidInput(f"cursor: invalid or expired: {text!r}. Start again without a cursor.", where="cursor")


def check_alone(name: str, value: object) -> None:
    """Check that an argument is not combined with a page's. Raises InvalidInput."""
    if value is not None:
        msg = f"{name}: send either {name}, or limit and cursor."
        raise InvalidInput(msg, where=name)
