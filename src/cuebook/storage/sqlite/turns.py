"""Open, checkpoint and close turns under a lease, and end turns with an expired lease, by compare-and-set."""

import json
import sqlite3
from itertools import compress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import Busy, LeaseLost
from cuebook.interfaces.store import Lease, Opening, StepEnd
from cuebook.memory.knowledge import USE
from cuebook.memory.scopes import KEPT
from cuebook.records.conversation import Draft
from cuebook.records.memory import Scope
from cuebook.storage.failpoints import Failpoints
from cuebook.storage.sqlite import base, memories, outcomes, reflections
from cuebook.storage.sqlite.audit import chained
from cuebook.storage.sqlite.base import current_epoch, one, rows, run
from cuebook.storage.sqlite.connect import Holders
from cuebook.storage.sqlite.rows import Row, draft_decoder
from cuebook.storage.sqlite.tree import Tip, grow, keep, on_path, runs_to, save_growth, settle_head, tip_at
from cuebook.storage.sqlite.writes import begin, bind, check_names, keep_named, leave_waiting, set_head


def open_turn(
    connection: sqlite3.Connection, scope: Scope, opening: Opening, holders: Holders, failpoints: Failpoints
) -> Lease | None:
    """Store the caller's posts, the step and its manifest, and take the lease; the query is durable from here on.

    A turn whose lease expired, or whose process is gone, is ended first. If that stored a post, return None: only the
    end is stored, and the caller must read again.
    """
    failpoints("open.begin")
    if opening.epoch is not None and opening.epoch != current_epoch(connection, scope.tenant):
        raise base.moved(opening.conversation)
    user = opening.user or scope.user
    row = begin(connection, scope, opening.conversation, user=user, persona=opening.persona, now=opening.now)
    _compare(row, opening, holders)
    if row["lease_until"]:
        if end_expired(connection, row, now=opening.now):
            return None
        row = base.need(connection, scope, opening.conversation)
    check_names(row, scope, opening.drafts)
    tip = _place(connection, row, opening)
    named = {"mode": opening.mode, "project": opening.project, "timeZone": opening.time_zone, KEPT: opening.policy}
    keep_named(connection, row, named)
    if opening.delivers:
        memories.wanted(connection, row)
    memories.used(connection, row["tenant"], opening.uses, by=USE, now=opening.now)
    lease = _begin_step(connection, scope, row, opening, base_seq=tip.seq, holder=holders.own_name())
    reflections.ask(connection, row, lease.turn, opening.calls)
    for text in opening.texts.values():
        keep(connection, row["tenant"], row["no"], text.encode("utf-8", "surrogatepass"))
    if opening.idempotency:
        step = str(lease.step).encode()
        bind(connection, scope, row, opening.idempotency, turn=lease.turn, response=step, now=opening.now)
    if opening.outcome is not None:
        turn, outcome = opening.outcome
        outcomes.note(connection, row, replace(outcome, next_turn=lease.turn), turn=turn)
    chained(connection, row["tenant"], [replace(each, turn=lease.turn) for each in opening.audit])
    failpoints("open.stored")
    return lease


def _compare(row: Row, opening: Opening, holders: Holders) -> None:
    """Raise Busy while another turn holds the lease, Conflict if the state has changed since it was read."""
    if row["lease_until"] and row["lease_until"] >= opening.now and not holders.gone(row["lease_holder"]):
        msg = f"A turn is running in conversation {opening.conversation!r}. Try again after it has ended."
        raise Busy(msg, retry_after=max(0.05, row["lease_until"] - opening.now))
    if row["head"] != opening.expected_head or row["last_seq"] != opening.expected_last_seq:
        raise base.moved(opening.conversation)


def _place(connection: sqlite3.Connection, row: Row, opening: Opening) -> Tip:
    """Store the caller's posts and move the head as requested; return the post to be answered."""
    start = tip_at(connection, row["tenant"], row["no"], opening.parent)
    tip = grow(connection, row, opening.drafts, start)
    if opening.moves_head and opening.drafts:
        settle_head(connection, row, start, tip, now=opening.now)
    elif opening.moves_head and tip.seq != row["head"]:
        set_head(connection, row, tip.seq, now=opening.now)
    elif opening.drafts:
        save_growth(connection, row, now=opening.now)
    return tip


def _begin_step(
    connection: sqlite3.Connection, scope: Scope, row: Row, opening: Opening, *, base_seq: int, holder: str | None
) -> Lease:
    tenant, no, fence = row["tenant"], row["no"], row["fence"] + 1
    turn, step, round_ = _begin_turn(connection, row, opening, fence=fence)
    manifest = msgspec.json.encode(opening.manifest)
    moves = int(opening.moves_head)
    run(
        connection,
        "step_insert",
        tenant=tenant,
        no=no,
        turn=turn,
        n=step,
        manifest=manifest,
        base=base_seq,
        moves_head=moves,
    )
    until = opening.now + opening.lease_s
    turns = max(turn, row["turns"])
    run(
        connection,
        "conversation_lease",
        no=no,
        turns=turns,
        fence=fence,
        turn=turn,
        until=until,
        open_round=round_,
        holder=holder,
    )
    return Lease(
        scope=scope,
        conversation=opening.conversation,
        no=no,
        turn=turn,
        step=step,
        fence=fence,
        until=until,
        last_seq=row["last_seq"],
    )


