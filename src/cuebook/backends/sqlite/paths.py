"""Posts of paths read lately, in memory: a path grows at its end, so a long one is read from the file once."""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from cuebook.backends.sqlite.tree import Runs, stretch
from cuebook.records.conversation import PathPost

#: A shorter stretch is read from the file as quickly.
LEAST = 64
#: Tokens of all that is held in one process, some four bytes each.
MOST_TOKENS = 4_000_000


class Paths:
    """Of each conversation one stretch of consecutive posts, those read last, as `path_stretch` gives them.

    A stored post is altered only where it is erased, and its seq never given again, so what is held stays true until
    something is forgotten (`see`). It must not see what may yet be rolled back: reads of a database in memory go
    without.
    """

    def __init__(self, *, least: int = LEAST, most_tokens: int = MOST_TOKENS) -> None:
        self._least = least
        self._most_tokens = most_tokens
        self._held: OrderedDict[tuple[str, int], tuple[PathPost, ...]] = OrderedDict()  # newest first
        self._tokens = 0
        self._epochs: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> tuple[int, int]:
        """How many conversations are held, and how many tokens of theirs."""
        return len(self._held), self._tokens

    def stretch(self, connection: sqlite3.Connection, tenant: str, no: int, runs: Runs) -> Iterator[list[PathPost]]:
        """Read posts of a path in full, newest first: from memory where they are held."""
        with self._lock:
            held = self._held.get((tenant, no), ())
        for first, last in runs:
            at, end = _overlap(held, first, last)
            if at == end:
                yield from stretch(connection, "path_stretch", tenant, no, [(first, last)])
                continue
            if held[at].seq < last:
                yield from stretch(connection, "path_stretch", tenant, no, [(held[at].seq + 1, last)])
            yield list(held[at:end])
            if held[end - 1].seq > first:
                yield from stretch(connection, "path_stretch", tenant, no, [(first, held[end - 1].seq - 1)])

    def see(self, tenant: str, epoch: int) -> None:
        """Forget all that was read before something of a tenant was forgotten, by whichever process."""
        with self._lock:
            if self._epochs.setdefault(tenant, epoch) < epoch:
                self._epochs[tenant] = epoch
                self._held.clear()
                self._tokens = 0

    def hold(self, tenant: str, no: int, posts: Sequence[PathPost], *, epoch: int = 0) -> None:
        """Hold consecutive posts, newest first, instead of what was held of their conversation."""
        if len(posts) < self._least:
            return
        with self._lock:
            if epoch < self._epochs.get(tenant, 0):
                return  # read before something was forgotten
            self._tokens += _tokens(posts) - _tokens(self._held.pop((tenant, no), ()))
            self._held[tenant, no] = tuple(posts)
            while self._tokens > self._most_tokens:
                self._tokens -= _tokens(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all: something was deleted."""
        with self._lock:
            self._held.clear()
            self._tokens = 0


def _overlap(held: Sequence[PathPost], first: int, last: int) -> tuple[int, int]:
    """Give which of the held posts, newest first, lie in a stretch: from one place up to another."""
    if not held:
        return 0, 0
    newest = held[0].seq
    at, end = max(0, newest - last), min(len(held), newest - first + 1)
    return (at, end) if at < end else (0, 0)


def _tokens(posts: Sequence[PathPost]) -> int:
    return posts[0].path_tokens - posts[-1].path_tokens + posts[-1].tokens if posts else 0
