"""Erase a user's posts from a conversation of others: posts and the answers to them remain as empty placeholders.

All derived data is deleted and derived again from the rest: summaries and items, quotes in windows, turn metadata, and
audit texts that repeat the erased words.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.memory.copied_text import CopyIndex
from cuebook.records.conversation import ASSISTANT, Part, PathPost, Role, calls_in
from cuebook.records.digest import digest_of
from cuebook.records.erasure import ERASED, GONE, NOBODY
from cuebook.records.memory import Scope
from cuebook.records.turn import ASKED, CLIENT, Manifest
from cuebook.storage import outcomes
from cuebook.storage.access import lose_corrections, need, raise_epoch, unuse
from cuebook.storage.database.transaction import Row, Transaction
from cuebook.storage.memories import ErasedMemories, deliver_anew, unlearn
from cuebook.storage.rows import decode_body, decode_parts
from cuebook.storage.tree import SHIFT, tip_at
from cuebook.storage.turns import end_expired
from cuebook.storage.writes import company_of, leave_waiting, set_head

_manifest = msgspec.json.Decoder(Manifest).decode
#: Turn metadata derived from the conversation's text, or attached by a client.
_DERIVED = ("rollingSummary", "longTermMemoryRetrieval", "retrievedContext", ASKED)


class ErasedData(Struct, frozen=True):
    """The erased data of a conversation: counts by kind, the affected turns, and the texts."""

    counts: Mapping[str, int]
    turns: frozenset[int]
    quoted: CopyIndex
    taken: ErasedMemories  # counts of erased memories


def redact(
    transaction: Transaction, row: Row, user: str, *, weigh: Callable[[PathPost], int], now: float
) -> ErasedData | None:
    """Erase a user's posts in a conversation of others; None if they have no posts there and take no part."""
    tenant, no = row["tenant"], row["no"]
    posts = transaction.rows("posts_told", tenant=tenant, no=no)
    own = [post for post in posts if post["sender"] == user and post["role"] == "user"]
    takes_part = user in json.loads(row["participants"])
    if not own and not takes_part:
        return None
    texts = {post["seq"]: _texts(transaction, tenant, post) for post in posts} if own else {}
    quoted = CopyIndex(text for post in own for text in texts[post["seq"]])
    rounds = {post["seq"] for post in own}
    gone = own + [
        post
        for post in posts
        if post["role"] != "user"
        and (post["round"] in rounds or any(quoted.stand_in(text) for text in texts.get(post["seq"], ())))
    ]
    going = _ErasedPosts(posts, gone, rounds, quoted, user)
    counts: Counter[str] = Counter()
    erased_memories = ErasedMemories(Counter(), set())
    if own:
        stop(transaction, row, now=now)
        row = need(transaction, Scope(tenant), row["id"])
        counts, erased_memories = _take(transaction, row, going, weigh=weigh)
    return _done(transaction, row, going, counts, erased_memories)


def redact_posts(
    transaction: Transaction, row: Row, seqs: Collection[int], *, weigh: Callable[[PathPost], int], now: float
) -> ErasedData | None:
    """Erase posts; tool calls and their results are erased together. Return None if all are already empty.

    Other posts that repeat their words remain, derived data does not. An erased head moves back.
    """
    tenant, no = row["tenant"], row["no"]
    posts = transaction.rows("posts_told", tenant=tenant, no=no)
    gone = [post for post in _paired(transaction, tenant, posts, set(seqs)) if post["state"] != GONE]
    if not gone:
        return None
    quoted = CopyIndex(text for post in gone for text in _texts(transaction, tenant, post))
    stop(transaction, row, now=now)
    row = need(transaction, Scope(tenant), row["id"])
    going = _ErasedPosts(posts, gone, {post["round"] for post in gone}, quoted)
    counts, erased_memories = _take(transaction, row, going, weigh=weigh)
    empty = {post["seq"] for post in gone} | {post["seq"] for post in posts if post["state"] == GONE}
    parents, head = {post["seq"]: post["parent"] for post in posts}, row["head"]
    while head in empty:
        head = parents[head]
    if head != row["head"]:
        set_head(transaction, row, head, now=now)
    return _done(transaction, row, going, counts, erased_memories)


