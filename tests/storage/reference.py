"""A reference store in plain Python: real stores must give the same answers and the same refusals.

It has no files, no threads and no counters. A rejected operation changes nothing.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from cuebook.errors import Busy, Conflict, LeaseLost, NotFound
from cuebook.interfaces.store import Batch, CompactionResult, Lease, StepEnd, StepStart
from cuebook.records.conversation import Appended, Draft
from cuebook.records.memory import Scope
from storage.reference_conversation import Digest, ReferenceConversation, ReferencePost, Step, Turn

Key = tuple[str, str]  # tenant, conversation


class Reference:
    """An in-memory store model for one process and one thread."""

    def __init__(self) -> None:
        self.talks: dict[Key, ReferenceConversation] = {}
        self.born = 0

    def find(self, scope: Scope, conversation: str) -> ReferenceConversation | None:
        """Return a conversation, or None if it does not exist. Raise NotFound for another user's."""
        talk = self.talks.get((scope.tenant, conversation))
        if talk is not None and not talk.seen_by(scope):
            raise NotFound
        return talk

    def need(self, scope: Scope, conversation: str) -> ReferenceConversation:
        """Return a conversation, or raise NotFound."""
        talk = self.find(scope, conversation)
        if talk is None:
            raise NotFound
        return talk

    @contextmanager
    def _all_or_nothing(self, tenant: str, conversation: str) -> Iterator[None]:
        key, born = (tenant, conversation), self.born
        talk = self.talks.get(key)
        saved = _copied(talk) if talk else None
        try:
            yield
        except Exception:
            self.born = born
            if saved is not None:
                self.talks[key] = saved
            else:
                self.talks.pop(key, None)
            raise

    def _begin(self, scope: Scope, conversation: str, *, user: str | None, now: float) -> ReferenceConversation:
        talk = self.find(scope, conversation)
        if talk is None:
            self.born += 1
            talk = ReferenceConversation(self.born, scope.tenant, conversation, user or scope.user, now)
            if not talk.seen_by(scope):
                raise NotFound
            self.talks[scope.tenant, conversation] = talk
        elif talk.user is None and not talk.posts:
            talk.user = user or scope.user  # an empty conversation without an owner goes to its first user
        return talk

    def _bind(
        self,
        scope: Scope,
        talk: ReferenceConversation,
        idempotency: tuple[str, bytes] | None,
        turn: int,
        step: int,
    ) -> None:
        if idempotency is None:
            return
        key = f"{scope.user}\n{idempotency[0]}"
        for each in self.talks.values():
            if each.tenant == scope.tenant and key in each.keys:
                if not each.is_free(key, idempotency[1]):
                    raise Conflict
                del each.keys[key]
        talk.keys[key] = (idempotency[1], turn, step)

    # the turn

    def append(self, scope: Scope, batch: Batch) -> Appended:
        """Store posts, all or none."""
        with self._all_or_nothing(scope.tenant, batch.conversation):
            talk = self._begin(scope, batch.conversation, user=batch.user, now=batch.now)
            known = {kept.draft.id: kept.draft.digest for kept in talk.posts}
            fresh = []
            for draft in batch.drafts:
                if draft.id not in known:
                    fresh.append(draft)
                if known.setdefault(draft.id, draft.digest) != draft.digest:
                    raise Conflict
            if fresh:
                parent = talk.head if batch.parent is None else talk.seq_of(batch.parent)
                if batch.parent and not parent:
                    raise NotFound
                talk.head = _grow(talk, fresh, parent)
                talk.updated_at = max(talk.updated_at, batch.now)
                if not talk.until and not all(draft.is_result for draft in fresh):
                    _leave(talk)
            return Appended(len(fresh), len(talk.posts))

    def open(self, scope: Scope, opening: StepStart) -> Lease:
        """Open a step and take the lease."""
        ended = False
        with self._all_or_nothing(scope.tenant, opening.conversation):
            talk = self._begin(scope, opening.conversation, user=opening.user, now=opening.now)
            if talk.until and talk.until >= opening.now:
                raise Busy
            if (talk.head, len(talk.posts)) != (opening.expected_head, opening.expected_last_seq):
                raise Conflict
            if talk.until:
                ended = self._end(talk, now=opening.now)
            if not ended:
                return self._speak(scope, talk, opening)
        raise Conflict

    def _speak(self, scope: Scope, talk: ReferenceConversation, opening: StepStart) -> Lease:
        if not 0 <= opening.parent <= len(talk.posts):
            raise NotFound
        base = _grow(talk, opening.drafts, opening.parent)
        if opening.drafts or (opening.moves_head and talk.head != base):
            talk.updated_at = max(talk.updated_at, opening.now)
        if opening.moves_head:
            talk.head = base
        if opening.turn:
            turn = next((t for t in talk.turns if t.n == opening.turn and t.state == "running" and t.waiting), None)
            if turn is None:
                raise Conflict
            turn.waiting, turn.metadata = False, opening.metadata
        else:
            _leave(talk)
            if not 0 <= opening.query_seq <= len(talk.posts):
                raise NotFound
            round_ = talk.posts[opening.query_seq - 1].round if opening.query_seq else 0
            turn = Turn(len(talk.turns) + 1, round_, opening.query_seq, metadata=opening.metadata)
            talk.turns.append(turn)
        turn.steps.append(Step(len(turn.steps) + 1, base, opening.moves_head))
        talk.fence += 1
        talk.leased, talk.until, talk.open_round = turn.n, opening.now + opening.lease_s, turn.round
        self._bind(scope, talk, opening.idempotency, turn.n, len(turn.steps))
        return Lease(
            scope=scope, conversation=talk.id, no=talk.no, turn=turn.n, step=len(turn.steps),
            fence=talk.fence, until=talk.until, last_seq=len(talk.posts),
        )  # fmt: skip

    def _held(self, lease: Lease) -> ReferenceConversation:
        talk = self.talks.get((lease.scope.tenant, lease.conversation))
        if talk is None or (talk.no, talk.fence, talk.leased) != (lease.no, lease.fence, lease.turn):
            raise LeaseLost
        return talk

    def checkpoint(self, lease: Lease, partial: Draft | None, *, now: float, lease_s: float) -> None:
        """Store the partial answer and renew the lease."""
        talk = self._held(lease)
        talk.until = now + lease_s
        if partial is not None:
            talk.turns[lease.turn - 1].steps[lease.step - 1].partial = partial

    def close(self, lease: Lease, closing: StepEnd) -> int:
        """End a step. A repetition of the stored end gives the same answer."""
        with self._all_or_nothing(lease.scope.tenant, lease.conversation):
            try:
                talk = self._held(lease)
            except LeaseLost:
                if (seq := self._stored_end(lease, closing)) is None:
                    raise
                return seq
            return _finish(talk, closing)

    def _stored_end(self, lease: Lease, closing: StepEnd) -> int | None:
        """Return the seq of the reply if exactly this end of the turn's last step is stored, 0 for none, else None."""
        talk = self.talks.get((lease.scope.tenant, lease.conversation))
        if talk is None or talk.no != lease.no:
            return None
        steps = talk.turns[lease.turn - 1].steps
        state = "finished" if closing.waiting else closing.state
        if (len(steps), steps[-1].state) != (lease.step, state):
            return None
        reply = talk.posts[steps[-1].reply - 1].draft if steps[-1].reply else None
        same = (reply and (reply.id, reply.digest)) == (closing.reply and (closing.reply.id, closing.reply.digest))
        return steps[-1].reply if same else None

    def _end(self, talk: ReferenceConversation, *, now: float) -> bool:
        """End a turn whose lease expired. Return whether that stored a post."""
        partial = talk.turns[talk.leased - 1].steps[-1].partial
        if partial is not None and talk.seq_of(partial.id):
            partial = None
        reply = msgspec.structs.replace(partial, state="interrupted") if partial else None
        _finish(talk, StepEnd(state="interrupted", now=now, reply=reply))
        talk.fence += 1
        return reply is not None

    def expire(self, *, now: float, wait_s: float | None = None) -> int:
        """End turns whose lease expired, and with `wait_s` turns that have waited that long."""
        ended = [talk for talk in self.talks.values() if talk.until and talk.until < now]
        for talk in ended:
            self._end(talk, now=now)
        idle = [
            talk
            for talk in self.talks.values()
            if wait_s is not None and not talk.until and not now - wait_s <= talk.updated_at <= now + wait_s
        ]
        return len(ended) + sum(_leave(talk) for talk in idle)

    # derived state

    def save_summary(self, scope: Scope, compacted: CompactionResult) -> bool:
        """Store a pass's result if its source posts and summary are still current."""
        talk = self.find(scope, compacted.conversation)
        if talk is None or compacted.no not in (0, talk.no):
            return False
        mark, version = talk.mark(talk.head)
        upto = compacted.summary.upto_seq
        if version != compacted.previous_version or upto < mark or upto not in talk.path(talk.head):
            return False
        talk.digests.append(Digest(len(talk.digests) + 1, version, compacted.summary, compacted.items))
        return True

    def move_head(self, scope: Scope, conversation: str, post: str, *, now: float) -> None:
        """Make a post the head."""
        talk = self.need(scope, conversation)
        if talk.until and talk.until >= now:
            raise Conflict
        seq = talk.seq_of(post)
        if not seq:
            raise NotFound
        talk.head, talk.updated_at = seq, max(talk.updated_at, now)

    def delete(self, scope: Scope, conversation: str) -> None:
        """Delete a conversation."""
        self.need(scope, conversation)
        del self.talks[scope.tenant, conversation]


