"""Open, checkpoint and close turns under a lease, and end turns with an expired lease, by compare-and-set."""

import json
import time
from itertools import islice

import msgspec
from msgspec.structs import replace

from cuebook.errors import BackendError, Busy, LeaseLost
from cuebook.interfaces.store import Lease, StepEnd, StepStart
from cuebook.memory.owner_memories import USE
from cuebook.memory.scopes import KEPT
from cuebook.records.conversation import Draft
from cuebook.records.memory import Scope
from cuebook.records.turn import TokenReport, TurnState, Usage
from cuebook.storage import access, memories, outcomes, reflections
from cuebook.storage.access import ConversationRow, current_epoch
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import Row, decode, encode, encode_json
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.transaction import (
    Database,
    Noun,
    Transaction,
    read,
    read_all,
    write_all,
    write_conversation,
    write_lease,
)
from cuebook.storage.keys import count_spending
from cuebook.storage.tree import (
    SHIFT,
    Tip,
    draft_decoder,
    grow,
    keep,
    on_path,
    runs_to,
    save_growth,
    search_scope,
    settle_head,
    tip_at,
)
from cuebook.storage.tuning import count_work
from cuebook.storage.writes import begin, bind, check_names, keep_named, leave_waiting, set_head

#: Tolerated clock difference between two processes, in seconds.
SLACK_S = 1.0
#: Seconds after an outage of the database in which no turn is ended, or as long as the outage if that was shorter: the
#: process of a turn stores its answer with its next attempt.
RECOVERY_S = 10.0


