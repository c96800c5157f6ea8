"""What a conversation's head has left is no reason any more: its memories go, and what they had ended holds on."""

import sqlite3
from collections.abc import Sequence

from cuebook.backends.sqlite import base, derived, memories
from cuebook.backends.sqlite.base import one, rows, run
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import Runs, on_path, runs_to
from cuebook.memory.knowledge import FIRST, REPEAT
from cuebook.ports.memories import Delivering
from cuebook.records.memory import Place, Scope


def withdraw(connection: sqlite3.Connection, scope: Scope, left: Delivering, *, now: float) -> bool:
    """Take back what posts off the head's path brought, and deliver from where the paths part; False, and nothing is
    changed, where the mark has moved on.
    """
    row = base.find(connection, scope, left.conversation.id)
    if row is None or row["no"] != left.conversation.no:
        return False
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or (mark["seq"], mark["version"]) != left.done:
        return False
    runs = runs_to(connection, tenant, no, row["head"])
    found: dict[int, list[Row]] = {}
    for each in rows(connection, "sources_in", tenant=tenant, no=no):
        if not on_path(runs, each["seq"]):
            found.setdefault(each["no"], []).append(each)
    for lost in found.values():
        _lose(connection, tenant, no, lost, now=now)
    seq, version = left.done
    fork = _fork(runs, runs_to(connection, tenant, no, seq))
    line = derived.lineage(connection, row, derived.head_summary(connection, row))
    shared = max(line & derived.lineage(connection, row, version), default=0) if version > 0 else version
    values = {"seq": fork, "version": shared, "done_seq": seq, "done_version": version}
    run(connection, "delivery_back", tenant=tenant, no=no, **values)
    return True


def _fork(runs: Runs, others: Runs) -> int:
    """Give the last post that two paths share, 0 for none."""
    shared = [
        min(last, other_last)
        for first, last in runs
        for other_first, other_last in others
        if max(first, other_first) <= min(last, other_last)
    ]
    return max(shared, default=0)


def _lose(connection: sqlite3.Connection, tenant: str, no: int, lost: Sequence[Row], *, now: float) -> None:
    """Take sources from a memory; without any it goes."""
    # as it is now: a memory that went just before may have changed what this one ends
    memory = one(connection, "memory_at", tenant=tenant, no=lost[0]["no"])
    if memory is None:
        return
    gone = {each["seq"] for each in lost}
    sources = rows(connection, "source_times", tenant=tenant, memory=memory["no"])
    rest = [each for each in sources if each["conversation"] != no or each["seq"] not in gone]
    place = memories.place_values(tenant, Place(memory["kind"], memory["owner"]))
    if rest:
        for each in sources:
            if each not in rest:
                run(connection, "memory_source_drop", tenant=tenant, memory=memory["no"], no=no, post=each["post"])
        sure = max(min(memory["confidence"], FIRST), memory["confidence"] - REPEAT * (len(sources) - len(rest)))
        times = [each["created_at"] for each in rest if each["created_at"] is not None]
        since = max(memory["valid_from"], min(times, default=memory["valid_from"]))
        said = {"valid_from": since, "repeated_at": max(times, default=since)}
        values = {"confidence": round(sure, 6), "now": now} | said
        run(connection, "memory_rests", no=memory["no"], **values)
    else:
        values = {"id": memory["id"], "now": now}
        ended = {"valid_to": memory["valid_to"], "next": memory["ended_by"]}
        run(connection, "memory_holds_on", **place, **values, **ended)
        run(connection, "memory_follows", **place, **values, before=memory["supersedes"])
        memories.remove(connection, tenant, memory["no"])
    run(connection, "place_changed", **place)
