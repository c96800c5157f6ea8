"""Paginate long lists with cursors, and refuse a cursor of another list."""

import base64
from collections.abc import Sequence
from typing import Annotated, Generic, TypeVar
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from cuebook.errors import InvalidInput

T = TypeVar("T")
C = TypeVar("C", bound="Cursor")

#: Default page size.
LIMIT = 50

Number = Annotated[int, Meta(ge=0, lt=2**62)]


class Paged(Struct, Generic[T], frozen=True):
    """A page of a list, and the cursor of the next page, None on the last page."""

    items: tuple[T, ...]
    cursor: str | None = None


class Cursor(Struct, frozen=True, array_like=True):
    """The position where the next page starts, in the conversation with the store's number `no`."""

    no: Number


class PostsAt(Cursor, frozen=True, array_like=True, tag="posts"):
    """After post `seq` of the path to `head`, which stays the same for all pages; head 0 = all branches."""

    head: Number
    seq: Number


class RoundsAt(PostsAt, frozen=True, array_like=True, tag="rounds"):
    """After a round: the next one begins after `seq`."""


class TurnsAt(Cursor, frozen=True, array_like=True, tag="turns"):
    """After turn `n`."""

    n: Number


class ItemsAt(Cursor, frozen=True, array_like=True, tag="items"):
    """After the item `id` whose newest source is `seq`."""

    seq: Number
    id: str


class RowsAt(Cursor, frozen=True, array_like=True, tag="rows"):
    """After `count` rows of a list that is rebuilt for each page; `state` identifies its version."""

    name: str
    state: Number
    count: Number


def write_cursor(cursor: Cursor) -> str:
    """Return a cursor as an opaque string."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def read_cursor(text: str, kind: type[C], *, no: int) -> C:
    """Parse a cursor of a list of one conversation. Raises InvalidInput for any other cursor."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=kind)
    except ValueError:  # msgspec's errors are ValueErrors too
        raise no_cursor(text) from None
    if cursor.no != no:
        raise no_cursor(text)
    return cursor


def page_of(rows: Sequence[T], *, no: int, name: str, state: int, limit: int | None, cursor: str | None) -> Paged[T]:
    """Return a page of a list that is rebuilt for each call, or all of it without `limit` and `cursor`.

    `state` is a number that changes when rows have moved. Raises InvalidInput.
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
    """Return a page of a list of files or settings, or all of it without `limit` and `cursor`.

    If the list changed, its cursor is refused. If it `grows` at its front, rows are repeated instead.
    """
    state = 0 if grows else crc32(msgspec.json.encode(rows, enc_hook=repr))
    return page_of(rows, no=0, name=name, state=state, limit=limit, cursor=cursor)


def no_cursor(text: str) -> InvalidInput:
    """Return the error for an unusable cursor."""
    return InvalidInput(f"cursor: invalid or expired: {text!r}. Start again without a cursor.", where="cursor")


def check_limit(limit: int) -> None:
    """Check a page size. Raises InvalidInput."""
    if limit < 1:
        msg = f"limit: {limit}. Must be 1 or more."
        raise InvalidInput(msg, where="limit")
