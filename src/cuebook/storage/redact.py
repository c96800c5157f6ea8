"""Erase a user's posts from a conversation of others: posts and the answers to them remain as empty placeholders.

All derived data is deleted and derived again from the rest: summaries and items, quotes in windows, turn metadata, and
audit texts that repeat the erased words.
"""

import json
from collections import Counter
from collections.abc import Collection

from msgspec import Struct

from cuebook.memory.redundancy import CopyIndex
from cuebook.records.conversation import ASSISTANT, PathPost, Post, Role, calls_in, chain, digest_of
from cuebook.records.erasure import ERASED, GONE, NOBODY
from cuebook.records.memory import Scope
from cuebook.records.turn import ASKED, CLIENT, RECALLED, Manifest
from cuebook.storage import outcomes
from cuebook.storage.access import ConversationRow, lose_corrections, need, raise_epoch, unuse
from cuebook.storage.database.columns import decode, encode_json
from cuebook.storage.database.transaction import Transaction
from cuebook.storage.memories import ErasureTally, deliver_anew, unlearn
from cuebook.storage.reads import posts_on
from cuebook.storage.tree import SHIFT, tip_at
from cuebook.storage.turns import end_expired, end_parallel, parallel_turns
from cuebook.storage.writes import company_of, leave_waiting, set_head

#: Turn metadata derived from the conversation's text, or attached by a client.
_DERIVED = ("rollingSummary", RECALLED, "retrievedContext", ASKED)


class ErasedPosts(Struct):
    """The posts to erase: among all of a conversation's, with their rounds, turns and texts, and the erased user."""

    posts: list[Post]
    gone: list[Post]
    rounds: set[int]
    quoted: CopyIndex
    user: str | None = None
    turns: frozenset[int] = frozenset()  # that answered the rounds


def redact(row: ConversationRow, user: str, tally: ErasureTally) -> ErasedPosts | None:
    """Erase a user's posts in a conversation of others; None if they have no posts there and take no part."""
    going = concerning(row, user)
    if going is None:
        return None
    if going.rounds:
        row = _take(row, going, tally)
    return _done(row, going, tally)


def concerning(row: ConversationRow, user: str) -> ErasedPosts | None:
    """Return a user's posts in a conversation of others, with the answers to them and those that repeat them."""
    posts = posts_on(row, [(1, row.last_seq)])
    own = [post for post in posts if post.sender == user and post.role == "user"]
    if not own and user not in row.participants:
        return None
    texts = {post.seq: _texts(post) for post in posts} if own else {}
    quoted = CopyIndex(text for post in own for text in texts[post.seq])
    rounds = {post.seq for post in own}
    gone = own + [
        post
        for post in posts
        if post.role != "user"
        and (post.round in rounds or any(quoted.stand_in(text) for text in texts.get(post.seq, ())))
    ]
    return ErasedPosts(posts, gone, rounds, quoted, user)


def redact_posts(row: ConversationRow, seqs: Collection[int], tally: ErasureTally) -> ErasedPosts | None:
    """Erase posts; tool calls and their results are erased together. Return None if all are already empty.

    Other posts that repeat their words remain, derived data does not. An erased head moves back.
    """
    posts = posts_on(row, [(1, row.last_seq)])
    gone = [post for post in _paired(posts, set(seqs)) if post.state != GONE]
    if not gone:
        return None
    quoted = CopyIndex(text for post in gone for text in _texts(post))
    going = ErasedPosts(posts, gone, {post.round for post in gone}, quoted)
    row = _take(row, going, tally)
    empty = {post.seq for post in gone} | {post.seq for post in posts if post.state == GONE}
    parents, head = {post.seq: post.parent for post in posts}, row.head
    while head in empty:
        head = parents[head]
    if head != row.head:
        set_head(row, head, now=tally.now)
    return _done(row, going, tally)


def _paired(posts: list[Post], seqs: set[int]) -> list[Post]:
    """Return posts together with the posts of matching tool calls and results.

    Call ids are unique only within a round.
    """
    rounds = {post.round for post in posts if post.seq in seqs}
    calls = {post.seq: {(post.round, call) for call in calls_in(post.parts)} for post in posts if post.round in rounds}
    own = {call for seq in seqs for call in calls.get(seq, ())}
    return [post for post in posts if post.seq in seqs or own & calls.get(post.seq, set())]


def _take(row: ConversationRow, going: ErasedPosts, tally: ErasureTally) -> ConversationRow:
    """Erase the text of posts and all derived data; end the running turn. Return the conversation's row."""
    stop(row, now=tally.now)
    row = need(row.transaction.within(Scope(row.tenant)), row.id)
    ids = {post.id for post in going.gone}
    counts = Counter(_take_derived(row, going))
    counts["fullText"] = _empty(row, going, tally)
    tally.rows.update(+counts)
    lose_corrections(row, ids)
    unlearn(row, tally, ids)
    deliver_anew(row.transaction, row.no)
    return row