def _copied(talk: ReferenceConversation) -> ReferenceConversation:
    turns = [replace(turn, steps=[copy.copy(step) for step in turn.steps]) for turn in talk.turns]
    return replace(talk, posts=[*talk.posts], turns=turns, digests=[*talk.digests], keys={**talk.keys})


def _grow(talk: ReferenceConversation, drafts: Sequence[Draft], parent: int) -> int:
    for draft in drafts:
        if talk.seq_of(draft.id):
            raise Conflict
        seq = len(talk.posts) + 1
        round_ = seq if draft.role == "user" else talk.posts[parent - 1].round if parent else 0
        talk.posts.append(ReferencePost(seq, parent, round_, draft))
        parent = seq
    return parent


def _leave(talk: ReferenceConversation) -> bool:
    """Interrupt a turn that waits for results."""
    if not talk.turns or talk.turns[-1].state != "running":
        return False
    talk.turns[-1].state, talk.turns[-1].waiting, talk.open_round = "interrupted", False, 0
    return True


def _finish(talk: ReferenceConversation, closing: StepEnd) -> int:
    turn = talk.turns[talk.leased - 1]
    step = turn.steps[-1]
    seq = 0
    if closing.reply is not None:
        ahead = step.moves_head and (step.base == 0 or step.base in talk.path(talk.head))
        parent = talk.head if ahead else step.base
        seq = _grow(talk, [closing.reply], parent)
        for other in closing.others:
            _grow(talk, [other], parent)
        if ahead:
            talk.head = seq
    step.state = "finished" if closing.waiting else closing.state
    step.partial, step.reply = None, seq
    turn.state, turn.waiting = ("running", True) if closing.waiting else (closing.state, False)
    turn.reply, turn.metadata = seq or turn.reply, turn.metadata | closing.metadata
    talk.leased, talk.until = 0, 0.0
    talk.open_round = talk.open_round if closing.waiting else 0
    talk.updated_at = max(talk.updated_at, closing.now)
    return seq