class TurnStore(Noun):
    """Stores turns and their leases."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        #: Leases that end too late, by conversation and parallel turn: fence, end, and the time first observed.
        self._late: dict[tuple[int, int], tuple[int, float, float]] = {}
        self._lost_since: float | None = None
        self._recovers_until = 0.0

    async def open(self, scope: Scope, opening: StepStart) -> Lease:
        """Open a step and take the lease. Raises Busy while another turn runs, Conflict if the scene is outdated.

        A parallel turn gets a lease of its own, whether another turn runs or not.
        """
        lease = await self._open(scope, opening)
        if lease is None:
            raise access.moved(opening.conversation)
        return lease

    @write_conversation
    def _open(self, transaction: Transaction, opening: StepStart) -> Lease | None:
        """Store the caller's posts, the step and its manifest, and take the lease; the query is durable from here on.

        A turn whose lease expired, or whose process is gone, is ended first. If that stored a post, return None: only
        the end is stored, and the caller must read again.
        """
        transaction.failpoint("open.begin")
        holders = self.database.holders
        if opening.epoch is not None and opening.epoch != current_epoch(transaction):
            raise access.moved(opening.conversation)
        user = opening.user or transaction.scope.user
        row = begin(transaction, opening.conversation, user=user, persona=opening.persona, now=opening.now)
        _compare(row, opening, holders)
        if row.lease_until and not opening.parallel:
            if end_expired(row, now=opening.now):
                return None
            row = access.need(transaction, opening.conversation)
        check_names(row, transaction.scope, opening.drafts)
        _mark_utility(row, opening)
        tip = _place(row, opening)
        named = {"mode": opening.mode, "project": opening.project, "timeZone": opening.time_zone, KEPT: opening.policy}
        keep_named(row, named)
        if opening.delivers:
            row.run("delivery_wanted")
        lease = _begin_step(row, opening, base_seq=tip.seq, holder=holders.own_name())
        if opening.calls:
            reflections.ask(row, lease.turn, opening.calls)
        for text in opening.texts.values():
            keep(row, text.encode("utf-8", "surrogatepass"))
        if opening.idempotency:
            bind(row, opening.idempotency, turn=lease.turn, step=lease.step, now=opening.now)
        if opening.outcome is not None:
            turn, outcome = opening.outcome
            outcomes.note(row, replace(outcome, next_turn=lease.turn), turn=turn)
        count_work(row, opening.work)
        if opening.audit:
            chained(transaction, [replace(each, turn=lease.turn) for each in opening.audit])
        transaction.failpoint("open.stored")
        return lease

    @write_lease
    def replan(self, transaction: Transaction, lease: Lease, opening: StepStart) -> None:
        """Replace the window of an open step, before the model answers. Raises LeaseLost if the lease was lost."""
        row = _held(transaction, lease)
        for text in opening.texts.values():
            keep(row, text.encode("utf-8", "surrogatepass"))
        manifest = encode(opening.manifest)
        row.run("step_manifest", turn=lease.turn, n=lease.step, manifest=manifest)
        row.run("turn_metadata", n=lease.turn, metadata=encode_json(opening.metadata))

    @write_lease
    def checkpoint(
        self, transaction: Transaction, lease: Lease, partial: Draft | None, *, now: float, lease_s: float
    ) -> None:
        """Save the partial answer and renew the lease. Raises LeaseLost if another process has taken it."""
        row = _held(transaction, lease)
        if lease.parallel:
            row.run("parallel_renew", turn=lease.turn, until=now + lease_s)
        else:
            row.run("conversation_renew", fence=lease.fence, turn=lease.turn, until=now + lease_s)
        if partial:
            raw = msgspec.msgpack.encode(partial)
            row.run("step_partial", turn=lease.turn, n=lease.step, partial=raw)
        transaction.failpoint("checkpoint.stored")

    @write_lease
    def close(self, transaction: Transaction, lease: Lease, closing: StepEnd) -> int:
        """Store the reply and end the step; return its seq, 0 for none. Raises LeaseLost if the lease was lost.

        A repeated call, after a commit whose result is unknown, changes nothing.
        """
        transaction.failpoint("close.begin")
        try:
            row = _held(transaction, lease)
        except LeaseLost:
            stored = _stored_end(transaction, lease, closing)
            if stored is None:
                raise
            return stored
        reply_seq = _finish_step(row, lease.turn, lease.step, closing, parallel=lease.parallel)
        memories.used(row.transaction, closing.used, by=USE, now=closing.now)
        if closing.audit:
            chained(row.transaction, [replace(each, turn=lease.turn) for each in closing.audit])
        if closing.spending is not None:
            count_spending(row.transaction, closing.spending)
        transaction.failpoint("close.stored")
        return reply_seq

    @read
    def token_reports(self, transaction: Transaction, *, limit: int) -> list[TokenReport]:
        """Return what providers last reported about prompts in the most recent conversations, the newest last."""
        reports: list[TokenReport] = []
        for row in transaction.rows("token_reports", limit=limit):
            usage = row["usage"] and decode(Usage, row["usage"])
            shadow = json.loads(row["shadow"]).get(str(row["step"]), {}) if row["shadow"] else {}
            tokens = shadow.get("clientTokens") if row["shadow"] else row["tokens"]
            if row["model"] and tokens and usage and usage.input is not None:
                reports.append(TokenReport(row["conversation"], row["model"], usage.input, tokens))
        return reports

    async def expire(
        self, *, now: float, lease_s: float | None = None, wait_s: float | None = None, limit: int = 100
    ) -> int:
        """End turns whose lease expired or whose process is gone; none within RECOVERY_S after an outage.

        `lease_s` also ends leases of a wrong clock that were not renewed for so long. `wait_s` also ends turns
        that have waited so long for tool results in an inactive conversation.
        """
        if self.database.unclean:
            await self.database.clean()
        try:
            leases, waits = await self._overdue(now=now, lease_s=lease_s, wait_s=wait_s, limit=limit)
        except BackendError:
            self._lost_since = self._lost_since or time.monotonic()
            raise
        if self._lost_since is not None:
            lasted = time.monotonic() - self._lost_since
            self._lost_since, self._recovers_until = None, time.monotonic() + min(lasted, RECOVERY_S)
        if time.monotonic() < self._recovers_until:
            return 0
        if not leases and not waits:
            return 0
        return await self._expire(leases, now=now, wait_s=wait_s if waits else None, limit=limit)

    @read_all
    def _overdue(
        self, transaction: Transaction, *, now: float, lease_s: float | None, wait_s: float | None, limit: int
    ) -> tuple[list[Row], list[Row]]:
        """Return the overdue leases, earliest end first, and the turns that have waited too long."""
        holders, leases = self.database.holders, transaction.rows("leases_held")
        names = {each["lease_holder"] for each in leases}
        holders.sweep(names)
        gone = {name for name in names if holders.gone(name)}
        stale = self._stale(leases, now=now, lease_s=lease_s) if lease_s else set()
        ended = (
            each for each in leases if each["lease_until"] < now or each["lease_holder"] in gone or _key(each) in stale
        )
        return list(islice(ended, limit)), _waiting(transaction, now=now, wait_s=wait_s, limit=limit)

    def _stale(self, leases: list[Row], *, now: float, lease_s: float) -> set[tuple[int, int]]:
        """Return the leases that end too late (a wrong clock) and were not renewed for so long."""
        late: dict[tuple[int, int], tuple[int, float, float]] = {}
        for each in leases:
            lease = (each["fence"], each["lease_until"])
            if each["lease_until"] > now + lease_s + SLACK_S:
                *before, since = self._late.get(_key(each), (0, 0.0, now))
                late[_key(each)] = (*lease, since if lease == tuple(before) and since <= now else now)
        self._late = late
        return {key for key, (_, _, since) in late.items() if now - since > lease_s}

    @write_all
    def _expire(
        self, transaction: Transaction, leases: list[Row], *, now: float, wait_s: float | None, limit: int
    ) -> int:
        """End overdue turns as interrupted, with their last checkpoint, unless they have continued since."""
        ended = 0
        for due in leases:
            row = access.by_no(transaction.within(Scope(due["tenant"])), due["no"])
            if row is None:
                continue
            if due["parallel"]:
                lease = row.one("parallel_get", turn=due["parallel"])
                if lease is not None and lease["lease_until"] == due["lease_until"]:
                    end_parallel(row, due["parallel"], now=now)
                    ended += 1
            elif (row.fence, row.lease_until) == (due["fence"], due["lease_until"]):
                end_expired(row, now=now)
                ended += 1
        for turn in _waiting(transaction, now=now, wait_s=wait_s, limit=limit):
            row = access.by_no(transaction.within(Scope(turn["tenant"])), turn["no"])
            ended += row is not None and leave_waiting(row, now=now)
        transaction.failpoint("expire.stored")
        return ended


def _key(lease: Row) -> tuple[int, int]:
    return lease["no"], lease["parallel"]


def _waiting(transaction: Transaction, *, now: float, wait_s: float | None, limit: int) -> list[Row]:
    """Return turns whose wait timed out. A modification time in the future comes from a wrong clock."""
    if wait_s is None:
        return []
    return transaction.rows("turns_left", before=now - wait_s, after=now + wait_s, limit=limit)


def _mark_utility(row: ConversationRow, opening: StepStart) -> None:
    """Store whether the conversation is a utility call, which it no longer is once continued, and its frame."""
    if row.utility != opening.utility:
        row.utility = opening.utility
        row.run("conversation_utility", utility=int(row.utility))
        span = {"first": row.no << SHIFT, "last": row.no << SHIFT | row.last_seq}
        row.transaction.run("post_text_scope", scope=search_scope(row), **span)
    if opening.frame is not None:
        row.run("conversation_frame", opening=opening.frame[0], ending=opening.frame[1])


def _compare(row: ConversationRow, opening: StepStart, holders: Holders) -> None:
    """Raise Busy while another turn holds the lease, Conflict if the state has changed since it was read."""
    busy = row.lease_until and row.lease_until >= opening.now and not holders.gone(row.lease_holder)
    if busy and not opening.parallel:
        msg = f"A turn is running in conversation {opening.conversation!r}. Try again after it has ended."
        raise Busy(msg, retry_after=max(0.05, row.lease_until - opening.now))
    if row.head != opening.expected_head or row.last_seq != opening.expected_last_seq:
        raise access.moved(opening.conversation)


def _place(row: ConversationRow, opening: StepStart) -> Tip:
    """Store the caller's posts and move the head as requested; return the post to be answered."""
    start = tip_at(row, opening.parent)
    tip = grow(row, opening.drafts, start)
    for parent, drafts in opening.insertions:
        grow(row, drafts, tip_at(row, parent))
    if opening.moves_head and opening.drafts:
        settle_head(row, start, tip, now=opening.now)
    elif opening.moves_head and tip.seq != row.head:
        set_head(row, tip.seq, now=opening.now)
    elif opening.drafts or opening.insertions:
        save_growth(row, now=opening.now)
    return tip