def _paired(transaction: Transaction, tenant: str, posts: list[Row], seqs: set[int]) -> list[Row]:
    """Return posts together with the posts of matching tool calls and results.

    Call ids are unique only within a round.
    """
    rounds = {post["round"] for post in posts if post["seq"] in seqs}
    calls = {
        post["seq"]: {(post["round"], call) for call in calls_in(_said(transaction, tenant, post)[1])}
        for post in posts
        if post["round"] in rounds
    }
    own = {call for seq in seqs for call in calls.get(seq, ())}
    return [post for post in posts if post["seq"] in seqs or own & calls.get(post["seq"], set())]


class _ErasedPosts(Struct, frozen=True):
    """The posts to erase: among all of a conversation's, with their rounds and texts, and the erased user, if any."""

    posts: list[Row]
    gone: list[Row]
    rounds: set[int]
    quoted: CopyIndex
    user: str | None = None


def _take(
    transaction: Transaction, row: Row, going: _ErasedPosts, *, weigh: Callable[[PathPost], int]
) -> tuple[Counter[str], ErasedMemories]:
    """Erase the text of posts and all derived data; return counts by kind, and the erased memories."""
    tenant, no = row["tenant"], row["no"]
    ids = {post["id"] for post in going.gone}
    counts = _take_derived(transaction, row, going)
    counts["fullText"], words = _empty(transaction, row, going, weigh=weigh)
    row["words"] -= words
    lose_corrections(transaction, tenant, no, ids)
    erased_memories = unlearn(transaction, tenant, no, ids)
    deliver_anew(transaction, tenant, no)
    return Counter(counts) + erased_memories.counts, erased_memories


def _done(
    transaction: Transaction, row: Row, going: _ErasedPosts, counts: Counter[str], erased_memories: ErasedMemories
) -> ErasedData:
    """Update a conversation's row after an erasure."""
    tenant, no = row["tenant"], row["no"]
    counts += Counter(outcomes=outcomes.forget(transaction, row, going.user, going.quoted))
    _settle(transaction, row, going.user, anew=bool(going.gone))
    raise_epoch(transaction, tenant, "conversation", str(no))
    answered = transaction.run("turns_of_rounds", tenant=tenant, no=no, rounds=json.dumps(sorted(going.rounds)))
    turns = frozenset(turn for (turn,) in answered)
    return ErasedData(dict(counts) | {"posts": len(going.gone)}, turns, going.quoted, erased_memories)


def _texts(transaction: Transaction, tenant: str, post: Row) -> list[str]:
    """Return the texts of a post and its parts."""
    message, parts = _said(transaction, tenant, post)
    return [text for text in (message, *(part.content for part in parts)) if text]


def _said(transaction: Transaction, tenant: str, post: Row) -> tuple[str | None, tuple[Part, ...]]:
    message, parts = post["message"], post["parts"]
    if post["body"] is not None:
        blob = transaction.one("blob_get", tenant=tenant, digest=post["body"])
        message, parts, _ = decode_body(blob["body"]) if blob else ("", None, None)
    return message, decode_parts(parts)


def stop(transaction: Transaction, row: Row, *, now: float) -> None:
    """End the running turn of a conversation without its partial answer, because its prompt had erased text."""
    transaction.run("steps_blank", tenant=row["tenant"], no=row["no"])
    if row["lease_until"]:
        end_expired(transaction, row, now=now)
    leave_waiting(transaction, row, now=now)


