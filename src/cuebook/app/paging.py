"""How a long list is read page by page: what a cursor holds, and that one of another list is refused."""

import base64
from collections.abc import Sequence
from typing import Annotated, Generic, TypeVar
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from cuebook.errors import InvalidInput

T = TypeVar("T")
C = TypeVar("C", bound="Cursor")

#: How many a page holds where nobody says.
LIMIT = 50

Number = Annotated[int, Meta(ge=0, lt=2**62)]


class Paged(Struct, Generic[T], frozen=True):
    """A page of a list, and the cursor of the page behind, None where there is none."""

    items: tuple[T, ...]
    cursor: str | None = None


class Cursor(Struct, frozen=True, array_like=True):
    """Where a list goes on, in the conversation with the store's number `no`."""

    no: Number


class PostsAt(Cursor, frozen=True, array_like=True, tag="posts"):
    """Behind post `seq` of the path to `head`, which stays the same while it is read; 0 = of all branches."""

    head: Number
    seq: Number


class RoundsAt(PostsAt, frozen=True, array_like=True, tag="rounds"):
    """The same of rounds: the next one begins behind `seq`."""


class TurnsAt(Cursor, frozen=True, array_like=True, tag="turns"):
    """Behind turn `n`."""

    n: Number


class ItemsAt(Cursor, frozen=True, array_like=True, tag="items"):
    """Behind the item `id` whose newest source is `seq`."""

    seq: Number
    id: str


class RowsAt(Cursor, frozen=True, array_like=True, tag="rows"):
    """Behind `count` rows of a list that is made anew from `state`."""

    name: str
    state: Number
    count: Number


def write_cursor(cursor: Cursor) -> str:
    """Return a cursor as a caller gets it."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def read_cursor(text: str, kind: type[C], *, no: int) -> C:
    """Read a cursor of a list of one conversation. Raises InvalidInput for any other."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=kind)
    except ValueError:  # msgspec's errors are ValueErrors too
        raise no_cursor(text) from None
    if cursor.no != no:
        raise no_cursor(text)
    return cursor


def page_of(rows: Sequence[T], *, no: int, name: str, state: int, limit: int | None, cursor: str | None) -> Paged[T]:
    """Return a page of a list that is made anew each time, the whole of it without `limit` and `cursor`.

    `state` is a number that is another one when rows no longer stand where they stood. Raises InvalidInput.
    """
    if limit is None and cursor is None:
        return Paged(tuple(rows))
    limit = LIMIT if limit is None else limit
    check_limit(limit)
    start = read_cursor(cursor, RowsAt, no=no) if cursor is not None else RowsAt(no, name, state, 0)
    if (start.name, start.state) != (name, state):
        raise no_cursor(cursor or "")
    end = start.count + limit
    more = write_cursor(RowsAt(no, name, state, end)) if end < len(rows) else None
    return Paged(tuple(rows[start.count : end]), more)


def short_page(rows: Sequence[T], name: str, *, limit: int | None, cursor: str | None, grows: bool = False) -> Paged[T]:
    """Return a page of a list of files or settings, the whole of it without `limit` and `cursor`.

    Of a list that changed since a cursor of it is refused; of one that `grows` at its front, rows come twice instead.
    """
    state = 0 if grows else crc32(msgspec.json.encode(rows, enc_hook=repr))
    return page_of(rows, no=0, name=name, state=state, limit=limit, cursor=cursor)


def no_cursor(text: str) -> InvalidInput:
    """Return that a cursor is of no use here."""
    return InvalidInput(f"cursor: {text!r} is none this list gave, or the list has changed since", where="cursor")


def check_limit(limit: int) -> None:
    """Refuse a page of nothing."""
    if limit < 1:
        msg = f"limit: {limit} is no number of things to list; name 1 or more"
        raise InvalidInput(msg, where="limit")
