"""What of a conversation has not reached its places yet, and what a delivery writes, once."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuebook.backends.sqlite import base, corrections, derived, epochs, memories, reads
from cuebook.backends.sqlite import rows as records
from cuebook.backends.sqlite.base import SQL, one, rows, run
from cuebook.backends.sqlite.keys import key_record
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import after, on_path, runs_to
from cuebook.memory.scopes import BROUGHT, KEPT, SHARED_BY, SHARED_WITH, SPOKEN_WITH, Policy, Terms, read_policy
from cuebook.ports.memories import Cited, Delivered, Delivering
from cuebook.records.conversation import Post
from cuebook.records.key import Key
from cuebook.records.memory import Item, Scope

#: Posts before those delivered that say what a short answer belongs to.
_CONTEXT = 4
_TERMS = {"kept": KEPT, "shared": SHARED_WITH, "persona": SPOKEN_WITH, "brought": BROUGHT, "by": SHARED_BY}


def delivering(connection: sqlite3.Connection, scope: Scope, conversation: str, limit: int) -> Delivering | None:
    """Read what a delivery needs, at most `limit` posts; None where nothing is to be delivered."""
    row = base.find(connection, scope, conversation)
    if row is None:
        return None
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or not mark["due"]:
        return None
    known, done = records.conversation(row), (mark["seq"], mark["version"])
    runs = runs_to(connection, tenant, no, row["head"])
    if mark["seq"] and not on_path(runs, mark["seq"]):
        return Delivering(conversation=known, seq=mark["seq"], version=mark["version"], done=done, left=True)
    posts = _stretch(connection, tenant, no, after(runs, mark["seq"]), limit)
    before: Sequence[Post] = ()
    if mark["seq"]:
        before = reads.posts(connection, scope, conversation, path=True, last=_CONTEXT, head=mark["seq"])
    version = derived.head_summary(connection, row)
    items = _fresh(connection, row, mark["version"], version)
    ids = {post.id for post in (*before, *posts)}.union(*(item.sources for item in items))
    cited = _cited(connection, row, ids)
    under = [terms for post in cited.values() for terms in post.terms]
    told, keys = ({terms.shared for terms in under} - {""}, {terms.by for terms in under} - {""})
    last = posts[-1].seq if posts else row["head"]
    return Delivering(
        conversation=known,
        seq=last,
        version=version,
        done=done,
        again=epochs.current(connection, tenant, "delivery", str(no)) > 0,
        settings={each: memories.settings_of(connection, tenant, each) for each in sorted(told)},
        keys={each: _key(connection, tenant, each) for each in sorted(keys)},
        before=tuple(before),
        posts=tuple(posts),
        items=items,
        cited=cited,
        more=last != row["head"],
        corrections=corrections.of(connection, tenant, no, conversation),
    )


def _fresh(connection: sqlite3.Connection, row: Row, done: int, version: int) -> tuple[Item, ...]:
    """Read items that passes have touched between two summaries, the second one's line only."""
    if version in (0, done):
        return ()
    line = derived.lineage(connection, row, version) - derived.lineage(connection, row, max(done, 0))
    forms = rows(connection, "items_of", tenant=row["tenant"], no=row["no"])
    newest = {each["id"]: each for each in forms if each["made_in"] in line}
    return tuple(records.item(each) for each in newest.values() if each["text"])


def _cited(connection: sqlite3.Connection, row: Row, ids: Iterable[str]) -> Mapping[str, Cited]:
    """Read who said posts, and under which terms."""
    tenant, no = row["tenant"], row["no"]
    posts = rows(connection, "posts_cited", tenant=tenant, no=no, ids=json.dumps(sorted(ids)))
    company: list[tuple[int, int]] = json.loads(row["company"])
    began = _began(connection, row)
    known: dict[int, tuple[Terms, ...]] = {}
    found: dict[str, Cited] = {}
    for post in posts:
        terms: tuple[Terms, ...] = ()
        if post["role"] == "user":
            if post["round"] not in known:
                known[post["round"]] = _terms(connection, tenant, no, post["round"])
            terms = known[post["round"]]
        alone = not any(first <= post["seq"] and (not last or post["seq"] <= last) for first, last in company)
        found[post["id"]] = Cited(post["role"], post["sender"], alone and post["sender"] in ("User", began), terms)
    return found