def _begin_step(row: ConversationRow, opening: StepStart, *, base_seq: int, holder: str | None) -> Lease:
    """Store a step of a new or a waiting turn, and take the lease."""
    fence, until = row.fence if opening.parallel else row.fence + 1, opening.now + opening.lease_s
    values = {"fence": fence, "metadata": encode_json(opening.metadata)}
    if opening.turn:
        continued = row.run("turn_step", n=opening.turn, **values).fetchone()
        if continued is None:
            raise access.moved(opening.conversation)
        turn, (step, round_) = opening.turn, continued
    else:
        if not opening.parallel:
            leave_waiting(row, now=opening.now)
        turn, step, query = row.turns + 1, 1, opening.query_seq
        round_ = tip_at(row, query).round
        row.run("turn_insert", n=turn, round=round_, query_seq=query, now=opening.now, **values)
    manifest = encode(opening.manifest)
    row.run("step_insert", turn=turn, n=step, base=base_seq, manifest=manifest, moves_head=int(opening.moves_head))
    lease = Lease(
        scope=row.transaction.scope,
        conversation=opening.conversation,
        no=row.no,
        turn=turn,
        step=step,
        fence=fence,
        until=until,
        last_seq=row.last_seq,
        parallel=opening.parallel,
    )
    turns = max(turn, row.turns)
    if opening.parallel:
        row.run("conversation_turns", turns=turns)
        row.run("parallel_insert", turn=turn, until=until, holder=holder)
    else:
        numbers = {"turn": turn, "fence": fence, "until": until, "turns": turns}
        row.run("conversation_lease", **numbers, open_round=round_, holder=holder)
    return lease


