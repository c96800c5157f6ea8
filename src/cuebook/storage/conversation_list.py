"""List and search conversations, and read their branches, answering turns, usage and shadow calls."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cuebook.records.conversation_list import ConversationSummaries, ConversationSummary, PostPlace, PostRun, TurnEntry
from cuebook.records.memory import Scope
from cuebook.records.turn import Manifest, Usage
from cuebook.records.usage import CallUsageRecord, ShadowCallUsage, ShadowedCall
from cuebook.storage import access
from cuebook.storage import rows as records
from cuebook.storage.database.transaction import Noun, Row, Transaction, read
from cuebook.storage.reads import read_cursor

#: Conversations examined per batch in a word search.
_AT_ONCE: Final = 500
_manifest = msgspec.json.Decoder(Manifest).decode


class ConversationListStore(Noun):
    """Loads conversation lists and their structure."""

    async def written(self) -> tuple[int, int]:
        """Return a reader and its mark. The reader's next mark differs if any process wrote anything for any tenant.

        It only indicates that data may have changed.
        """
        return await self.database.version()

    @read
    def find(
        self, transaction: Transaction, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None = None
    ) -> ConversationSummaries:
        """Return the conversations that the caller takes part in, most recent first.

        With `words`: those that contain each word, ignoring case, in their id, user or the start of their first post.
        Raises InvalidInput for an invalid cursor.
        """
        return _found(transaction, scope, words, limit=limit, cursor=cursor)

    @read
    def runs(self, transaction: Transaction, scope: Scope, conversation: str) -> list[PostRun]:
        """Return the runs of a conversation's tree, by their first post. Raises NotFound."""
        data = access.need(transaction, scope, conversation)
        return _runs(transaction, scope.tenant, data["no"], data["last_seq"])

    @read
    def answering(
        self, transaction: Transaction, scope: Scope, conversation: str, *, first: int, last: int
    ) -> list[TurnEntry]:
        """Return the turns of the rounds `first`..`last`, both included, oldest first. Raises NotFound."""
        no = access.need(transaction, scope, conversation)["no"]
        return _answering(transaction, scope.tenant, no, first, last)

    @read
    def answers(
        self, transaction: Transaction, scope: Scope, conversation: str, rounds: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """Return the turn and step of each answer in some rounds, by its seq. Raises NotFound."""
        no = access.need(transaction, scope, conversation)["no"]
        values = {"tenant": scope.tenant, "no": no, "rounds": json.dumps(list(rounds))}
        return {seq: (turn, n) for seq, turn, n in transaction.run("answers_of_rounds", **values)}

    @read
    def places(
        self, transaction: Transaction, scope: Scope, conversation: str, ids: Sequence[str]
    ) -> dict[str, PostPlace]:
        """Return the places of posts by id, without missing posts. Raises NotFound."""
        no = access.need(transaction, scope, conversation)["no"]
        found = (transaction.one("post_place", tenant=scope.tenant, no=no, id=each) for each in dict.fromkeys(ids))
        return {row["id"]: PostPlace(**row) for row in found if row is not None}


def _found(
    transaction: Transaction, scope: Scope, words: Sequence[str], *, limit: int, cursor: str | None
) -> ConversationSummaries:
    """List the caller's conversations, most recent first; `words` filters for those with every word."""
    before, before_no = read_cursor(cursor)
    wanted = [each.casefold() for each in words]
    items: list[Row] = []
    for row in _all(transaction, scope, before, before_no, limit + 1 if not wanted else _AT_ONCE):
        searchable = " ".join((row["id"], row["user_id"] or "", row["said"])).casefold()
        if all(each in searchable for each in wanted):
            items.append(row)
        if len(items) > limit:
            break
    entries = items[:limit]
    more = f"{entries[-1]['updated_at']!r}:{entries[-1]['no']}" if len(items) > limit else None
    return ConversationSummaries(tuple(_talk(transaction, row) for row in entries), more)


def _all(transaction: Transaction, scope: Scope, before: float, before_no: int, at_once: int) -> Iterator[Row]:
    while True:
        items = transaction.rows(
            "talks_page",
            tenant=scope.tenant,
            user=scope.user,
            proven=scope.proven,
            before=before,
            before_no=before_no,
            limit=at_once,
        )
        yield from items
        if len(items) < at_once:
            return
        before, before_no = items[-1]["updated_at"], items[-1]["no"]


def _talk(transaction: Transaction, row: Row) -> ConversationSummary:
    tenant, no = row["tenant"], row["no"]
    ways = _runs(transaction, tenant, no, row["last_seq"])
    followed = {each.parent for each in ways}
    last = transaction.one("turn_newest", tenant=tenant, no=no)
    return ConversationSummary(
        conversation=records.conversation(row),
        said=row["said"],
        branches=sum(each.last not in followed for each in ways),
        tokens=_manifest(last["manifest"]).tokens if last else 0,
        state=last["state"] if last else None,
        shadow=bool(last and last["shadow"]),
    )


def _runs(transaction: Transaction, tenant: str, no: int, last_seq: int) -> list[PostRun]:
    """Return the runs of a tree, ordered by first post. The cost grows with the runs, not with the posts."""
    post_runs: list[PostRun] = []
    while last_seq:
        row = transaction.run("run_of", tenant=tenant, no=no, seq=last_seq).fetchone()
        if row is None:
            break
        post_runs.append(PostRun(row[0], last_seq, row[1]))
        last_seq = row[0] - 1
    return post_runs[::-1]


def _answering(transaction: Transaction, tenant: str, no: int, first: int, last: int) -> list[TurnEntry]:
    """Return the turns of the rounds `first`..`last`, inclusive, oldest first."""
    answerings: dict[int, TurnEntry] = {}
    for row in transaction.rows("turns_answering", tenant=tenant, no=no, first=first, last=last):
        before = answerings.get(row["turn"])
        answerings[row["turn"]] = TurnEntry(
            turn=row["turn"],
            round=row["round"],
            state=row["state"],
            query_seq=row["query_seq"],
            replies=(before.replies if before else {}) | ({row["reply_seq"]: row["step"]} if row["reply_seq"] else {}),
            tokens=_manifest(row["manifest"]).tokens,
            error=row["error"],
            shadow=bool(row["shadow"]),
        )
    return list(answerings.values())


# ---- usage and shadow mode ------------------------------------------------------------------------------------------


_usage = msgspec.json.Decoder(Usage).decode
#: Block kinds that replace posts.
_IN_PLACE = ("summary", "memory")


class UsageStore(Noun):
    """Loads the usage of model calls."""

    @read
    def calls(
        self, transaction: Transaction, scope: Scope, conversation: str, *, first: int, last: int
    ) -> list[CallUsageRecord]:
        """Return the calls of turns `first`..`last` of a conversation, both included. Raises NotFound."""
        no = access.need(transaction, scope, conversation)["no"]
        values = {"tenant": scope.tenant, "no": no, "first": first, "last": last}
        return [_spent(row) for row in transaction.rows("calls_spent", **values)]


def _spent(row: Row) -> CallUsageRecord:
    manifest = _manifest(row["manifest"])
    front = sum(text.tokens for text in manifest.front if text.kind not in _IN_PLACE)
    newest = row["step"] == row["steps"]
    return CallUsageRecord(
        turn=row["turn"],
        step=row["step"],
        state=row["state"],
        tokens=manifest.tokens,
        whole=front + row["path_tokens"] + manifest.tools_tokens,
        posts=row["posts"],
        reply=row["reply"],
        at=row["at"],
        usage=_usage(row["usage"]) if row["usage"] else None,
        cache=json.loads(row["cache"]) if newest and row["cache"] else None,
        model=row["model"] or "",
        shadow=bool(row["shadow"]),
    )


# ---- shadow mode ----------------------------------------------------------------------------------------------------


class ShadowStore(Noun):
    """Loads calls recorded in shadow mode."""

    @read
    def calls(self, transaction: Transaction, scope: Scope, conversation: str | None) -> list[ShadowedCall]:
        """Return the shadow calls of a conversation, or of all that the caller takes part in, oldest first. Raises
        NotFound.
        """
        no = access.need(transaction, scope, conversation)["no"] if conversation is not None else None
        who = {"tenant": scope.tenant, "user": scope.user, "proven": scope.proven}
        items = transaction.rows("shadow_calls", **who, no=no)
        steps = [(row, json.loads(row["kept"]).get(str(row["step"]))) for row in items]
        return [
            ShadowedCall(
                conversation=row["conversation"],
                turn=row["turn"],
                step=row["step"],
                entry=msgspec.convert(entry, ShadowCallUsage),
                usage=_usage(row["usage"]) if row["usage"] else None,
                reply_tokens=row["reply_tokens"],
            )
            for row, entry in steps
            if entry is not None  # the step ended before it was recorded, or was not in shadow mode
        ]
