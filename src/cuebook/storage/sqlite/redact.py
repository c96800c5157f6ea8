"""How a person's words leave a conversation of others: their posts and the answers to them stay as empty places.

All that was derived of the conversation goes and is derived anew from what remains: its summaries and items, what its
windows quoted, what its turns said of themselves, and what of the audit repeats the words.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.memory.copied_text import Quoted
from cuebook.records.conversation import ASSISTANT, Part, PathPost, Role, calls_in
from cuebook.records.digest import digest_of
from cuebook.records.erasure import ERASED, GONE, NOBODY
from cuebook.records.memory import Scope
from cuebook.records.turn import ASKED, CLIENT, Manifest
from cuebook.storage.sqlite import outcomes
from cuebook.storage.sqlite.base import SQL, lose_corrections, need, one, raise_epoch, rows, run, unuse
from cuebook.storage.sqlite.memories import ErasedMemories, deliver_anew, unlearn
from cuebook.storage.sqlite.rows import Row, decode_body, decode_parts
from cuebook.storage.sqlite.tree import SHIFT, tip_at
from cuebook.storage.sqlite.turns import end_expired
from cuebook.storage.sqlite.writes import company_of, leave_waiting, set_head

_manifest = msgspec.json.Decoder(Manifest).decode
#: Of a turn's metadata, what is made of the conversation's words, and what a client attached.
_DERIVED = ("rollingSummary", "longTermMemoryRetrieval", "retrievedContext", ASKED)


class Redacted(Struct, frozen=True):
    """What was erased in a conversation: counts by kind, the turns it was said in, and the words."""

    counts: Mapping[str, int]
    turns: frozenset[int]
    quoted: Quoted
    taken: ErasedMemories  # what was taken of memories


def redact(
    connection: sqlite3.Connection, row: Row, user: str, *, weigh: Callable[[PathPost], int], now: float
) -> Redacted | None:
    """Erase what a user said in a conversation that is not theirs; None where they said nothing and take no part."""
    tenant, no = row["tenant"], row["no"]
    posts = rows(connection, "posts_told", tenant=tenant, no=no)
    own = [post for post in posts if post["sender"] == user and post["role"] == "user"]
    takes_part = user in json.loads(row["participants"])
    if not own and not takes_part:
        return None
    texts = {post["seq"]: _texts(connection, tenant, post) for post in posts} if own else {}
    quoted = Quoted(text for post in own for text in texts[post["seq"]])
    rounds = {post["seq"] for post in own}
    gone = own + [
        post
        for post in posts
        if post["role"] != "user"
        and (post["round"] in rounds or any(quoted.stand_in(text) for text in texts.get(post["seq"], ())))
    ]
    going = _Going(posts, gone, rounds, quoted, user)
    counts: Counter[str] = Counter()
    taken = ErasedMemories(Counter(), set())
    if own:
        stop(connection, row, now=now)
        row = need(connection, Scope(tenant), row["id"])
        counts, taken = _take(connection, row, going, weigh=weigh)
    return _done(connection, row, going, counts, taken)


def redact_posts(
    connection: sqlite3.Connection, row: Row, seqs: Collection[int], *, weigh: Callable[[PathPost], int], now: float
) -> Redacted | None:
    """Erase posts, with a call what it gave and with that the call; None where nothing is said by them any more.

    What only repeats their words stays said, but nothing derived does. A head that is erased moves back.
    """
    tenant, no = row["tenant"], row["no"]
    posts = rows(connection, "posts_told", tenant=tenant, no=no)
    gone = [post for post in _paired(connection, tenant, posts, set(seqs)) if post["state"] != GONE]
    if not gone:
        return None
    quoted = Quoted(text for post in gone for text in _texts(connection, tenant, post))
    stop(connection, row, now=now)
    row = need(connection, Scope(tenant), row["id"])
    going = _Going(posts, gone, {post["round"] for post in gone}, quoted)
    counts, taken = _take(connection, row, going, weigh=weigh)
    empty = {post["seq"] for post in gone} | {post["seq"] for post in posts if post["state"] == GONE}
    parents, head = {post["seq"]: post["parent"] for post in posts}, row["head"]
    while head in empty:
        head = parents[head]
    if head != row["head"]:
        set_head(connection, row, head, now=now)
    return _done(connection, row, going, counts, taken)


def _paired(connection: sqlite3.Connection, tenant: str, posts: list[Row], seqs: set[int]) -> list[Row]:
    """Return posts with those that make calls they answer, or answer calls they make: neither stands alone.

    A call's id is its own in its round alone.
    """
    rounds = {post["round"] for post in posts if post["seq"] in seqs}
    calls = {
        post["seq"]: {(post["round"], call) for call in calls_in(_said(connection, tenant, post)[1])}
        for post in posts
        if post["round"] in rounds
    }
    own = {call for seq in seqs for call in calls.get(seq, ())}
    return [post for post in posts if post["seq"] in seqs or own & calls.get(post["seq"], set())]


class _Going(Struct, frozen=True):
    """What goes: posts among all of a conversation's, in which rounds, what they say, and who it was, if that goes."""

    posts: list[Row]
    gone: list[Row]
    rounds: set[int]
    quoted: Quoted
    user: str | None = None


