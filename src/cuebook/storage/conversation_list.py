"""List and search conversations, and read their branches, answering turns, usage and shadow calls."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cuebook.records.answer import Page
from cuebook.records.turn import (
    CallUsageRecord,
    ConversationSummary,
    Manifest,
    PostPlace,
    PostRun,
    ShadowCallUsage,
    ShadowedCall,
    TurnEntry,
)
from cuebook.storage import access
from cuebook.storage.access import ConversationRow, conversation_row
from cuebook.storage.database.columns import Row, decode, record
from cuebook.storage.database.transaction import Noun, Transaction, read
from cuebook.storage.reads import read_cursor
from cuebook.storage.tree import read_body

#: Block kinds that replace posts.
_IN_PLACE: Final = ("summary", "memory")
#: Letters of a conversation's first words.
_SAID: Final = 400
#: Conversations examined per batch in a word search.
_AT_ONCE: Final = 500


class ConversationListStore(Noun):
    """Loads conversation lists, their structure, and the calls of their turns."""

    async def written(self) -> tuple[int, int]:
        """Return a reader and its mark. The reader's next mark differs if any process wrote anything for any tenant.

        It only indicates that data may have changed.
        """
        return await self.database.version()

    @read
    def find(
        self,
        transaction: Transaction,
        words: Sequence[str],
        *,
        limit: int,
        cursor: str | None = None,
        utility: bool = False,
    ) -> Page[ConversationSummary]:
        """Return the conversations that the caller takes part in, or with `utility` the utility calls, newest first.

        With `words`: those that contain each word, ignoring case, in their id, user or the start of their first post.
        Raises InvalidInput for an invalid cursor.
        """
        before, before_no = read_cursor(cursor)
        wanted = [each.casefold() for each in words]
        items: list[tuple[Row, str]] = []
        at_once = _AT_ONCE if wanted else limit + 1
        for row in _all(transaction, before, before_no, at_once, utility=utility):
            said = row["said"] or _first_words(transaction, row["no"])
            searchable = " ".join((row["id"], row["user_id"] or "", said)).casefold()
            if all(each in searchable for each in wanted):
                items.append((row, said))
            if len(items) > limit:
                break
        entries = items[:limit]
        more = f"{entries[-1][0]['updated_at']!r}:{entries[-1][0]['no']}" if len(items) > limit else None
        return Page(items=tuple(_talk(conversation_row(transaction, row), said) for row, said in entries), next=more)

    @read
    def first_words(self, transaction: Transaction, conversation: str) -> str:
        """Return the start of a conversation's first user post with text, "" without one. Raises NotFound."""
        return _first_words(transaction, access.need(transaction, conversation).no)

    @read
    def runs(self, transaction: Transaction, conversation: str) -> list[PostRun]:
        """Return the runs of a conversation's tree, by their first post. Raises NotFound."""
        return _runs(access.need(transaction, conversation))

    @read
    def answering(self, transaction: Transaction, conversation: str, *, first: int, last: int) -> list[TurnEntry]:
        """Return the turns of the rounds `first`..`last`, both included, oldest first. Raises NotFound."""
        row = access.need(transaction, conversation)
        turns: dict[int, TurnEntry] = {}
        for step in row.rows("turns_answering", first=first, last=last):
            before = turns.get(step["turn"])
            replies = {step["reply_seq"]: step["step"]} if step["reply_seq"] else {}
            turns[step["turn"]] = record(
                TurnEntry,
                step,
                replies=(before.replies if before else {}) | replies,
                tokens=decode(Manifest, step["manifest"]).tokens,
            )
        return list(turns.values())

    @read
    def answers(self, transaction: Transaction, conversation: str, rounds: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the turn and step of each answer in some rounds, by its seq. Raises NotFound."""
        row = access.need(transaction, conversation)
        answers = row.run("answers_of_rounds", rounds=json.dumps(list(rounds)))
        return {seq: (turn, n) for seq, turn, n in answers}

    @read
    def places(self, transaction: Transaction, conversation: str, ids: Sequence[str]) -> dict[str, PostPlace]:
        """Return the places of posts by id, without missing posts. Raises NotFound."""
        row = access.need(transaction, conversation)
        found = (row.one("post_place", id=each) for each in dict.fromkeys(ids))
        return {post["id"]: PostPlace(**post) for post in found if post is not None}

    @read
    def calls(self, transaction: Transaction, conversation: str, *, first: int, last: int) -> list[CallUsageRecord]:
        """Return the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""
        row = access.need(transaction, conversation)
        return [_spent(call) for call in row.rows("calls_spent", first=first, last=last)]

    @read
    def shadow_calls(self, transaction: Transaction, conversation: str | None) -> list[ShadowedCall]:
        """Return the shadow calls of a conversation, or of all that the caller takes part in, oldest first. Raises
        NotFound.
        """
        no = None if conversation is None else access.need(transaction, conversation).no
        items = transaction.rows("shadow_calls", no=no)
        steps = [(row, json.loads(row["kept"]).get(str(row["step"]))) for row in items]
        return [
            record(ShadowedCall, row, entry=msgspec.convert(entry, ShadowCallUsage))
            for row, entry in steps
            if entry is not None  # the step ended before it was recorded, or was not in shadow mode
        ]


def _all(transaction: Transaction, before: float, before_no: int, at_once: int, *, utility: bool) -> Iterator[Row]:
    while True:
        place = {"before": before, "before_no": before_no, "utility": int(utility)}
        items = transaction.rows("talks_page", **place, limit=at_once)
        yield from items
        if len(items) < at_once:
            return
        before, before_no = items[-1]["updated_at"], items[-1]["no"]


def _first_words(transaction: Transaction, no: int) -> str:
    """Return the start of the first user post with text, also if its body is stored apart."""
    for text, digest in transaction.run("talk_said", no=no):
        if words := text or (read_body(transaction, digest)[0] if digest else ""):
            return words[:_SAID]
    return ""


def _talk(row: ConversationRow, said: str) -> ConversationSummary:
    ways = _runs(row)
    followed = {each.parent for each in ways}
    last = row.one("turn_newest")
    return ConversationSummary(
        conversation=row.record(),
        said=said,
        branches=sum(each.last not in followed for each in ways),
        tokens=decode(Manifest, last["manifest"]).tokens if last else 0,
        state=last["state"] if last else None,
        shadow=bool(last and last["shadow"]),
    )


def _runs(row: ConversationRow) -> list[PostRun]:
    """Return the runs of a tree, ordered by first post. The cost grows with the runs, not with the posts."""
    post_runs: list[PostRun] = []
    last = row.last_seq
    while last:
        run = row.run("run_of", seq=last).fetchone()
        if run is None:
            break
        post_runs.append(PostRun(run[0], last, run[1]))
        last = run[0] - 1
    return post_runs[::-1]


def _spent(row: Row) -> CallUsageRecord:
    manifest = decode(Manifest, row["manifest"])
    front = sum(text.tokens for text in manifest.front if text.kind not in _IN_PLACE)
    newest = row["step"] == row["steps"]
    return record(
        CallUsageRecord,
        row,
        tokens=manifest.tokens,
        whole=front + row["path_tokens"] + manifest.tools_tokens,
        cache=json.loads(row["cache"]) if newest and row["cache"] else None,
        model=row["model"] or "",
    )
