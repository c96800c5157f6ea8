"""How memories of places are forgotten: with what came of them, and so that nothing brings them back.

One that has other sources is derived anew from them: it goes, and their conversations are delivered again. One that
somebody wrote by hand stays, without the source. What a memory had ended holds again where its own sources say so.
"""

import json
import sqlite3
from collections import Counter, deque
from collections.abc import Collection, Iterable

import msgspec
from msgspec import Struct

from cuebook.backends.sqlite import memories
from cuebook.backends.sqlite.base import rows, run
from cuebook.backends.sqlite.epochs import bar, raised
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.texts import unuse
from cuebook.records.memory import Place
from cuebook.records.turn import Manifest

_manifest = msgspec.json.Decoder(Manifest).decode


class Taken(Struct):
    """What was taken: counts by kind, and the conversations in which a turn that says a memory is running."""

    counts: Counter[str]
    running: set[int]
    gone: list[Row] = []  # the memories
    anew: list[set[int]] = []  # of them that come from other posts too: the conversations of these
    by_hand: int = 0  # lost a source, and stay
    sources: int = 0  # posts that stay without bringing one back


def unlearn(connection: sqlite3.Connection, tenant: str, no: int, posts: Collection[str] | None = None) -> Taken:
    """Forget what came from a conversation, or from some of its posts (ids)."""
    found: dict[int, Row] = {}
    counts: Counter[str] = Counter()
    for row in rows(connection, "memories_from", tenant=tenant, no=no):
        post = row.pop("post")
        if posts is None or post in posts:
            found[row["no"]] = row
            gone = run(connection, "memory_source_drop", tenant=tenant, memory=row["no"], no=no, post=post)
            counts["memorySources"] += gone.rowcount
    by_hand = [row for row in found.values() if row["written"]]
    for row in by_hand:
        run(connection, "place_changed", **_place_of(row))
    taken = take(connection, tenant, [row for row in found.values() if not row["written"]], anew=True)
    taken.counts.update(counts)
    taken.by_hand = len(by_hand)
    return taken


def take(connection: sqlite3.Connection, tenant: str, found: Iterable[Row], *, anew: bool) -> Taken:
    """Remove memories, and their words from windows that said them.

    `anew`: what is left of their sources is delivered again. Else their sources never bring them back.
    """
    waiting = deque(found)
    gone: dict[int, Row] = {}
    again: set[int] = set()
    others: list[set[int]] = []
    barred = 0
    while waiting:
        row = waiting.popleft()
        if row["no"] in gone:
            continue
        gone[row["no"]] = row
        sources = rows(connection, "sources_of", tenant=tenant, no=row["no"])
        if anew:
            told = {each["conversation"] for each in sources}
            again |= told
            others += [told] if told else []
            ended = {"before": row["supersedes"], "id": row["id"]}  # whether those hold is derived anew
            waiting += rows(connection, "memories_superseded", **_place_of(row), **ended)
        else:
            barred += len(sources)
            for each in sources:
                bar(connection, tenant, row, each["conversation"], each["post"])
    ids: dict[tuple[str, str], list[str]] = {}
    for row in gone.values():
        memories.remove(connection, tenant, row["no"])
        ids.setdefault((row["kind"], row["owner"]), []).append(row["id"])
    for (kind, owner), of_place in ids.items():
        place = {"tenant": tenant, "kind": kind, "owner": owner}
        run(connection, "memory_forgets", **place, ids=json.dumps(of_place))
        run(connection, "place_changed", **place)
    for no in sorted(again):
        deliver_anew(connection, tenant, no)
    taken = Taken(Counter({"memories": len(gone)}), set(), list(gone.values()), others, sources=barred)
    if gone:
        _from_windows(connection, tenant, list(gone.values()), taken)
        run(connection, "optimize_memory_text")
    return taken


def deliver_anew(connection: sqlite3.Connection, tenant: str, no: int) -> None:
    """Let a conversation reach its places from its beginning once more."""
    epoch = raised(connection, tenant, "delivery", str(no))
    run(connection, "delivery_anew", tenant=tenant, no=no, epoch=epoch)


def _place_of(row: Row) -> dict[str, str]:
    return memories.place_values(row["tenant"], Place(row["kind"], row["owner"]))


def _from_windows(connection: sqlite3.Connection, tenant: str, gone: list[Row], taken: Taken) -> None:
    """Take memories' words from the windows that said them."""
    names = {f"memory:{row['id']}" for row in gone}
    owners = {_owner(row) for row in gone}
    user = owners.pop() if len(owners) == 1 else None
    for step in rows(connection, "windows_naming", tenant=tenant, user=user):
        said = [text for text in _manifest(step["manifest"]).volatile if text.source in names]
        for text in said:
            taken.counts["texts"] += unuse(connection, tenant, step["no"], bytes.fromhex(text.digest))
        if said and step["state"] == "running":
            taken.running.add(step["no"])


def _owner(row: Row) -> str | None:
    """Give the one user whose conversations may say a memory; None where others' may."""
    if row["kind"] == "user":
        return str(row["owner"])
    return str(row["owner"].partition("\x1f")[2]) if row["kind"] == "persona" else None