def _take(
    connection: sqlite3.Connection, row: Row, going: _Going, *, weigh: Callable[[PathPost], int]
) -> tuple[Counter[str], ErasedMemories]:
    """Take the words of posts with all that came of them; answers with counts by kind, and what of memories went."""
    tenant, no = row["tenant"], row["no"]
    ids = {post["id"] for post in going.gone}
    counts = _take_derived(connection, row, going)
    counts["fullText"], words = _empty(connection, row, going, weigh=weigh)
    row["words"] -= words
    lose_corrections(connection, tenant, no, ids)
    taken = unlearn(connection, tenant, no, ids)
    deliver_anew(connection, tenant, no)
    return Counter(counts) + taken.counts, taken


def _done(
    connection: sqlite3.Connection, row: Row, going: _Going, counts: Counter[str], taken: ErasedMemories
) -> Redacted:
    """Settle a conversation whose words went."""
    tenant, no = row["tenant"], row["no"]
    counts += Counter(outcomes=outcomes.forget(connection, row, going.user, going.quoted))
    _settle(connection, row, going.user, anew=bool(going.gone))
    raise_epoch(connection, tenant, "conversation", str(no))
    answered = run(connection, "turns_of_rounds", tenant=tenant, no=no, rounds=json.dumps(sorted(going.rounds)))
    turns = frozenset(turn for (turn,) in answered)
    return Redacted(dict(counts) | {"posts": len(going.gone)}, turns, going.quoted, taken)


def _texts(connection: sqlite3.Connection, tenant: str, post: Row) -> list[str]:
    """Return what a post says: its text and its parts'."""
    message, parts = _said(connection, tenant, post)
    return [text for text in (message, *(part.content for part in parts)) if text]


def _said(connection: sqlite3.Connection, tenant: str, post: Row) -> tuple[str | None, tuple[Part, ...]]:
    message, parts = post["message"], post["parts"]
    if post["body"] is not None:
        kept = one(connection, "blob_get", tenant=tenant, digest=post["body"])
        message, parts, _ = decode_body(kept["body"]) if kept else ("", None, None)
    return message, decode_parts(parts)


def stop(connection: sqlite3.Connection, row: Row, *, now: float) -> None:
    """End what runs in a conversation, without what had come: it was decided on what is erased."""
    run(connection, "steps_blank", tenant=row["tenant"], no=row["no"])
    if row["lease_until"]:
        end_expired(connection, row, now=now)
    leave_waiting(connection, row, now=now)