def _done(row: ConversationRow, going: ErasedPosts, tally: ErasureTally) -> ErasedPosts:
    """Update a conversation's row after an erasure."""
    outcome_count = outcomes.forget(row, going.user, going.quoted)
    tally.rows.update(+Counter(outcomes=outcome_count), posts=len(going.gone))
    _settle(row, going.user, anew=bool(going.gone))
    raise_epoch(row.transaction, "conversation", str(row.no))
    answered = row.run("turns_of_rounds", rounds=json.dumps(sorted(going.rounds)))
    going.turns = frozenset(turn for (turn,) in answered)
    return going


def _texts(post: Post) -> list[str]:
    """Return the texts of a post and its parts."""
    return [text for text in (post.message, *(part.content for part in post.parts)) if text]


def stop(row: ConversationRow, *, now: float) -> None:
    """End the running turn of a conversation without its partial answer, because its prompt had erased text."""
    row.run("steps_blank")
    if row.lease_until:
        end_expired(row, now=now)
    for turn in parallel_turns(row):
        end_parallel(row, turn, now=now)
    leave_waiting(row, now=now)


def _take_derived(row: ConversationRow, going: ErasedPosts) -> dict[str, int]:
    """Delete summaries, items, quotes in windows, client system texts, and turn metadata."""
    quoted = going.quoted
    counts = {table: row.run(f"delete_{table}").rowcount for table in ("summaries", "items")}
    counts["vectors"] = row.run("delete_vectors").rowcount
    for table in ("reflections", "tuning", "optimizations", "outbox", "embedded"):
        row.run(f"delete_{table}")
    digests: set[bytes] = set()
    gone = {post.seq for post in going.gone}
    fronts: dict[bool, set[bytes]] = {True: set(), False: set()}  # client system texts
    for raw, round_ in row.run("manifests_of").fetchall():
        manifest = decode(Manifest, raw)
        fronts[round_ in going.rounds].update(
            bytes.fromhex(text.digest) for text in manifest.front if text.source == CLIENT
        )
        copies = {bytes.fromhex(each.digest): seq for seq, each in manifest.copies.items()}
        digests.update(
            digest for digest, seq in copies.items() if seq in gone or _quotes(row.transaction, digest, quoted)
        )
        for text in (*manifest.front, *manifest.volatile):
            digest = bytes.fromhex(text.digest)
            if digest not in digests and (
                text in manifest.volatile or text.kind == "summary" or _quotes(row.transaction, digest, quoted)
            ):
                digests.add(digest)
    digests |= fronts[True] - fronts[False]
    counts["blobs"] = sum(unuse(row.transaction, row.no, digest) for digest in digests)
    for turn in row.rows("turns_told"):
        told = json.loads(turn["metadata"])
        metadata = {
            name: value
            for name, value in told.items()
            if name not in _DERIVED and not quoted.stand_in(json.dumps(value, ensure_ascii=False))
        }
        if metadata != told:
            row.run("turn_metadata", n=turn["n"], metadata=encode_json(metadata))
    return counts


def _quotes(transaction: Transaction, digest: bytes, quoted: CopyIndex) -> bool:
    body = transaction.value("blob_get", digest=digest)
    return body is not None and quoted.stand_in(body.decode("utf-8", "replace"))


def _empty(row: ConversationRow, going: ErasedPosts, tally: ErasureTally) -> int:
    """Empty the text of posts; return the number of index entries."""
    found = 0
    empty: dict[int, tuple[int, bytes]] = {}  # tokens and digests by seq
    for post in going.gone:
        role: Role = ASSISTANT if post.role == "tool" else post.role  # the result no longer refers to a call
        sender = NOBODY if going.user is not None and post.sender == going.user else post.sender
        tokens = tally.weigh(PathPost(post.seq, "", 0, role, sender, ERASED, 0, None, 0, 0, 0.0, None, None, GONE))
        digest = digest_of(f"{GONE}\x00{row.no}\x00{post.seq}".encode())
        empty[post.seq] = tokens, digest
        body = row.value("post_body", seq=post.seq)
        values = {"sender": sender, "role": role, "message": ERASED, "tokens": tokens, "digest": digest}
        row.run("post_erase", seq=post.seq, **values)
        if body is not None:
            unuse(row.transaction, row.no, body)
        found += row.transaction.run("post_text_delete", id=row.no << SHIFT | post.seq).rowcount
    sums, chains = {0: 0}, {0: b""}
    for post in going.posts:
        tokens, digest = empty.get(post.seq, (post.tokens, post.digest))
        sums[post.seq] = sums[post.parent] + tokens
        chains[post.seq] = chained = chain(chains[post.parent], [digest])
        row.run("post_sum", seq=post.seq, path_tokens=sums[post.seq], chain=chained)
    return found


def _settle(row: ConversationRow, user: str | None, *, anew: bool) -> None:
    """Remove the user from a conversation's row; `anew` makes it due for summarization from its first post."""
    row.run("post_recipient", user=user, nobody=NOBODY)
    row.run("participant_delete", user=user)
    left = tuple(each for each in row.participants if each != user)
    row.company, row.participants = company_of(row, left), left
    row.speakers = tuple(each for each in row.speakers if each != user)
    if anew:
        tip = tip_at(row, row.head)
        row.mark, row.backlog, row.backlog_tokens = 0, tip.path_count, tip.path_tokens
    row.run("conversation_erased", **row.columns)