def _held(transaction: Transaction, lease: Lease) -> ConversationRow:
    """Return the row of a lease's conversation, in a transaction of its holder. Raises LeaseLost for a lost lease."""
    row = access.by_no(transaction.within(lease.scope), lease.no)
    if row is None:
        msg = (
            f"Conversation {lease.conversation!r} was deleted while turn {lease.turn} was running. Nothing was stored."
        )
        raise LeaseLost(msg)
    if lease.parallel:
        holds = row.one("parallel_get", turn=lease.turn) is not None
    else:
        holds = (row.fence, row.lease_turn) == (lease.fence, lease.turn)
    if not holds:
        msg = f"Turn {lease.turn} of conversation {lease.conversation!r} was taken over. Later output was not stored."
        raise LeaseLost(msg)
    return row


def _stored_end(transaction: Transaction, lease: Lease, closing: StepEnd) -> int | None:
    """Return the seq of the reply if exactly this end of a step is stored, 0 for an end without reply, else None."""
    row = access.by_no(transaction.within(lease.scope), lease.no)
    step = row.one("step_last", turn=lease.turn) if row else None
    ended = (lease.step, _step_state(closing), closing.error)
    if row is None or step is None or (step["n"], step["state"], step["error"]) != ended:
        return None
    post = row.one("post_by_id", id=closing.reply.id) if closing.reply else None
    stored = (post["seq"], post["digest"]) if post else (0, None)
    return stored[0] if stored == (step["reply_seq"], closing.reply and closing.reply.digest) else None


def _step_state(closing: StepEnd) -> TurnState:
    """Return the state of an ended step. One whose turn waits for tool results is finished."""
    return "finished" if closing.waiting else closing.state


