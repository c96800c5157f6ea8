"""Read conversations: a turn's scene (snapshot), transcripts, turns, texts, and the alignment of resent histories."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import (
    Alignment,
    IdempotencyRecord,
    PathQuery,
    PostSpot,
    Scene,
    SearchLook,
    StoredPath,
)
from cuebook.prompts.inherit import DEPTH
from cuebook.prompts.names import overrides, project_of
from cuebook.records.answer import Page
from cuebook.records.conversation import Conversation, PathPost, Post, RoundState
from cuebook.records.memory import SearchResult, Summary
from cuebook.records.turn import RECALLED, Step, Turn
from cuebook.storage import access, memories, search
from cuebook.storage.access import ConversationRow, current_epoch, last_correction
from cuebook.storage.database.columns import LARGEST, Row, record
from cuebook.storage.database.transaction import Database, Noun, Transaction, read
from cuebook.storage.prompts import families_of
from cuebook.storage.reflections import newest_on, turn_on
from cuebook.storage.tree import (
    Paths,
    Runs,
    backlog,
    draft_decoder,
    mark_on,
    on_path,
    runs_to,
    stretch,
    text_of,
    tip_at,
    unread,
    with_bodies,
    with_body,
)
from cuebook.storage.tree import after as runs_after
from cuebook.storage.tuning import standing, work_on

#: The separator in a summary's `made_by` between a model's name and its prompt version.
TOLD = "\x1f"
#: Newest conversations looked up for each answer of a history without a conversation id,
CANDIDATES = 16
#: and candidates compared in full: those with the most matching answers.
ALIGNED = 4

_Size = Callable[[PathPost], int]
_TOKENS: _Size = attrgetter("tokens")
_SMALL_TOKENS: _Size = attrgetter("small_tokens")


class ConversationReader(Noun):
    """Reads conversations, their posts and their turns."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.cache = search.SearchCache()
        self.paths = Paths() if database.shared_snapshots else None

    @read
    def scene(self, transaction: Transaction, path_query: PathQuery) -> Scene:
        """Load everything that a turn needs, in one snapshot."""
        row = access.find(transaction, path_query.conversation)
        kept = row.metadata.get("project") if row and path_query.prompts else None
        own = overrides(path_query.prompts, project_of(path_query.project, kept, path_query.otherwise))
        families = families_of(transaction, (*own, *path_query.prompts), DEPTH) if path_query.prompts else {}
        epoch = current_epoch(transaction)
        look, dense = path_query.memory, path_query.search.dense if path_query.search else None
        if row is None:
            known = memories.memory_context(transaction, look, None, self.cache, dense=dense) if look else None
            return Scene(
                conversation=Conversation(id=path_query.conversation), families=families, known=known, epoch=epoch
            )
        if self.paths:
            self.paths.see(transaction.scope.tenant, epoch)
        if access.awaits_owner(row):
            row.user = transaction.scope.user
        parent = row.head if path_query.parent is None else path_query.parent
        runs = runs_to(row, parent)
        turns = row.rows("turns_last", limit=1)
        last = _turn(transaction, turns[0]) if turns else None
        waiting = row.one("turn_waiting")
        previous = last.steps[-1].manifest if last and last.steps else None
        mark, version = read_mark(row, runs, path_query, shown=previous.summary_version if previous else 0)
        behind = runs if path_query.whole else runs_after(runs, mark)
        path, left = _read_path(row, behind, path_query, self.paths, epoch=epoch)
        said = last.metadata.get(RECALLED, {}).get("durable", ()) if last else ()
        known = memories.memory_context(transaction, look, row, self.cache, dense=dense, keep=said) if look else None
        recalls = path_query.quotes or known is None or known.policy.recalls
        return Scene(
            conversation=row.record(),
            parent=parent,
            path=path,
            unread=unread(row, left),
            path_count=tip_at(row, parent).path_count,
            summary=summary(row, version) if version else None,
            waiting_turn=_turn(transaction, waiting) if waiting else None,
            previous=previous,
            found=search.search(row, runs, path_query.search, self.cache)
            if path_query.search and recalls
            else search.NOTHING,
            speakers=tuple(row.speakers),
            told=last.metadata if last else {},
            last_turn=turn_on(row, runs),
            reflection=newest_on(row, runs, upto=row.turns),
            tuning=standing(row),
            work=work_on(row),
            families=families,
            epoch=epoch,
            corrected=last_correction(row) if version else 0,
            known=known,
        )

    @read
    def align(
        self,
        transaction: Transaction,
        digests: Sequence[bytes],
        *,
        conversation: str | None,
        anchors: Sequence[bytes] = (),
    ) -> list[Alignment]:
        """Find the posts of messages, in the named conversation or in this user's conversations with an anchor."""
        if conversation is not None:
            row = access.find(transaction, conversation)
            return [_places(row, digests)] if row else []
        found = (access.by_no(transaction, no) for no in _holding(transaction, anchors))
        return [_places(row, digests) for row in found if row is not None]

    @read
    def stored_paths(
        self, transaction: Transaction, chains: Sequence[tuple[int, bytes]], *, conversation: str | None
    ) -> list[StoredPath]:
        """Return the stored paths with the first of these depths and chained digests that has any, newest first.

        They are in the named conversation, or in this user's conversations.
        """
        row = access.find(transaction, conversation) if conversation is not None else None
        if conversation is not None and row is None:
            return []
        for depth, chained in chains:
            values = {"chain": chained, "depth": depth, "limit": CANDIDATES}
            if row is not None:
                ends = row.run("posts_by_chain", **values).fetchall()
            else:
                ends = transaction.run("posts_by_chain_of_user", **values).fetchall()
            if ends:
                rows = ((row or access.by_no(transaction, no), seq) for no, seq in ends)
                return [_path(each, seq) for each, seq in rows if each is not None]
        return []

    @read
    def answers_at_heads(self, transaction: Transaction, *, looked: int, limit: int) -> list[tuple[Conversation, str]]:
        """Return the user's newest conversations that end with an answer, among the tenant's `looked` newest."""
        values = {"looked": looked, "limit": limit}
        return [
            (row.record(), text_of(transaction, each["message"], each["body"]))
            for each in transaction.rows("answers_at_heads", **values)
            if (row := access.by_no(transaction, each["no"])) is not None
        ]

    @read
    def framed_texts(
        self, transaction: Transaction, frame: tuple[bytes, bytes], *, user: str | None, limit: int
    ) -> list[str]:
        """Return first messages of a user's conversations that begin or end with the same words."""
        opening, ending = frame
        values = {"opening": opening, "ending": ending, "user": user, "limit": limit}
        found = transaction.run("framed_texts", **values).fetchall()
        return [text_of(transaction, message, body) for message, body in found]

    @read
    def idempotency_record(self, transaction: Transaction, key: str) -> IdempotencyRecord | None:
        """Return what an Idempotency-Key was used for, or None."""
        row = transaction.one("idempotency_get", key=access.own_key(transaction.scope, key))
        if row is None:
            return None
        step = int(row["response"] or 1) if row["turn"] else 0
        return IdempotencyRecord(row["digest"], row["id"], row["turn"], step)

    @read
    def conversation(self, transaction: Transaction, conversation: str) -> Conversation:
        """Return one conversation. Raises NotFound."""
        return access.need(transaction, conversation).record()

    @read
    def conversations(self, transaction: Transaction, *, limit: int, cursor: str | None = None) -> Page[Conversation]:
        """List the caller's conversations without utility calls, most recent first."""
        limit = max(1, limit)
        before, before_no = read_cursor(cursor)
        items = transaction.rows("conversations_page", before=before, before_no=before_no, limit=limit + 1)
        entries = items[:limit]
        more = f"{entries[-1]['updated_at']!r}:{entries[-1]['no']}" if len(items) > limit else None
        return Page(items=tuple(record(Conversation, row) for row in entries), next=more)

    @read
    def posts(
        self,
        transaction: Transaction,
        conversation: str,
        *,
        path: bool = True,
        head: int | None = None,
        last: int | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[Post]:
        """Return posts of a path, by default the head's, oldest first, or of all branches by seq.

        `last` is the number of newest posts; `limit` that of the first ones after the seq `after`.
        """
        row = access.need(transaction, conversation)
        runs = runs_to(row, row.head if head is None else head) if path else [(1, row.last_seq)]
        if last is not None:
            runs = newest(runs, last)
        return posts_on(row, runs_after(runs, after), limit)

    @read
    def post_digests(self, transaction: Transaction, conversation: str, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the content digests of those posts that are stored, by id. Raises NotFound for others' conversations.

        There are none if there is no such conversation.
        """
        row = access.find(transaction, conversation)
        return {} if row is None else dict(row.run("post_digests", ids=json.dumps(ids)).fetchall())

    @read
    def posts_in(
        self, transaction: Transaction, conversation: str, ranges: Sequence[tuple[int, int]]
    ) -> list[PathPost]:
        """Return posts of seq ranges, in the order of the ranges; erased ones are omitted."""
        row = access.need(transaction, conversation)
        path_posts: list[PathPost] = []
        for span in ranges:
            newest_first = _all(stretch(row, "path_stretch", [span]))
            path_posts.extend(reversed(with_bodies(row, newest_first)))
        return path_posts

    @read
    def round_states(self, transaction: Transaction, conversation: str) -> dict[int, RoundState]:
        """Return the state of every round by seq: its newest turn's state, else finished if it has an answer."""
        row = access.need(transaction, conversation)
        states: dict[int, RoundState] = {seq: "finished" for (seq,) in row.run("rounds_answered")}
        for seq, state in row.run("rounds_of_turns"):
            if seq:
                states[seq] = "finished" if state == "finished" else "created" if state == "running" else "failed"
        return states

    @read
    def turn(self, transaction: Transaction, conversation: str, n: int) -> Turn:
        """Return one turn of a conversation."""
        row = access.need(transaction, conversation)
        data = row.one("turn_get", n=n)
        if data is None:
            msg = f"Unknown turn {n} of conversation {conversation!r}. Number of turns: {row.turns}."
            raise NotFound(msg)
        return _turn(transaction, data)

    @read
    def turns(self, transaction: Transaction, conversation: str, *, last: int) -> list[Turn]:
        """Return the newest turns, oldest first."""
        row = access.need(transaction, conversation)
        items = row.rows("turns_last", limit=last)
        return [_turn(transaction, each) for each in reversed(items)]

    @read
    def texts(self, transaction: Transaction, digests: Sequence[str]) -> dict[str, str]:
        """Return stored texts by digest (hex); erased ones are omitted."""
        texts_by_digest = {}
        for digest in digests:
            body = transaction.value("text_get", digest=bytes.fromhex(digest))
            if body is not None:
                texts_by_digest[digest] = body.decode("utf-8", "surrogatepass")
        return texts_by_digest

    @read
    def search(self, transaction: Transaction, search_look: SearchLook, *, conversation: str | None) -> SearchResult:
        """Search one conversation's head path, or all of the user's conversations."""
        if conversation is None:
            return search.search_owned(transaction, search_look, self.cache)
        row = access.find(transaction, conversation)
        if row is None:
            return search.NOTHING
        runs = runs_to(row, row.head)
        return search.search(row, runs, search_look, self.cache)


def _read_path(
    row: ConversationRow, runs: Runs, path_query: PathQuery, paths: Paths | None, *, epoch: int
) -> tuple[tuple[PathPost, ...], Runs]:
    """Read the newest posts in full up to one cap, then older ones compressed up to the other cap."""
    most = path_query.post_tokens or LARGEST
    newest = paths.stretch(row, runs) if paths else stretch(row, "path_stretch", runs)
    taken, left = _take(newest, runs, _TOKENS, path_query.full_tokens, most=most)
    if left and not taken:  # at least one post, however long
        last = left[0][1]
        taken = _all(stretch(row, "path_stretch", [(last, last)]))
        left = _until(left, last - 1)
    if paths and taken:
        paths.hold(row, taken[: runs[0][1] - runs[0][0] + 1], epoch=epoch)
    cap = path_query.small_tokens - _compressed(taken, path_query.small_after or path_query.full_tokens, most)
    path_posts = with_bodies(row, taken)
    if left:
        older = stretch(row, "small_stretch", left)
        taken, left = _take(older, left, _SMALL_TOKENS, cap)
        path_posts += with_bodies(row, taken, small=True)
    path_posts.reverse()
    return tuple(path_posts), left


def _all(results: Iterator[list[PathPost]]) -> list[PathPost]:
    return [post for posts in results for post in posts]


def _take(
    newest: Iterator[list[PathPost]], runs: Runs, size: _Size, cap: int, *, most: int = LARGEST
) -> tuple[list[PathPost], Runs]:
    """Take posts until their sizes, at most `most` each, exceed the cap; return them and the remaining runs."""
    path_posts: list[PathPost] = []
    used = 0
    for found in newest:
        sizes = _sizes(found, size, most)
        fit = max(0, bisect_right(list(accumulate(sizes, initial=used)), cap) - 1)
        path_posts += found[:fit]
        if fit < len(found):
            return path_posts, _until(runs, found[fit].seq)
        used += sum(sizes)
    return path_posts, []


def _sizes(path_posts: Sequence[PathPost], size: _Size, most: int) -> list[int]:
    sizes = list(map(size, path_posts))
    return sizes if max(sizes, default=0) <= most else [min(each, most) for each in sizes]


def _compressed(path_posts: Sequence[PathPost], after: int, most: int) -> int:
    """Return the compressed tokens of the posts beyond a number of full tokens."""
    token_sums = list(accumulate(_sizes(path_posts, _TOKENS, most)))
    return sum(map(_SMALL_TOKENS, path_posts[bisect_right(token_sums, after) :]))


def _until(runs: Runs, seq: int) -> Runs:
    """Return the part of a path up to a seq, newest first."""
    return [(first, min(last, seq)) for first, last in runs if first <= seq]


def _turn(transaction: Transaction, row: Row) -> Turn:
    steps = transaction.rows("steps_of", no=row["conversation"], turn=row["n"])
    partial = steps[-1]["partial"] if steps else None
    return record(
        Turn,
        row,
        steps=tuple(record(Step, each) for each in steps),
        partial=draft_decoder.decode(partial).message if partial else "",
    )


def summary(row: ConversationRow, version: int) -> Summary | None:
    """Return one summary of a conversation."""
    data = row.one("summary_get", version=version)
    if data is None:
        return None
    made_by, _, prompt = data["made_by"].partition(TOLD)
    return record(Summary, data, made_by=made_by, prompt=prompt)


def posts_on(row: ConversationRow, runs: Runs, limit: int | None = None) -> list[Post]:
    """Return the posts of a path, oldest first: the first `limit`, by default all."""
    posts: list[Post] = []
    for first, last in reversed(runs):
        end = last if limit is None else min(last, first + limit - len(posts) - 1)
        if end < first:
            break
        found = row.transaction.records(Post, "posts_stretch", no=row.no, first=first, last=end)
        posts += [post if post.message else with_body(row.transaction, post) for post in found]
    return posts


def newest(runs: Runs, count: int) -> Runs:
    """Return the last posts of a path, newest first."""
    remaining: Runs = []
    for first, last in runs:
        if count <= 0:
            break
        start = max(first, last - count + 1)
        remaining.append((start, last))
        count -= last - start + 1
    return remaining


def read_cursor(cursor: str | None) -> tuple[float, int]:
    """Parse a cursor into the time and number before which a page starts. Raises InvalidInput."""
    if cursor is None:
        return float("inf"), 0
    try:
        before, _, number = cursor.partition(":")
        return float(before), min(int(number), LARGEST)
    except ValueError:
        msg = f"Invalid cursor {cursor!r}. Start again without a cursor."
        raise InvalidInput(msg, where="cursor") from None


def _holding(transaction: Transaction, anchors: Sequence[bytes]) -> list[int]:
    """Return this user's conversations with the most anchors; ties newest first."""
    held: Counter[int] = Counter()
    for anchor in anchors:
        values = {"digest": anchor, "limit": CANDIDATES}
        held.update(no for (no,) in transaction.run("conversations_by_digest", **values))
    return sorted(held, key=lambda no: (held[no], no), reverse=True)[:ALIGNED]


def _path(row: ConversationRow, seq: int) -> StoredPath:
    runs = runs_to(row, seq)
    seqs = tuple(each for first, last in reversed(runs) for each in range(first, last + 1))
    leads = seq == row.head or on_path(runs_to(row, row.head), seq)
    return StoredPath(row.record(), seqs, leads)


def _places(row: ConversationRow, digests: Sequence[bytes]) -> Alignment:
    head = row.head
    asked = list(dict.fromkeys(digests))
    known: dict[bytes, list[int]] = {digest: [] for digest in asked}
    posts: dict[int, PostSpot] = {}
    follows: dict[int, int] = {}  # run -> its parent post
    values = {"digests": b"".join(asked), "at": json.dumps(list(range(len(asked))))}
    # One row of JSON: reading row by row would release and reacquire the GIL each time.
    here = json.loads(row.value("posts_by_digests", **values))
    for at, seq, parent, depth, run, run_parent in sorted(here):
        known[asked[at]].append(seq)
        posts[seq] = PostSpot(parent, depth, run)
        follows[run] = run_parent
    if head and head not in posts:
        seq, parent, depth, run, run_parent = row.run("spot_of", seq=head).fetchone()
        posts[seq], follows[run] = PostSpot(parent, depth, run), run_parent
    places = tuple(tuple(known[digest]) for digest in digests)
    return Alignment(row.record(), places, posts, _runs_up(row, follows))


def _runs_up(row: ConversationRow, follows: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Return the parent post of each run on the paths to the root, and the parent's run."""
    runs: dict[int, tuple[int, int]] = {}
    waiting = list(follows.items())
    while waiting:
        run, seq = waiting.pop()
        if run in runs:
            continue
        runs[run] = (0, 0)
        if seq:
            start, parent = row.run("run_of", seq=seq).fetchone()
            runs[run] = (seq, start)
            waiting.append((start, parent))
    return runs


# ---- the summary of a path ------------------------------------------------------------------------------------------


def read_mark(row: ConversationRow, runs: Runs, path_query: PathQuery, *, shown: int) -> tuple[int, int]:
    """Return seq and version of the summary from which a path is read, (0, 0) for none.

    `shown` is the version in the last window. It is reused while few posts follow it, so that the provider's prompt
    cache still matches the start of the prompt.
    """
    if not path_query.use_summary or path_query.summary_version == 0:
        return 0, 0
    if path_query.summary_version is not None:
        named = _summary_on(row, runs, path_query.summary_version)
        return (named["upto_seq"], named["version"]) if named else (0, 0)
    mark, version = _newest_summary(row, runs)
    if 0 < shown < version and path_query.steady_posts:
        steady = _summary_on(row, runs, shown)
        if steady and _serves(row, runs, path_query, steady):
            return steady["upto_seq"], shown
    return mark, version


def _newest_summary(row: ConversationRow, runs: Runs) -> tuple[int, int]:
    if not runs or runs[0][1] != row.head:
        return mark_on(row, runs)
    if not row.mark:  # the head's mark is stored in the conversation's row
        return 0, 0
    return row.mark, row.value("summary_ending", mark=row.mark)


def _summary_on(row: ConversationRow, runs: Runs, version: int) -> Row | None:
    """Return a summary of a path, None if it is of another one."""
    data = row.one("summary_get", version=version)
    return data if data and on_path(runs, data["upto_seq"]) else None


def _serves(row: ConversationRow, runs: Runs, path_query: PathQuery, steady: Row) -> bool:
    """Return whether an earlier summary includes all corrections, and few posts follow it."""
    posts, tokens = backlog(row, tip_at(row, runs[0][1]), steady["upto_seq"])
    if posts > path_query.steady_posts or tokens > path_query.full_tokens // 2:
        return False
    return bool(steady["corrected"] >= last_correction(row))
