"""What of a conversation has not reached its places yet, and what a delivery writes, once."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from cuebook.backends.sqlite import base, derived, memories, reads
from cuebook.backends.sqlite import rows as records
from cuebook.backends.sqlite.base import SQL, one, rows, run
from cuebook.backends.sqlite.tree import after, runs_to
from cuebook.memory.scopes import KEPT, SHARED_WITH
from cuebook.ports.memories import Cited, Delivered, Delivering
from cuebook.records.conversation import Post
from cuebook.records.memory import Scope

#: Posts before those delivered that say what a short answer belongs to.
_CONTEXT = 4


def delivering(connection: sqlite3.Connection, scope: Scope, conversation: str, limit: int) -> Delivering | None:
    """Read what a delivery needs, at most `limit` posts; None where nothing is to be delivered."""
    row = base.find(connection, scope, conversation)
    if row is None:
        return None
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or not mark["due"]:
        return None
    runs = runs_to(connection, tenant, no, row["head"])
    posts = _stretch(connection, tenant, no, after(runs, mark["seq"]), limit)
    last = posts[-1].seq if posts else max(mark["seq"], row["head"])
    before = reads.posts(connection, scope, conversation, path=True, last=_CONTEXT + len(posts) + 1, head=None)
    version = derived.head_summary(connection, row)
    line = derived.lineage(connection, row, version) if version > mark["version"] else set()
    forms = rows(connection, "items_of", tenant=tenant, no=no) if line else []
    fresh = [each for each in forms if each["made_in"] in line and each["made_in"] > mark["version"]]
    newest = {each["id"]: each for each in fresh}
    items = tuple(records.item(each) for each in newest.values())
    ids = {post.id for post in (*before, *posts)}.union(*(item.sources for item in items))
    return Delivering(
        conversation=records.conversation(row),
        seq=last,
        version=version,
        done=(mark["seq"], mark["version"]),
        organization=mark["organization"],
        settings=memories.settings_of(connection, tenant, mark["organization"]) if mark["organization"] else {},
        before=tuple(post for post in before if not posts or post.seq < posts[0].seq)[-_CONTEXT:],
        posts=tuple(posts),
        items=items,
        cited=_cited(connection, tenant, no, ids),
        more=last < row["head"],
    )


def _cited(connection: sqlite3.Connection, tenant: str, no: int, ids: Iterable[str]) -> Mapping[str, Cited]:
    """Read who said posts, and under which terms."""
    posts = rows(connection, "posts_cited", tenant=tenant, no=no, ids=json.dumps(sorted(ids)))
    rounds = json.dumps(sorted({post["round"] for post in posts}))
    off: set[int] = set()
    shared: dict[int, set[str]] = {}
    for turn in rows(connection, "turns_terms", tenant=tenant, no=no, rounds=rounds, kept=KEPT, shared=SHARED_WITH):
        if 0 in (turn["enabled"], turn["stored"]):
            off.add(turn["round"])
        if turn["shared"]:
            shared.setdefault(turn["round"], set()).add(turn["shared"])
    return {
        post["id"]: Cited(post["role"], post["sender"], post["round"] in off, frozenset(shared.get(post["round"], ())))
        for post in posts
    }


def _stretch(
    connection: sqlite3.Connection, tenant: str, no: int, runs: Sequence[tuple[int, int]], limit: int
) -> list[Post]:
    """Read the oldest posts of a path, so many."""
    posts: list[Post] = []
    for first, last in reversed(runs):
        room = limit - len(posts)
        if room <= 0:
            break
        values = {"tenant": tenant, "no": no, "first": first, "last": min(last, first + room - 1)}
        posts += reads.whole_posts(connection, tenant, connection.execute(SQL["posts_stretch"], values).fetchall())
    return posts


def deliver(connection: sqlite3.Connection, scope: Scope, delivered: Delivered) -> bool:
    """Keep a delivery; False, and nothing is kept, where the mark or a place has moved on."""
    row = base.find(connection, scope, delivered.conversation)
    if row is None or row["no"] != delivered.no:
        return False
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or (mark["seq"], mark["version"]) != delivered.done:
        return False
    for change in delivered.changes:
        if memories.generation(connection, memories.place_values(tenant, change.place)) != change.generation:
            return False
    for change in delivered.changes:
        memories.change_place(connection, tenant, change, now=delivered.now)
    due = int(delivered.more or derived.head_summary(connection, row) != delivered.version)
    if not delivered.more:
        due = max(due, int(row["head"] > delivered.seq))
    seq, version = delivered.done
    run(
        connection,
        "delivery_done",
        tenant=tenant,
        no=no,
        seq=delivered.seq,
        version=delivered.version,
        due=due,
        done_seq=seq,
        done_version=version,
    )
    return True