def _finish_step(row: ConversationRow, n: int, step_n: int, closing: StepEnd, *, parallel: bool = False) -> int:
    """Store the reply, end the step and release its lease; return the reply's seq, 0 for none.

    A parallel turn never waits for tool results: the request that brings them opens a new turn.
    """
    closing = replace(closing, waiting=closing.waiting and not parallel)
    turn = row.one("turn_get", n=n)
    step = row.one("step_last", turn=n)
    if turn is None or step is None or step["n"] != step_n:
        raise access.moved(row.id)
    reply_seq = _reply(row, closing, closing.reply, step) if closing.reply else 0
    usage = encode(closing.usage) if closing.usage else None
    state = _step_state(closing)
    values = {"reply_seq": reply_seq, "usage": usage, "error": closing.error}
    row.run("step_close", turn=n, n=step_n, state=state, **values)
    row.run(
        "turn_close",
        n=n,
        state="running" if closing.waiting else closing.state,
        waiting=int(closing.waiting),
        reply_seq=reply_seq or turn["reply_seq"],
        closed_at=None if closing.waiting else closing.now,
        metadata=encode_json(json.loads(turn["metadata"]) | closing.metadata),
    )
    if parallel:
        row.run("parallel_delete", turn=n)
        return reply_seq
    open_round = row.open_round if closing.waiting else 0
    row.run("conversation_release", open_round=open_round, now=max(closing.now, row.updated_at))
    return reply_seq


def _reply(row: ConversationRow, closing: StepEnd, reply: Draft, step: Row) -> int:
    """Store a reply after its query, or after posts that were stored on the same path meanwhile."""
    parent, heads = step["base"], bool(step["moves_head"])
    if heads and row.head != parent:
        heads = parent == 0 or on_path(runs_to(row, row.head), parent)
        parent = row.head if heads else parent
    start = tip_at(row, parent)
    tip = grow(row, [reply], start)
    for other in closing.others:
        grow(row, [other], start)
    if heads:
        settle_head(row, start, tip, now=closing.now)
    else:
        save_growth(row, now=closing.now)
    return tip.seq


def end_expired(row: ConversationRow, *, now: float) -> int:
    """End the turn that holds the lease and invalidate it; return the seq of its partial answer, 0 for none."""
    reply_seq = _end_step(row, row.lease_turn, now=now)
    if reply_seq is None:
        row.run("conversation_release", open_round=0, now=row.updated_at)
    row.run("conversation_fence", fence=row.fence + 1)
    return reply_seq or 0


def end_parallel(row: ConversationRow, turn: int, *, now: float) -> None:
    """End a parallel turn and invalidate its lease."""
    if _end_step(row, turn, now=now, parallel=True) is None:
        row.run("parallel_delete", turn=turn)


def parallel_turns(row: ConversationRow) -> list[int]:
    """Return the numbers of a conversation's running parallel turns."""
    return [turn for (turn,) in row.run("parallel_turns").fetchall()]


def _end_step(row: ConversationRow, turn: int, *, now: float, parallel: bool = False) -> int | None:
    """End the running step of a turn as interrupted, with its last checkpoint; return the reply's seq.

    Return None if the turn has no step.
    """
    step = row.one("step_last", turn=turn)
    if step is None:
        return None
    reply = _kept(row, step["partial"])
    closing = StepEnd(state="interrupted", now=now, reply=reply, error="the answering process ended")
    return _finish_step(row, turn, step["n"], closing, parallel=parallel)


def _kept(row: ConversationRow, partial: bytes | None) -> Draft | None:
    """Return a checkpoint's partial answer as a post, unless its id was used meanwhile."""
    if not partial:
        return None
    try:
        draft = draft_decoder.decode(partial)
    except msgspec.DecodeError:  # damaged, or of another version: the turn must end anyway
        return None
    stored_post = row.one("post_by_id", id=draft.id)
    return None if stored_post else replace(draft, state="interrupted")
