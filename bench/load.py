"""Load benchmark: reading the newest posts of long and short conversations, and the cost of records and threads."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.measure import Figure, Run, Sample, compared, cpu, interleave, interleave_async, wall
from bench.stores import CONVERSATION, SCOPE, SQL, reading, store
from cuebook.storage.database.sqlite import transaction_on
from cuebook.storage.reads import ConversationReader
from cuebook.storage.store import sqlite_store

LAST = 30
_FEW = 40  # the shortest conversation with 30 posts
_WORDS = 23
_AT_ONCE = 50

Clock = Callable[[int, Callable[[], object]], float]


def load(run: Run) -> Iterator[Figure]:
    """Load the last 30 posts in the reader and with the API, compared with the bare driver and a short conversation."""
    rounds = run.rounds(60)
    many, few = store(run, run.many, _WORDS), store(run, _FEW, _WORDS)
    with ExitStack() as stack:
        long, raw, short = (stack.enter_context(reading(path)) for path in (many, many, few))
        sides = interleave(rounds, {"long": _product(long), "short": _product(short), "raw": _raw(raw, run.many, cpu)})
        api = asyncio.run(_through_api(many, _raw(raw, run.many, wall), rounds))
    count = f"{run.many:,}"
    yield compared(f"last {LAST} of {count}, in the reader", sides["long"], f"of {_FEW}", sides["short"], bar=1.2)
    yield compared("in the reader", sides["long"], "raw sqlite3, same columns", sides["raw"], bar=3)
    yield compared("through the async API", api["ours"], "raw sqlite3", api["raw"], bar=8)


def _product(connection: sqlite3.Connection) -> Callable[[], float]:
    """Read like the store: the conversation, its path and the posts as records, in one snapshot."""
    transaction = transaction_on(connection)

    def one() -> None:
        connection.execute("BEGIN")
        ConversationReader.posts.__wrapped__(None, transaction, SCOPE, CONVERSATION, last=LAST)
        connection.execute("ROLLBACK")

    return lambda: cpu(_AT_ONCE, one)


def _raw(connection: sqlite3.Connection, posts: int, clock: Clock) -> Callable[[], float]:
    values = {"tenant": SCOPE.tenant, "no": 1, "first": posts - LAST + 1, "last": posts}
    statement = SQL["posts_stretch"]
    return lambda: clock(_AT_ONCE, lambda: connection.execute(statement, values).fetchall())


async def _through_api(path: Path, raw: Callable[[], float], rounds: int) -> dict[str, Sample]:
    kept = sqlite_store(str(path))

    async def ours() -> float:
        began = time.perf_counter()
        for _ in range(_AT_ONCE):
            await kept.posts(SCOPE, CONVERSATION, last=LAST)
        return (time.perf_counter() - began) / _AT_ONCE

    async def bare() -> float:
        return raw()

    try:
        return await interleave_async(rounds, {"ours": ours, "raw": bare})
    finally:
        await kept.aclose()