def _begin_turn(connection: sqlite3.Connection, row: Row, opening: Opening, *, fence: int) -> tuple[int, int, int]:
    """Open a turn, or continue a waiting one; return the numbers of turn, step and round."""
    values = {
        "tenant": row["tenant"], "no": row["no"], "fence": fence,
        "metadata": json.dumps(opening.metadata, ensure_ascii=False),
    }  # fmt: skip
    if opening.turn:
        continued = run(connection, "turn_step", n=opening.turn, **values).fetchone()
        if continued is None:
            raise base.moved(opening.conversation)
        return opening.turn, *continued
    leave_waiting(connection, row, now=opening.now)
    turn, query = row["turns"] + 1, opening.query_seq
    round_ = tip_at(connection, row["tenant"], row["no"], query).round
    run(connection, "turn_insert", n=turn, round=round_, query_seq=query, now=opening.now, **values)
    return turn, 1, round_


def _held(connection: sqlite3.Connection, lease: Lease) -> Row:
    """Return the conversation's row. Raises LeaseLost if the lease was lost."""
    row = one(connection, "conversation_by_no", tenant=lease.scope.tenant, no=lease.no)
    if row is None:
        msg = (
            f"Conversation {lease.conversation!r} was deleted while turn {lease.turn} was running. Nothing was stored."
        )
        raise LeaseLost(msg)
    if row["fence"] != lease.fence or row["lease_turn"] != lease.turn:
        msg = f"Turn {lease.turn} of conversation {lease.conversation!r} was taken over. Later output was not stored."
        raise LeaseLost(msg)
    return row


def checkpoint(
    connection: sqlite3.Connection, lease: Lease, partial: bytes, *, now: float, lease_s: float, failpoints: Failpoints
) -> None:
    """Save the partial answer and renew the lease."""
    row = _held(connection, lease)
    run(connection, "conversation_renew", no=row["no"], fence=lease.fence, turn=lease.turn, until=now + lease_s)
    if partial:
        run(
            connection,
            "step_partial",
            tenant=row["tenant"],
            no=row["no"],
            turn=lease.turn,
            n=lease.step,
            partial=partial,
        )
    failpoints("checkpoint.stored")


def close_turn(connection: sqlite3.Connection, lease: Lease, closing: StepEnd, failpoints: Failpoints) -> int:
    """Store the reply and end the step; return the reply's seq, 0 for none."""
    failpoints("close.begin")
    row = _held(connection, lease)
    reply_seq = _finish_step(connection, row, lease.turn, lease.step, closing)
    chained(connection, row["tenant"], [replace(each, turn=lease.turn) for each in closing.audit])
    failpoints("close.stored")
    return reply_seq


def _finish_step(connection: sqlite3.Connection, row: Row, n: int, step_n: int, closing: StepEnd) -> int:
    tenant, no = row["tenant"], row["no"]
    turn = one(connection, "turn_get", tenant=tenant, no=no, n=n)
    step = one(connection, "step_last", tenant=tenant, no=no, turn=n)
    if turn is None or step is None or step["n"] != step_n:
        raise base.moved(row["id"])
    reply_seq = _reply(connection, row, closing, closing.reply, step) if closing.reply else 0
    usage = msgspec.json.encode(closing.usage) if closing.usage else None
    run(
        connection,
        "step_close",
        tenant=tenant,
        no=no,
        turn=n,
        n=step_n,
        state="finished" if closing.waiting else closing.state,
        reply_seq=reply_seq,
        usage=usage,
        error=closing.error,
    )
    run(
        connection,
        "turn_close",
        tenant=tenant,
        no=no,
        n=n,
        state="running" if closing.waiting else closing.state,
        waiting=int(closing.waiting),
        reply_seq=reply_seq or turn["reply_seq"],
        closed_at=None if closing.waiting else closing.now,
        metadata=json.dumps(json.loads(turn["metadata"]) | closing.metadata, ensure_ascii=False),
    )
    open_round = row["open_round"] if closing.waiting else 0
    run(connection, "conversation_release", no=no, open_round=open_round, now=max(closing.now, row["updated_at"]))
    return reply_seq


def _reply(connection: sqlite3.Connection, row: Row, closing: StepEnd, reply: Draft, step: Row) -> int:
    """Store a reply after its query, or after posts that were stored on the same path meanwhile."""
    tenant, no, parent = row["tenant"], row["no"], step["base"]
    heads = bool(step["moves_head"])
    if heads and row["head"] != parent:
        heads = parent == 0 or on_path(runs_to(connection, tenant, no, row["head"]), parent)
        parent = row["head"] if heads else parent
    start = tip_at(connection, tenant, no, parent)
    tip = grow(connection, row, [reply], start)
    for other in closing.others:
        grow(connection, row, [other], start)
    if heads:
        settle_head(connection, row, start, tip, now=closing.now)
    else:
        save_growth(connection, row, now=closing.now)
    return tip.seq