def _take_derived(transaction: Transaction, row: Row, going: _ErasedPosts) -> dict[str, int]:
    """Delete summaries, items, quotes in windows, client system texts, and turn metadata."""
    tenant, no, quoted = row["tenant"], row["no"], going.quoted
    place = {"tenant": tenant, "no": no}
    counts = {table: transaction.run(f"delete_{table}", **place).rowcount for table in ("summaries", "items")}
    counts["vectors"] = transaction.run("delete_vectors", **place).rowcount
    for table in ("reflections", "tuning", "optimizations", "outbox", "embedded"):
        transaction.run(f"delete_{table}", **place)
    digests: set[bytes] = set()
    fronts: dict[bool, set[bytes]] = {True: set(), False: set()}  # client system texts
    for raw, round_ in transaction.run("manifests_of", **place).fetchall():
        manifest = _manifest(raw)
        fronts[round_ in going.rounds].update(
            bytes.fromhex(text.digest) for text in manifest.front if text.source == CLIENT
        )
        for text in (*manifest.front, *manifest.volatile):
            digest = bytes.fromhex(text.digest)
            if digest not in digests and (
                text in manifest.volatile or text.kind == "summary" or _quotes(transaction, tenant, digest, quoted)
            ):
                digests.add(digest)
    digests |= fronts[True] - fronts[False]
    counts["blobs"] = sum(unuse(transaction, tenant, no, digest) for digest in digests)
    for turn in transaction.rows("turns_told", **place):
        told = json.loads(turn["metadata"])
        metadata = {name: value for name, value in told.items() if name not in _DERIVED and not _tells(value, quoted)}
        if metadata != told:
            transaction.run("turn_metadata", **place, n=turn["n"], metadata=json.dumps(metadata, ensure_ascii=False))
    return counts


def _quotes(transaction: Transaction, tenant: str, digest: bytes, quoted: CopyIndex) -> bool:
    blob = transaction.one("blob_get", tenant=tenant, digest=digest)
    return blob is not None and quoted.stand_in(blob["body"].decode("utf-8", "replace"))


def _tells(value: object, quoted: CopyIndex) -> bool:
    return quoted.stand_in(json.dumps(value, ensure_ascii=False))


def _empty(
    transaction: Transaction, row: Row, going: _ErasedPosts, *, weigh: Callable[[PathPost], int]
) -> tuple[int, int]:
    """Empty the text of posts; return the numbers of index entries and of words."""
    tenant, no = row["tenant"], row["no"]
    found = words = 0
    for post in going.gone:
        role: Role = ASSISTANT if post["role"] == "tool" else post["role"]  # the result no longer refers to a call
        sender = NOBODY if going.user is not None and post["sender"] == going.user else post["sender"]
        empty = PathPost(post["seq"], "", 0, role, sender, ERASED, 0, None, 0, 0, 0.0, None, None, GONE)
        post["tokens"] = weigh(empty)
        digest = digest_of(f"{GONE}\x00{no}\x00{post['seq']}".encode())
        place = {"tenant": tenant, "no": no, "seq": post["seq"]}
        values = {"sender": sender, "role": role, "message": ERASED, "tokens": post["tokens"], "digest": digest}
        transaction.run("post_erase", **place, **values)
        if post["body"] is not None:
            unuse(transaction, tenant, no, post["body"])
        key = {"id": no << SHIFT | post["seq"]}
        post_words = transaction.one("post_text_words", **key)
        if post_words is not None:
            words += post_words["c1"].count(" ") + 1
            found += transaction.run("post_text_delete", **key).rowcount
    sums = {0: 0}
    for post in going.posts:
        sums[post["seq"]] = sums[post["parent"]] + post["tokens"]
        transaction.run("post_sum", tenant=tenant, no=no, seq=post["seq"], path_tokens=sums[post["seq"]])
    return found, words


def _settle(transaction: Transaction, row: Row, user: str | None, *, anew: bool) -> None:
    """Remove the user from a conversation's row; `anew` makes it due for summarization from its first post."""
    tenant, no = row["tenant"], row["no"]
    transaction.run("post_recipient", tenant=tenant, no=no, user=user, nobody=NOBODY)
    names = {name: [each for each in json.loads(row[name]) if each != user] for name in ("participants", "speakers")}
    transaction.run("participant_delete", tenant=tenant, user=user, no=no)
    values: dict[str, Any] = {name: json.dumps(left, ensure_ascii=False) for name, left in names.items()}
    values["company"] = json.dumps(company_of(row, json.loads(row["participants"]), names["participants"]))
    values |= {name: row[name] for name in ("no", "mark", "backlog", "backlog_tokens")}
    if anew:
        tip = tip_at(transaction, tenant, no, row["head"])
        values |= {"mark": 0, "backlog": tip.path_count, "backlog_tokens": tip.path_tokens}
    transaction.run("conversation_erased", **values | {"words": max(0, row["words"])})