def _take_derived(connection: sqlite3.Connection, row: Row, going: _Going) -> dict[str, int]:
    """Take summaries, items, what windows quoted, what a client said in front of them alone, and what turns told."""
    tenant, no, quoted = row["tenant"], row["no"], going.quoted
    place = {"tenant": tenant, "no": no}
    counts = {table: run(connection, f"delete_{table}", **place).rowcount for table in ("summaries", "items")}
    counts["vectors"] = run(connection, "delete_vectors", **place).rowcount
    for table in ("reflections", "tuning", "optimizations", "outbox", "embedded"):
        run(connection, f"delete_{table}", **place)
    digests: set[bytes] = set()
    fronts: dict[bool, set[bytes]] = {True: set(), False: set()}  # what clients said, in front of what goes or stays
    for raw, round_ in run(connection, "manifests_of", **place).fetchall():
        manifest = _manifest(raw)
        fronts[round_ in going.rounds].update(
            bytes.fromhex(text.digest) for text in manifest.front if text.source == CLIENT
        )
        for text in (*manifest.front, *manifest.volatile):
            digest = bytes.fromhex(text.digest)
            if digest not in digests and (
                text in manifest.volatile or text.kind == "summary" or _quotes(connection, tenant, digest, quoted)
            ):
                digests.add(digest)
    digests |= fronts[True] - fronts[False]
    counts["blobs"] = sum(unuse(connection, tenant, no, digest) for digest in digests)
    for turn in rows(connection, "turns_told", **place):
        told = json.loads(turn["metadata"])
        kept = {name: value for name, value in told.items() if name not in _DERIVED and not _tells(value, quoted)}
        if kept != told:
            run(connection, "turn_metadata", **place, n=turn["n"], metadata=json.dumps(kept, ensure_ascii=False))
    return counts


def _quotes(connection: sqlite3.Connection, tenant: str, digest: bytes, quoted: Quoted) -> bool:
    kept = one(connection, "blob_get", tenant=tenant, digest=digest)
    return kept is not None and quoted.stand_in(kept["body"].decode("utf-8", "replace"))


def _tells(value: object, quoted: Quoted) -> bool:
    return quoted.stand_in(json.dumps(value, ensure_ascii=False))


def _empty(
    connection: sqlite3.Connection, row: Row, going: _Going, *, weigh: Callable[[PathPost], int]
) -> tuple[int, int]:
    """Put nothing in the place of posts' words; answers with how many full text held, and how many words."""
    tenant, no = row["tenant"], row["no"]
    found = words = 0
    for post in going.gone:
        role: Role = ASSISTANT if post["role"] == "tool" else post["role"]  # a result stands behind no call any more
        sender = NOBODY if going.user is not None and post["sender"] == going.user else post["sender"]
        empty = PathPost(post["seq"], "", 0, role, sender, ERASED, 0, None, 0, 0, 0.0, None, None, GONE)
        post["tokens"] = weigh(empty)
        digest = digest_of(f"{GONE}\x00{no}\x00{post['seq']}".encode())
        place = {"tenant": tenant, "no": no, "seq": post["seq"]}
        values = {"sender": sender, "role": role, "message": ERASED, "tokens": post["tokens"], "digest": digest}
        run(connection, "post_erase", **place, **values)
        if post["body"] is not None:
            unuse(connection, tenant, no, post["body"])
        key = {"id": no << SHIFT | post["seq"]}
        held = one(connection, "post_text_words", **key)
        if held is not None:
            words += held["c1"].count(" ") + 1
            found += run(connection, "post_text_delete", **key).rowcount
    sums = {0: 0}
    for post in going.posts:
        sums[post["seq"]] = sums[post["parent"]] + post["tokens"]
        run(connection, "post_sum", tenant=tenant, no=no, seq=post["seq"], path_tokens=sums[post["seq"]])
    return found, words


def _settle(connection: sqlite3.Connection, row: Row, user: str | None, *, anew: bool) -> None:
    """Let a conversation name the user no more; `anew` makes it due for a pass from its first post on."""
    tenant, no = row["tenant"], row["no"]
    run(connection, "post_recipient", tenant=tenant, no=no, user=user, nobody=NOBODY)
    names = {name: [each for each in json.loads(row[name]) if each != user] for name in ("participants", "speakers")}
    run(connection, "participant_delete", tenant=tenant, user=user, no=no)
    values: dict[str, Any] = {name: json.dumps(left, ensure_ascii=False) for name, left in names.items()}
    values["company"] = json.dumps(company_of(row, json.loads(row["participants"]), names["participants"]))
    values |= {name: row[name] for name in ("no", "mark", "backlog", "backlog_tokens")}
    if anew:
        tip = tip_at(connection, tenant, no, row["head"])
        values |= {"mark": 0, "backlog": tip.path_count, "backlog_tokens": tip.path_tokens}
    connection.execute(SQL["conversation_erased"], values | {"words": max(0, row["words"])})
