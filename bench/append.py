"""Append benchmark: the writer compared with its bare SQL statements, group commit, and long conversations."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import Figure, Run, Sample, compared, cpu, fsync_seconds, interleave, interleave_async, shown
from bench.random_text import TextGenerator
from bench.stores import BEGINNING, CONVERSATION, SCOPE, SQL, append_in, copy, drafting, drafts, fill, store, writing
from cuebook.engine.core.drafts import Posted
from cuebook.interfaces.store import Batch
from cuebook.memory.compress import compress
from cuebook.memory.tokenizer import key_text
from cuebook.records.conversation import Draft, chain
from cuebook.records.redaction import Redactor
from cuebook.storage.database.sqlite import transaction_on
from cuebook.storage.store import sqlite_store
from cuebook.storage.tree import SHIFT, owner_token

WORDS = 100
_AT_ONCE = 25  # appends per round
#: The same rows by position, which is the fastest way to bind values.
_INSERT = """INSERT INTO post (tenant, conversation, seq, id, parent, run_start, run_parent, round, sender, recipient,
    role, state, message, small, parts, wire, body, created_at, tokens, small_tokens, path_tokens, path_count, digest,
    chain)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_TEXT = "INSERT INTO post_text (rowid, scope, key) VALUES (?, ?, ?)"
_BEFORE = 1_000  # posts that are already stored


@dataclass(frozen=True)
class Bare:
    """The statement values of one append, computed before the clock starts."""

    lookups: tuple[dict[str, object], dict[str, object], dict[str, object]]
    post: tuple[object, ...]
    text: tuple[object, ...]
    head: dict[str, object]


def append(run: Run) -> Iterator[Figure]:
    """Compare one post in the writer with the same statements on the bare driver, then the work before the writer."""
    rounds = run.rounds(40)
    start = run.fast / "append.db"
    fill(start, {CONVERSATION: drafts(_BEFORE, WORDS)})
    fresh = drafts((rounds + 1) * _AT_ONCE, WORDS, seed=2, prefix="n", start=_BEFORE + 1)
    said = list(fresh)
    with ExitStack() as stack:
        ours, bare, reads = (stack.enter_context(writing(copy(start, name))) for name in ("ours", "bare", "reads"))
        by_hand = _bare_appends(bare, said)
        sides = interleave(
            rounds,
            {
                "ours": _product(ours, iter(said)),
                "bare": _by_hand(bare, iter(by_hand), reads=False),
                "reads": _by_hand(reads, iter(by_hand), reads=True),
            },
        )
    yield compared("one append in the writer", sides["ours"], "raw sqlite3, its 3 writes", sides["bare"], bar=1.5)
    yield compared("the same", sides["ours"], "raw, its 3 writes and 3 reads", sides["reads"])
    lookups = sides["reads"].median - sides["bare"].median
    yield Figure("the 3 reads: conversation, post id, newest post", shown(lookups), "on raw sqlite3")
    through = asyncio.run(_through_api(copy(start, "api"), iter(said), rounds))
    yield compared("through the async API", through, "raw sqlite3, its 3 writes", sides["bare"])
    yield from _drafting(run)


def _product(connection: sqlite3.Connection, said: Iterator[Draft]) -> Callable[[], float]:
    transaction = transaction_on(connection)

    def one() -> None:
        draft = next(said)
        connection.execute("BEGIN IMMEDIATE")
        batch = Batch(conversation=CONVERSATION, drafts=(draft,), now=draft.created_at)
        append_in(transaction, batch)
        connection.execute("COMMIT")

    return lambda: cpu(_AT_ONCE, one)


def _by_hand(connection: sqlite3.Connection, appends: Iterator[Bare], *, reads: bool) -> Callable[[], float]:
    names = ("conversation_by_id", "post_by_id", "post_at")
    lookups = [SQL[name] for name in names]
    head = SQL["conversation_grow"]

    def one() -> None:
        values = next(appends)
        connection.execute("BEGIN IMMEDIATE")
        if reads:
            for statement, key in zip(lookups, values.lookups, strict=True):
                connection.execute(statement, key).fetchone()
        connection.execute(_INSERT, values.post)
        connection.execute(_INSERT_TEXT, values.text)
        connection.execute(head, values.head)
        connection.execute("COMMIT")

    return lambda: cpu(_AT_ONCE, one)


