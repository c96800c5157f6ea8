"""State machine test of the store: any operations in any order, through two objects on one database.

After each step the whole state of each conversation is compared with the reference, and every derived column in the
database (sums, runs, full text, bodies) is recomputed. Longer runs: scripts/test --hypothesis-profile=deep
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cuebook.interfaces.store import Alignment, Batch, CompactionResult, Lease, PathQuery, StepEnd, StepStart
from cuebook.records.memory import Item, Scope, Summary
from cuebook.storage.store import open_store
from cuebook.storage.tree import Paths
from cuebook.testing import LoadedDice
from storage.audit import audit, full_text
from storage.compare import check_scene, differences, expected_state, state_of
from storage.databases import NOT_SYNCED, empty, snapshot
from storage.makers import draft, manifest
from storage.operations import (
    Append,
    Checkpoint,
    Close,
    Delete,
    Expire,
    MoveHead,
    Open,
    Operation,
    Save,
    outcome_in,
    outcome_of,
)
from storage.reference import Reference

pytestmark = pytest.mark.timeout(7200)  # for the deep profile

MEMORY = Path("/dev/shm")  # noqa: S108 - a memory file system, if there is one
START = 1_700_000_000.0

NAMES = st.sampled_from(["c", "c", "c", "d", "e"])
SCOPES = st.sampled_from([Scope()] * 7 + [Scope(user="ann"), Scope(user="bob"), Scope("other")])
WHICH = st.integers(0, 1)
PLACE = st.integers(0, 30)  # a post, by its index among the stored posts
BACK = st.sampled_from([0, 0, 0, 1, 2])  # a lease or a pass, counted from the newest
SAYINGS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool", "system"]),
        st.sampled_from(["yes", "no", "apples and pears", "x" * 5000]),
        st.integers(1, 50),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def way_up(found: Alignment, seq: int) -> list[int]:
    """Return the path to a post from the runs of an alignment."""
    way: list[int] = []
    run = found.posts[seq].run
    while seq:
        way[:0] = range(run, seq + 1)
        seq, run = found.runs[run]
    return way


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.url = self.new_database()
        self.runner = asyncio.Runner()
        self.everyone = []
        self.stores = [self.new_store(), self.new_store()]
        self.reference = Reference()
        self.dice = LoadedDice()
        self.leases = []
        self.passes = []
        self.ends = []
        self.now = START
        self.steps = 0

    def new_database(self):
        """Return the path or URL of an empty database."""
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        return str(self.folder / "cuebook.db")

    def drop_database(self):
        shutil.rmtree(self.folder)

    def new_store(self):
        store = open_store(self.url, synchronous="OFF")
        store.paths = Paths(least=1)  # loaded paths are cached, however short
        self.everyone.append(store)
        return store

    def teardown(self):
        try:
            assert audit(self.url, integrity=True) == []
        finally:
            for store in self.everyone:
                self.runner.run(store.aclose())
            self.runner.close()
            self.drop_database()

    # helpers of the rules

    def both(self, which: int, operation: Operation):
        """Run an operation in a store and in the reference: both give the same answer or refusal."""
        found, result = self.runner.run(outcome_in(self.stores[which], operation))
        expected = outcome_of(self.reference, operation)
        assert found == expected, operation
        self.touched = operation.conversation
        self.number()
        return result

    def number(self):
        """Give the reference the numbers of the conversations: a write that PostgreSQL undoes uses one up."""
        with snapshot(self.url) as rows:
            for tenant, name, no in rows("SELECT tenant, id, no FROM conversation"):
                self.reference.talks[tenant, name].no = no

    def drafts(self, said):
        return tuple(
            draft(
                self.dice.new_id("p"),
                text,
                role=role,
                tokens=tokens,
                small="s" if short else None,
                small_tokens=min(tokens, 2) if short else 0,
                key="" if role == "system" else None,
                created_at=self.now,
            )
            for role, text, tokens, short in said
        )

    def talk(self, scope, name):
        return self.reference.talks.get((scope.tenant, name))

    def post(self, scope, name, place):
        """Return a stored post's seq, or 0 if there is none."""
        talk = self.talk(scope, name)
        return place % len(talk.posts) + 1 if talk and talk.posts else 0

    def id_of(self, scope, name, seq):
        return self.talk(scope, name).posts[seq - 1].draft.id if seq else "nobody"

    # posts

    @rule(which=WHICH, scope=SCOPES, name=NAMES, said=SAYINGS, place=st.none() | PLACE)
    def append(self, which, scope, name, said, place):
        """Append at the head, or edit by appending after a named post."""
        parent = None if place is None else self.id_of(scope, name, self.post(scope, name, place))
        batch = Batch(conversation=name, drafts=self.drafts(said), now=self.now, parent=parent)
        self.both(which, Append(scope=scope, batch=batch))

    @rule(which=WHICH, name=NAMES, said=SAYINGS, place=PLACE, same=st.booleans())
    def append_again(self, which, name, said, place, same):
        """Send a stored post again with new ones, as it was or changed."""
        seq = self.post(Scope(), name, place)
        if seq:
            kept = self.talk(Scope(), name).posts[seq - 1].draft
            again = kept if same else draft(kept.id, "changed")
            batch = Batch(conversation=name, drafts=(*self.drafts(said), again), now=self.now)
            self.both(which, Append(scope=Scope(), batch=batch))

    @rule(said=st.lists(SAYINGS, min_size=2, max_size=6), name=NAMES)
    def append_at_once(self, said, name):
        """Append concurrently through both stores: any order, no gap, nothing lost."""
        batches = [Batch(conversation=name, drafts=self.drafts(each), now=self.now) for each in said]
        operations = [Append(scope=Scope(), batch=batch) for batch in batches]

        async def all_of_them():
            calls = [outcome_in(self.stores[n % 2], operation) for n, operation in enumerate(operations)]
            return await asyncio.gather(*calls)

        outcomes = [outcome for outcome, _ in self.runner.run(all_of_them())]
        pairs = zip(outcomes, operations, strict=True)
        for found, operation in sorted(pairs, key=lambda pair: pair[0].result["lastSeq"]):
            assert found == outcome_of(self.reference, operation)
        self.number()

    @rule(which=WHICH, scope=SCOPES, name=NAMES, place=PLACE, front=st.integers(0, 4), edited=st.integers(0, 8))
    def align(self, *, which, scope, name, place, front, edited):
        """Align a resent history: full or trimmed in front, unchanged or with one edited message."""
        talk = self.talk(scope, name)
        if talk is None or not talk.seen_by(scope):
            return
        history = [talk.posts[seq - 1].draft.digest for seq in talk.path(self.post(scope, name, place))][front:]
        if edited < len(history):
            history[edited] = draft("x", f"edited {edited}").digest
        (found,) = self.runner.run(self.stores[which].align(scope, history, conversation=name))
        same = {digest: tuple(p.seq for p in talk.posts if p.draft.digest == digest) for digest in history}
        assert found.places == tuple(same[digest] for digest in history)
        for seq in {seq for seqs in same.values() for seq in seqs} | ({talk.head} - {0}):
            spot, way = found.posts[seq], talk.path(seq)
            assert (spot.parent, spot.depth) == (talk.posts[seq - 1].parent, len(way))
            assert way_up(found, seq) == way

    # turns

    @rule(
        which=WHICH, scope=SCOPES, name=NAMES, said=st.just([]) | SAYINGS, place=st.none() | PLACE,
        moves=st.sampled_from([True, True, True, False]), goes_on=st.booleans(), stale=st.sampled_from([0] * 7 + [1]),
        rude=st.sampled_from([False] * 5 + [True]),
    )  # fmt: skip
    def open(self, *, which, scope, name, said, place, moves, goes_on, stale, rude=False):
        if not rude:
            self.settle(which, scope, name)
        talk = self.talk(scope, name)
        head, last = (talk.head, len(talk.posts)) if talk else (0, 0)
        parent = head if place is None else self.post(scope, name, place)
        waiting = [turn.n for turn in talk.turns if turn.waiting] if talk and goes_on else []
        opening = StepStart(
            conversation=name, expected_head=head, expected_last_seq=last + stale, parent=parent,
            drafts=self.drafts(said), manifest=manifest(fence=f"f{self.steps}"), texts={"0" * 32: f"text {name}"},
            now=self.now, lease_s=30.0, turn=waiting[0] if waiting else 0,
            query_seq=last + len(said) if said else parent, moves_head=moves, metadata={"step": self.steps},
        )  # fmt: skip
        lease = self.both(which, Open(scope=scope, opening=opening))
        if lease is not None:
            assert lease.no == self.talk(scope, name).no
            self.leases.append(lease)

    def settle(self, which, scope, name):
        """Finish the running turn, if there is one."""
        talk = self.talk(scope, name)
        for lease in self.leases:
            if talk and talk.leased and (lease.no, lease.fence, lease.conversation) == (talk.no, talk.fence, name):
                reply = draft(f"r-{lease.no}-{lease.fence}", "done", role="assistant", created_at=self.now)
                self.both(which, Close(lease=lease, closing=StepEnd(state="finished", now=self.now, reply=reply)))

    def lease(self, which, back) -> Lease | None:
        """Return one of the issued leases; open a turn if there is none."""
        if not self.leases:
            said = [("user", "why?", 2, False)]
            self.open(which=which, scope=Scope(), name="c", said=said, place=None, moves=True, goes_on=False, stale=0)
        return self.leases[-1 - back % len(self.leases)] if self.leases else None

    @rule(which=WHICH, back=BACK, words=st.none() | st.integers(1, 9))
    def checkpoint(self, which, back, words):
        if lease := self.lease(which, back):
            partial = words and draft(
                f"r-{lease.no}-{lease.fence}", "word " * words, role="assistant", created_at=self.now
            )
            self.both(which, Checkpoint(lease=lease, partial=partial, now=self.now, lease_s=30.0))

    @rule(
        which=WHICH, back=BACK, ending=st.sampled_from(["finished", "finished", "failed", "interrupted"]),
        said=st.sampled_from([True, True, False]), waiting=st.booleans(), others=st.sampled_from([0, 0, 2]),
        taken=st.sampled_from([False] * 7 + [True]),
    )  # fmt: skip
    def close(self, *, which, back, ending, said, waiting, others, taken):
        lease = self.lease(which, back)
        if lease is None:
            return
        id_ = f"r-{lease.no}-{lease.fence}"
        if taken:
            id_ = self.id_of(lease.scope, lease.conversation, self.post(lease.scope, lease.conversation, 0))
        reply = draft(id_, f"reply {self.steps}", role="assistant", created_at=self.now) if said else None
        closing = StepEnd(
            state=ending, now=self.now, reply=reply, waiting=waiting and ending == "finished",
            others=tuple(draft(self.dice.new_id("o"), "or", role="assistant") for _ in range(others)),
            metadata={"closed": self.steps},
        )  # fmt: skip
        self.ends.append(Close(lease=lease, closing=closing))
        self.both(which, self.ends[-1])

    @rule(which=WHICH, back=BACK)
    def close_again(self, which, back):
        """Repeat a call whose result is unknown, whether or not it was stored."""
        if self.ends:
            self.both(which, self.ends[-1 - back % len(self.ends)])

    @rule(seconds=st.sampled_from([1.0, 10.0, 40.0, 40.0, -3600.0]))
    def time_goes_by(self, seconds):
        self.now += seconds

    @rule(which=WHICH, seconds=st.sampled_from([0.0, 10.0, 40.0]), wait_s=st.sampled_from([None, None, 30.0]))
    def expire(self, which, seconds, wait_s):
        self.now += seconds
        self.both(which, Expire(now=self.now, wait_s=wait_s))

    # memory

    @rule(which=WHICH, name=NAMES, limit=st.integers(1, 12), upto=PLACE, holds=st.sampled_from([False, False, True]))
    def compact(self, *, which, name, limit, upto, holds):
        """Run a summary pass: load, summarize, and store now or later."""
        if upto % 4:
            self.settle(which, Scope(), name)
        talk = self.talk(Scope(), name)
        if talk is None:
            return
        found = self.runner.run(self.stores[which].compaction(Scope(), name, limit=limit))
        if talk.open_round or talk.until:
            assert found is None
            return
        behind = talk.backlog()[:limit]
        assert [post.seq for post in found.posts] == behind
        assert (found.previous.version if found.previous else 0) == talk.mark(talk.head)[1]
        assert list(found.items) == talk.items(ended=True)
        mark, _ = talk.mark(talk.head)
        assert (found.before.seq if found.before else 0) == mark
        if behind:
            self.passes.append(self.compacted(name, found, behind[upto % len(behind)]))
            if not holds:
                self.both(which, Save(scope=Scope(), compacted=self.passes[-1]))

    def compacted(self, name, found, upto):
        """Return a plausible result: the oldest item ends, the next repeats, and a new one is added."""
        made = Item(
            id=self.dice.new_id("i"), category="facts", text=f"up to {upto}", sources=(f"p{upto}",), seq=upto
        )  # fmt: skip
        stand = [item for item in found.items if item.valid_to is None]
        ended = [self.changed(item, valid_to=self.now) for item in stand[:1] if upto % 2]
        repeated = [self.changed(item, confidence=0.9, seq=upto) for item in stand[1:2]]
        return CompactionResult(
            conversation=name, previous_version=found.previous.version if found.previous else 0,
            summary=Summary(
                version=0, upto_seq=upto, upto_at=self.now, path_digest=bytes(16), markdown=f"up to {upto}",
                memory_json={}, profile="neutral", made_by="rules", created_at=self.now,
            ),
            items=(*ended, *repeated, made), now=self.now, no=found.conversation.no,
        )  # fmt: skip

    @staticmethod
    def changed(item, **changes):
        return Item(**{name: getattr(item, name) for name in item.__struct_fields__} | changes)

    @rule(which=WHICH, back=BACK)
    def save_summary_late(self, which, back):
        """Store the result of a slow pass, or of a pass that two workers ran."""
        if self.passes:
            self.both(which, Save(scope=Scope(), compacted=self.passes[-1 - back % len(self.passes)]))

    # heads and ends

    @rule(which=WHICH, scope=SCOPES, name=NAMES, place=PLACE)
    def move_head(self, which, scope, name, place):
        post = self.id_of(scope, name, self.post(scope, name, place))
        self.both(which, MoveHead(scope=scope, name=name, post=post, now=self.now))

    @rule(which=WHICH, scope=SCOPES, name=NAMES, really=st.integers(0, 2))
    def delete(self, which, scope, name, really):
        if not really:
            self.both(which, Delete(scope=scope, name=name))

    @rule(which=WHICH, closes=st.booleans())
    def another_process(self, which, closes):
        """Replace a store with a new one, after a close or a kill (its tasks end, and nothing is closed)."""
        if closes:
            self.runner.run(self.stores[which].aclose())
        self.stores[which] = self.new_store()

    # reading

    @rule(
        which=WHICH, name=NAMES, full=st.integers(0, 200), small=st.integers(0, 40), place=st.none() | PLACE,
        summary=st.booleans(),
    )  # fmt: skip
    def scene(self, *, which, name, full, small, place, summary):
        talk = self.talk(Scope(), name)
        if talk is not None:
            parent = None if place is None else self.post(Scope(), name, place)
            look = PathQuery(
                conversation=name, parent=parent, full_tokens=full, small_tokens=small, use_summary=summary
            )
            check_scene(self.runner.run(self.stores[which].scene(Scope(), look)), talk, look)

    @initialize(said=st.lists(SAYINGS, max_size=3))
    def begin(self, said):
        self.touched = ""
        for each in said:
            self.append(which=0, scope=Scope(), name="c", said=each, place=None)

    @invariant()
    def both_say_the_same(self):
        self.steps += 1
        store = self.stores[self.steps % 2]
        for (tenant, name), talk in self.reference.talks.items():
            if name == self.touched or self.steps % 5 == 0:
                found = self.runner.run(state_of(store, Scope(tenant), name))
                assert differences(found, expected_state(talk)) == [], (tenant, name)
        listed = self.runner.run(store.conversations(Scope(), limit=9)).items
        assert {row.id for row in listed} == {name for tenant, name in self.reference.talks if tenant == "default"}

    @invariant()
    def scenes_cover_their_paths(self):
        """Check scenes at the head and elsewhere, with caps that change from step to step."""
        talk = self.talk(Scope(), self.touched)
        for place in (None, self.steps * 7) if talk else ():
            parent = None if place is None else self.post(Scope(), talk.id, place)
            look = PathQuery(
                conversation=talk.id, parent=parent, full_tokens=self.steps * 5 % 90, small_tokens=self.steps % 9,
                small_after=self.steps % 4 * 6,
                post_tokens=self.steps % 3 * 10, summary_version=(None, None, 0, 1, 2)[self.steps % 5],
            )  # fmt: skip
            store = self.stores[self.steps // 2 % 2]
            check_scene(self.runner.run(store.scene(Scope(), look)), talk, look)

    @invariant()
    def derived_rows_agree(self):
        assert audit(self.url) == []
        found = {place: key for place, (_, key) in full_text(self.url).items()}
        assert found == {
            (talk.no, kept.seq): kept.draft.key
            for talk in self.reference.talks.values()
            for kept in talk.posts
            if kept.draft.key
        }


class PostgresMachine(StoreMachine):
    """The same on PostgreSQL."""

    server = ""  # the URL of a database, which is emptied for each run

    def new_database(self):
        empty(self.server)
        return f"{self.server}&{NOT_SYNCED}"

    def drop_database(self):
        pass


def machine_settings(share: int) -> settings:
    """Return the settings of a machine with so many of the profile's examples. A step costs some 10 ms on SQLite."""
    database = settings.get_profile("database")
    examples = max(1, database.max_examples // share)
    return settings(database, max_examples=examples, stateful_step_count=50, suppress_health_check=list(HealthCheck))


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
TestStoreMachine.settings = machine_settings(2)


@pytest.mark.slow
def test_the_machine_on_postgresql(postgres_url: str) -> None:
    PostgresMachine.server = postgres_url
    run_state_machine_as_test(PostgresMachine, settings=machine_settings(8))