def _began(connection: sqlite3.Connection, row: Row) -> str | None:
    """Give the name a conversation's first post has as a user's message of the wire; None where it is none.

    Who only posts under a name of their own may be an agent.
    """
    posts = _stretch(connection, row["tenant"], row["no"], [(1, 1)], 1)
    return posts[0].sender if posts and posts[0].role == "user" and posts[0].wire is not None else None


def _terms(connection: sqlite3.Connection, tenant: str, no: int, round_: int) -> tuple[Terms, ...]:
    """Read under which terms a round was said: of its own turns, else of the turn that brought it, else of the last
    one before it.
    """
    place: dict[str, Any] = {"tenant": tenant, "no": no}
    answered = rows(connection, "turns_terms", round=round_, **place, **_TERMS)
    if not answered and (next_ := one(connection, "turn_round_after", round=round_, **place)):
        later = rows(connection, "turns_terms", round=next_["round"], **place, **_TERMS)
        answered = [turn for turn in later if turn["brought"] and turn["brought"] <= round_]
    if answered:
        return tuple(_read(turn) for turn in answered)
    last = one(connection, "turn_round_before", round=round_, **place)
    before = rows(connection, "turns_terms", round=last["round"], **place, **_TERMS)[-1:] if last else []
    return tuple(Terms(policy=_read(turn).policy) for turn in before)  # what it told whom was its own words only


def _read(turn: Row) -> Terms:
    policy = Policy(**read_policy(json.loads(turn["policy"]))) if turn["policy"] else None
    return Terms(policy=policy, persona=turn["persona"] or "", shared=turn["shared"] or "", by=turn["by"] or "")


def _key(connection: sqlite3.Connection, tenant: str, id_: str) -> Key | None:
    row = one(connection, "key_by_id", id=id_)
    return key_record(row) if row is not None and row["tenant"] == tenant else None


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
    """Keep a delivery; False, and nothing is kept, where what it was decided on has moved on: the mark, the path, a
    place, who allows what, or a key by which an organization was told.
    """
    row = base.find(connection, scope, delivered.conversation)
    if row is None or row["no"] != delivered.no:
        return False
    if not _stands(connection, row, delivered):
        return False
    tenant, no = row["tenant"], row["no"]
    for change in delivered.changes:
        memories.change_place(connection, tenant, change, now=delivered.now)
    due = row["head"] != delivered.seq or derived.head_summary(connection, row) != delivered.version
    seq, version = delivered.done
    values = {"seq": delivered.seq, "version": delivered.version, "due": int(due)}
    run(connection, "delivery_done", tenant=tenant, no=no, done_seq=seq, done_version=version, **values)
    return True


def _stands(connection: sqlite3.Connection, row: Row, delivered: Delivered) -> bool:
    """Whether what a delivery was decided on is as it was."""
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or (mark["seq"], mark["version"]) != delivered.done:
        return False
    if delivered.seq and not on_path(runs_to(connection, tenant, no, row["head"]), delivered.seq):
        return False
    if json.loads(row["metadata"]).get(KEPT) != delivered.kept:
        return False
    if any(_key(connection, tenant, id_) != known for id_, known in delivered.keys.items()):
        return False
    if corrections.last(connection, tenant, no) != delivered.corrected:
        return False
    told = delivered.settings.items()
    return all(memories.settings_of(connection, tenant, each) == known for each, known in told) and all(
        memories.generation(connection, memories.place_values(tenant, each.place)) == each.generation
        for each in delivered.changes
    )