def _bare_appends(connection: sqlite3.Connection, said: list[Draft]) -> list[Bare]:
    """Compute what the store would: seqs, sums, the full-text row and the counters."""
    row = dict(zip(*_conversation(connection), strict=True))
    no, tenant, head = row["no"], row["tenant"], row["head"]
    sums = connection.execute(SQL["post_at"], {"tenant": tenant, "no": no, "seq": head}).fetchone()
    round_, tokens, count = sums[3], sums[4], sums[5]
    scope = f"c{no} {owner_token(tenant, None)}"
    made = []
    for seq, draft in enumerate(said, head + 1):
        tokens, count = tokens + draft.tokens, count + 1
        round_ = seq if draft.role == "user" else round_
        post = (
            tenant, no, seq, draft.id, seq - 1, 1, 0, round_, draft.sender, draft.recipient, draft.role, draft.state,
            draft.message, draft.small, None, None, None, draft.created_at, draft.tokens,
            draft.small_tokens or draft.tokens, tokens, count, draft.digest, chain(b"", [draft.digest]),
        )  # fmt: skip
        grown = {
            "tenant": tenant, "head": seq, "last_seq": seq, "now": draft.created_at, "mark": 0, "backlog": count,
            "backlog_tokens": tokens, "speakers": row["speakers"], "no": no,
        }  # fmt: skip
        here = {"tenant": tenant, "no": no}
        lookups = ({"tenant": tenant, "id": CONVERSATION}, {**here, "id": draft.id}, {**here, "seq": seq - 1})
        made.append(Bare(lookups, post, (no << SHIFT | seq, scope, draft.key), grown))
    return made


def _conversation(connection: sqlite3.Connection) -> tuple[list[str], tuple[Any, ...]]:
    cursor = connection.execute(SQL["conversation_by_id"], {"tenant": SCOPE.tenant, "id": CONVERSATION})
    return [column[0] for column in cursor.description], cursor.fetchone()


async def _through_api(path: Path, said: Iterator[Draft], rounds: int) -> Sample:
    kept = sqlite_store(str(path))

    async def one() -> float:
        began = time.perf_counter()
        for _ in range(_AT_ONCE):
            draft = next(said)
            await kept.append(SCOPE, Batch(conversation=CONVERSATION, drafts=(draft,), now=draft.created_at))
        return (time.perf_counter() - began) / _AT_ONCE

    try:
        return (await interleave_async(rounds, {"api": one}))["api"]
    finally:
        await kept.aclose()


def _drafting(run: Run) -> Iterator[Figure]:
    """Measure the work on a post before it is queued for the writer."""
    talk, writer, redactor = TextGenerator(3), drafting(), Redactor(b"k" * 32)
    texts = [talk.post(WORDS) for _ in range(50)]
    parts: dict[str, Callable[[str], object]] = {
        "the whole draft": lambda text: writer.posted(
            Posted(sender="user", message=text), id="p", now=BEGINNING, persona=None, user=None
        ),
        "redaction": redactor.text,
        "token estimate": writer.count,
        "compressed form": lambda text: compress(text, role="user"),
        "search key": lambda text: key_text("user", BEGINNING, text),
    }
    sides = interleave(run.rounds(20), {name: _over(texts, do) for name, do in parts.items()})
    whole = sides.pop("the whole draft")
    inside = ", ".join(f"{name} {shown(sample.median)}" for name, sample in sides.items())
    yield Figure(f"before the writer: a draft of {WORDS} words", shown(whole.median), "", note=f"including {inside}")


def _over(texts: list[str], do: Callable[[str], object]) -> Callable[[], float]:
    def one() -> float:
        began = time.thread_time()
        for text in texts:
            do(text)
        return (time.thread_time() - began) / len(texts)

    return one