def end_expired(connection: sqlite3.Connection, row: Row, *, now: float) -> int:
    """End the turn that holds the lease and invalidate it; return the seq of its partial answer, 0 for none."""
    tenant, no, fence = row["tenant"], row["no"], row["fence"] + 1
    step = one(connection, "step_last", tenant=tenant, no=no, turn=row["lease_turn"])
    reply_seq = 0
    if step is None:
        run(connection, "conversation_release", no=no, open_round=0, now=row["updated_at"])
    else:
        reply = _kept(connection, row, step["partial"])
        closing = StepEnd(state="interrupted", now=now, reply=reply, error="the answering process ended")
        reply_seq = _finish_step(connection, row, row["lease_turn"], step["n"], closing)
    run(connection, "conversation_fence", no=no, fence=fence)
    return reply_seq


def _kept(connection: sqlite3.Connection, row: Row, partial: bytes | None) -> Draft | None:
    """Return a checkpoint's partial answer as a post, unless its id was used meanwhile."""
    if not partial:
        return None
    try:
        draft = draft_decoder.decode(partial)
    except msgspec.DecodeError:  # damaged, or of another version: the turn must end anyway
        return None
    stored_post = one(connection, "post_by_id", tenant=row["tenant"], no=row["no"], id=draft.id)
    return None if stored_post else msgspec.structs.replace(draft, state="interrupted")


# ---- overdue turns --------------------------------------------------------------------------------------------------


#: Tolerated clock difference between two processes, in seconds.
SLACK_S = 1.0


class LeaseTerms(Struct, frozen=True, kw_only=True):
    """The timeouts of a turn: of its lease, and of the wait for tool results; None skips the check."""

    now: float
    lease_s: float | None
    wait_s: float | None
    limit: int


class Overdue(Struct, frozen=True):
    """Conversations with an overdue turn: by their lease, and by the wait for tool results."""

    leases: list[Row]
    left: list[Row]


class LeaseSighting(Struct, frozen=True):
    """A lease at its first observation."""

    fence: int
    until: float
    since: float


class LeaseWatch:
    """Detector of stale leases from processes with a wrong clock."""

    def __init__(self) -> None:
        self._seen: dict[int, LeaseSighting] = {}

    def stale(self, contents: list[Row], *, now: float, lease_s: float) -> set[int]:
        """Return the conversations whose lease ends too late and was not renewed for so many seconds."""
        lease_sightings: dict[int, LeaseSighting] = {}
        for row in contents:
            if row["lease_until"] > now + lease_s + SLACK_S:
                before = self._seen.get(row["no"])
                same = before and (before.fence, before.until) == (row["fence"], row["lease_until"])
                since = before.since if before and same and before.since <= now else now
                lease_sightings[row["no"]] = LeaseSighting(row["fence"], row["lease_until"], since)
        self._seen = lease_sightings
        return {no for no, each in lease_sightings.items() if now - each.since > lease_s}


def overdue_turns(connection: sqlite3.Connection, holders: Holders, watch: LeaseWatch, terms: LeaseTerms) -> Overdue:
    """Return overdue turns, those with the earliest leases first."""
    leases = rows(connection, "leases_held")
    names = {row["lease_holder"] for row in leases}
    holders.sweep(names)
    gone = {name for name in names if holders.gone(name)}
    stale = watch.stale(leases, now=terms.now, lease_s=terms.lease_s) if terms.lease_s else set()
    ended = (row["lease_until"] < terms.now or row["lease_holder"] in gone or row["no"] in stale for row in leases)
    return Overdue(list(compress(leases, ended))[: terms.limit], _left(connection, terms))


def _left(connection: sqlite3.Connection, terms: LeaseTerms) -> list[Row]:
    """Return turns whose wait timed out. A modification time in the future comes from a wrong clock."""
    if terms.wait_s is None:
        return []
    before, after = terms.now - terms.wait_s, terms.now + terms.wait_s
    return rows(connection, "turns_left", before=before, after=after, limit=terms.limit)


def expire(connection: sqlite3.Connection, overdue: Overdue, terms: LeaseTerms, failpoints: Failpoints) -> int:
    """End overdue turns as interrupted, with their last checkpoint, unless they have continued since."""
    ended, now = 0, terms.now
    for due in overdue.leases:
        row = one(connection, "conversation_by_no", tenant=due["tenant"], no=due["no"])
        if row is not None and (row["fence"], row["lease_until"]) == (due["fence"], due["lease_until"]):
            end_expired(connection, row, now=now)
            ended += 1
    for due in _left(connection, terms) if overdue.left else ():
        ended += leave_waiting(connection, due, now=now)
    failpoints("expire.stored")
    return ended