# ---- durable ---------------------------------------------------------------------------------------------------------

_TOGETHER = 16
_CHAT = 23  # words of a post, as in LoCoMo
#: Below this time an fsync does not represent a real disk, and the target does not apply.
_FSYNC_S = 0.003


def durable(run: Run) -> Iterator[Figure]:
    """Compare sixteen concurrent durable appends on the disk with the same appends in sequence."""
    rounds = run.rounds(15)
    path = run.disk / "durable.db"
    fill(path, {f"{CONVERSATION}{n}": drafts(10, _CHAT, prefix=f"p{n}-") for n in range(_TOGETHER)})
    said = list(drafts((rounds + 1) * 2 * _TOGETHER, _CHAT, seed=4, prefix="n"))
    sides, most = asyncio.run(_durable(path, iter(said), rounds))
    fsync = sides["fsync"].median
    yield Figure(f"commits of {_TOGETHER} at once", f"{most}", "", ratio=float(most), bar=2, unit=" at most")
    slow = fsync >= _FSYNC_S
    yield compared(
        f"time of {_TOGETHER} at once",
        sides["together"],
        "in sequence",
        sides["apart"],
        bar=8 if slow else None,
        inverse=True,
        note=f"{shown(sides['cpu'].median)} CPU; one fdatasync took {shown(fsync)}"
        + ("" if slow else f"; the target applies from {shown(_FSYNC_S)}"),
    )


async def _durable(path: Path, said: Iterator[Draft], rounds: int) -> tuple[dict[str, Sample], int]:
    kept = sqlite_store(str(path), synchronous="FULL")
    commits: list[int] = []
    spent: list[float] = []

    def batches() -> list[Batch]:
        fresh = [next(said) for _ in range(_TOGETHER)]
        return [
            Batch(conversation=f"{CONVERSATION}{n}", drafts=(draft,), now=draft.created_at)
            for n, draft in enumerate(fresh)
        ]

    async def together() -> float:
        made, before, used, began = batches(), kept.database.commits, time.process_time(), time.perf_counter()
        await asyncio.gather(*(kept.append(SCOPE, batch) for batch in made))
        took = time.perf_counter() - began
        spent.append(time.process_time() - used)
        commits.append(kept.database.commits - before)
        return took

    async def apart() -> float:
        made, began = batches(), time.perf_counter()
        for batch in made:
            await kept.append(SCOPE, batch)
        return time.perf_counter() - began

    async def fsync() -> float:
        return fsync_seconds(path.parent, times=8)

    try:
        sides = await interleave_async(rounds, {"together": together, "fsync": fsync, "apart": apart})
    finally:
        await kept.aclose()
    return sides | {"cpu": Sample(tuple(spent[1:]))}, max(commits)


# ---- growth ----------------------------------------------------------------------------------------------------------


def growth(run: Run) -> Iterator[Figure]:
    """Compare an append to ten posts with one to many. Each round of the small side starts with ten again."""
    rounds = run.rounds(40)
    few, many = store(run, 10, _CHAT), copy(store(run, run.many, _CHAT), "grown")
    plenty = list(drafts((rounds + 1) * _AT_ONCE, _CHAT, seed=5, prefix="n"))
    little = plenty[: 2 * _AT_ONCE]
    with writing(many) as connection:
        long = _product(connection, iter(plenty))

        def short() -> float:
            place = copy(few, "short")
            with writing(place) as fresh:
                small = _product(fresh, iter(little))
                small()  # statements compiled, pages read
                took = small()
            for rest in place.parent.glob(f"{place.name}*"):
                os.unlink(rest)  # noqa: PTH108
            return took

        sides = interleave(rounds, {"many": long, "few": short})
    what = f"append to {run.many:,} posts"
    yield compared(what, sides["many"], f"to {_AT_ONCE + 10}–{2 * _AT_ONCE + 10} posts", sides["few"], bar=1.2)
