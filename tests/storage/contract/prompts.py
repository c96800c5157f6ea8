"""The contract of prompts: immutable versions, one head per branch, atomic writes, and no lost observation."""

import asyncio

import msgspec
import pytest

from cuebook.errors import Conflict, KeyReused, NotFound
from cuebook.interfaces.prompts import Write
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Label, Observation, PromptEvent, Version
from cuebook.storage.database.transaction import AnsweredError
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING

HERE = Scope()
THERE = Scope("elsewhere")


def text(slug: str, body: str = "Be kind.", *, branch: str = MAIN, inherits: str | None = None) -> Version:
    """Return a version to store."""
    return Version(slug=slug, branch=branch, sections={"body": body}, inherits=inherits)


async def write(store: Store, *versions: Version, scope: Scope = HERE) -> list[Version]:
    """Store versions on top of the current heads."""
    return await store.prompts.save(scope, [Write(version=each) for each in versions], by="ann", now=BEGINNING)


def seen(slug: str, score: float, *, number: int = 1, user: str = "", **signals: float) -> Observation:
    """Return an observation."""
    return Observation(
        slug=slug, branch=MAIN, number=number, score=score, sentiment=score, user=user, signals=signals, at=BEGINNING
    )


class PromptContract:
    """The contract of prompts."""

    async def test_a_version_round_trips(self, store: Store) -> None:
        whole = Version(
            slug="persona/kind",
            sections={"identity": "I am $name.", "odd": "é\u2028{}$5"},
            override_sections={"limits": "none"},
            metadata={"context_weights": {"task_coding": 0.5}, "nested": {"a": [1, None, True]}},
            tags=("one", "two"),
            author="bob",
            description="kind",
            sync=True,
        )
        [stored] = await write(store, whole)
        assert stored == msgspec.structs.replace(
            whole, number=1, digest=stored.digest, created_at=BEGINNING, supersedes=0
        )
        assert await store.prompts.versions(HERE, "persona/kind") == [stored]
        family = (await store.prompts.families(HERE, ["persona/kind"]))["persona/kind"]
        assert family.active == (stored,)
        assert (family.branches[0].head, family.branches[0].active, family.branches[0].weight) == (1, 1, 0.5)

    async def test_versions_are_numbered_in_order(self, store: Store) -> None:
        for n in range(1, 4):
            [stored] = await write(store, text("a", f"text {n}"))
            assert (stored.number, stored.supersedes) == (n, n - 1)
        assert [each.number for each in await store.prompts.versions(HERE, "a")] == [1, 2, 3]
        assert [each.number for each in await store.prompts.versions(HERE, "a", numbers=[2])] == [2]
        assert len({each.digest for each in await store.prompts.versions(HERE, "a")}) == 3

    async def test_one_of_two_writers_on_a_base_wins(self, store: Store) -> None:
        await write(store, text("a"))

        async def one(n: int) -> Version | None:
            try:
                own = [Write(version=text("a", f"mine {n}"), base=1)]
                return (await store.prompts.save(HERE, own, by="x", now=BEGINNING))[0]
            except Conflict:
                return None

        won = [each for each in await asyncio.gather(*(one(n) for n in range(8))) if each is not None]
        assert len(won) == 1
        assert [each.number for each in await store.prompts.versions(HERE, "a")] == [1, 2]

    async def test_writers_without_a_base_all_succeed(self, store: Store) -> None:
        await asyncio.gather(*(write(store, text("a", f"text {n}")) for n in range(8)))
        found = await store.prompts.versions(HERE, "a")
        assert [each.number for each in found] == list(range(1, 9))
        assert {each.sections["body"] for each in found} == {f"text {n}" for n in range(8)}

    async def test_a_write_is_atomic(self, store: Store) -> None:
        await write(store, text("a"))
        outdated = [Write(version=text("new")), Write(version=text("a", "other"), base=7)]
        with pytest.raises(Conflict, match="has changed"):
            await store.prompts.save(HERE, outdated, by="x", now=BEGINNING)
        assert await store.prompts.families(HERE, ["new"]) == {}
        assert len(await store.prompts.versions(HERE, "a")) == 1

    async def test_an_unchanged_text_can_be_skipped(self, store: Store) -> None:
        [first] = await write(store, text("a"))
        again = [Write(version=text("a"), if_changed=True)]
        assert await store.prompts.save(HERE, again, by="x", now=BEGINNING + 5) == [first]
        assert [each.number for each in await write(store, text("a"))] == [2]

    async def test_branches_share_nothing_after_the_fork(self, store: Store) -> None:
        await write(store, text("a", "one"))
        fork = [Write(version=text("a", "mine", branch="try"), begins=(MAIN, 1))]
        [begun] = await store.prompts.save(HERE, fork, by="x", now=BEGINNING)
        assert (begun.number, begun.branched_from) == (1, "main:1")
        with pytest.raises(Conflict, match="already"):
            await store.prompts.save(HERE, fork, by="x", now=BEGINNING)
        lost = Write(version=text("a", branch="other"), begins=(MAIN, 9))
        with pytest.raises(NotFound):
            await store.prompts.save(HERE, [lost], by="x", now=BEGINNING)
        with pytest.raises(NotFound, match="Fork"):
            await write(store, text("a", branch="nowhere"))
        await write(store, text("a", "two"))
        family = (await store.prompts.families(HERE, ["a"]))["a"]
        assert [(each.name, each.head) for each in family.branches] == [("main", 2), ("try", 1)]
        assert [each.sections["body"] for each in family.active] == ["two", "mine"]

    async def test_ancestors_are_loaded_with_a_version(self, store: Store) -> None:
        await write(store, text("root"), text("middle", inherits="root"), text("leaf", inherits="middle@main"))
        assert set(await store.prompts.families(HERE, ["leaf"])) == {"leaf", "middle", "root"}
        assert set(await store.prompts.families(HERE, ["leaf"], ancestors=False)) == {"leaf"}
        await write(store, text("ring", inherits="ring2"), text("ring2", inherits="ring"))
        assert set(await store.prompts.families(HERE, ["ring", "gone"])) == {"ring", "ring2"}

    async def test_labels_move_and_keep_a_history(self, store: Store) -> None:
        await write(store, text("a", "one"))
        await write(store, text("a", "two"))
        for number in (1, 2):
            label = Label(name="production", branch=MAIN, number=number, moved_by="ann", moved_at=BEGINNING + number)
            await store.prompts.move_label(HERE, "a", label)
        with pytest.raises(NotFound):
            await store.prompts.move_label(
                HERE, "a", Label(name="production", branch=MAIN, number=3, moved_by="ann", moved_at=BEGINNING)
            )
        family = (await store.prompts.families(HERE, ["a"]))["a"]
        assert [(each.name, each.number, each.moved_by) for each in family.labels] == [("production", 2, "ann")]
        moves = [(each.label, each.to) for each in await store.prompts.events(HERE, "a") if each.kind == "label"]
        assert moves == [("production", 2), ("production", 1)]

    async def test_a_rollback_changes_the_active_version_not_the_head(self, store: Store) -> None:
        await write(store, text("a", "one"))
        await write(store, text("a", "two"))
        back = PromptEvent(
            kind="rollback", branch=MAIN, number=2, to=1, reason="worse", evidence={"n": 40}, at=BEGINNING
        )
        branch = await store.prompts.activate(HERE, "a", back)
        assert (branch.head, branch.active, branch.rolled_back) == (2, 1, (2,))
        with pytest.raises(Conflict):
            await store.prompts.activate(HERE, "a", back)
        assert (await store.prompts.events(HERE, "a"))[0] == back
        family = (await store.prompts.families(HERE, ["a"]))["a"]
        assert family.active[0].sections["body"] == "one"
        clear = PromptEvent(kind="clear", branch=MAIN, number=2, at=BEGINNING)
        cleared = await store.prompts.activate(HERE, "a", clear)
        assert (cleared.active, cleared.rolled_back) == (1, ())
        again = await store.prompts.activate(HERE, "a", back)
        assert (again.active, again.rolled_back) == (1, (2,)), "explored beside the active version, then rolled back"
        [third] = await write(store, text("a", "three"))
        assert (third.number, third.supersedes) == (3, 2)
        assert (await store.prompts.families(HERE, ["a"]))["a"].branches[0].active == 3

    async def test_events_of_a_branch_are_found_among_many_others(self, store: Store) -> None:
        await write(store, text("a", "one"))
        await store.prompts.save(HERE, [Write(version=text("a", branch="try"), begins=(MAIN, 1))], by="x", now=1.0)
        for number in range(20):
            label = Label(name="production", branch=MAIN, number=1, moved_by="ann", moved_at=BEGINNING + number)
            await store.prompts.move_label(HERE, "a", label)
        assert len(await store.prompts.events(HERE, "a", limit=5)) == 5
        own = await store.prompts.events(HERE, "a", branch=MAIN, limit=5)
        assert [(each.kind, each.branch) for each in own] == [("write", MAIN)]
        [begun] = await store.prompts.events(HERE, "a", branch="try", limit=5)
        assert begun.kind == "branch"

    async def test_observations_of_versions_are_paged_by_mark(self, store: Store) -> None:
        for n in range(3):
            await write(store, text("a", f"text {n}"))
        for n in range(1, 10):
            await store.prompts.observe(HERE, seen("a", n / 10, number=n % 3 + 1))
        found, mark, _ = await store.prompts.observations_since(HERE, "a", MAIN, (3, 2), after=0, limit=100)
        assert [each.score for each in found] == [0.1, 0.2, 0.4, 0.5, 0.7, 0.8]
        assert await store.prompts.observations_since(HERE, "a", MAIN, (3, 2), after=mark, limit=100) == ([], mark, 0)
        await store.prompts.observe(HERE, seen("a", 1.0, number=3))
        for after, limit, scores in ((mark, 9, [1.0]), (0, 2, [0.8, 1.0])):
            found, _, _ = await store.prompts.observations_since(HERE, "a", MAIN, (3, 2), after=after, limit=limit)
            assert [each.score for each in found] == scores
        assert await store.prompts.observations_since(THERE, "a", MAIN, (3, 2), after=0, limit=9) == ([], 0, 0)

    async def test_unknown_signal_names_are_not_learned(self, store: Store) -> None:
        await write(store, text("a"))
        many = {f"made up {n}": 1.0 for n in range(90)} | {"sentiment_high": 0.5}
        await store.prompts.observe(HERE, msgspec.structs.replace(seen("a", 1.0), signals=many))
        evidence = (await store.prompts.families(HERE, ["a"]))["a"].evidence[MAIN]
        assert (evidence.signals, evidence.b) == (("user_pleased",), (1.0, 0.5))

    async def test_concurrent_observations_all_count(self, store: Store) -> None:
        await write(store, text("a"))
        await asyncio.gather(*(store.prompts.observe(HERE, seen("a", 1.0)) for _ in range(16)))
        branch = (await store.prompts.families(HERE, ["a"]))["a"].branches[0]
        assert branch.observations == 16
        assert branch.weight == pytest.approx(1 - 0.5 * 0.9**16, abs=1e-9)
        assert len(await store.prompts.observations(HERE, "a")) == 16
        with pytest.raises(NotFound):
            await store.prompts.observe(HERE, seen("a", 1.0, number=2))

    async def test_observed_prompts_are_listed_after_a_mark(self, store: Store) -> None:
        await write(store, text("a"), text("b"))
        assert await store.prompts.observed(HERE, after=0) == ([], 0)
        await store.prompts.observe(HERE, seen("a", 1.0))
        names, mark = await store.prompts.observed(HERE, after=0)
        assert names == ["a"]
        await store.prompts.observe(HERE, seen("b", 1.0))
        names, later = await store.prompts.observed(HERE, after=mark)
        assert names == ["b"]
        assert await store.prompts.observed(HERE, after=later) == ([], later)
        assert (await store.prompts.observed(THERE, after=0))[0] == []

    async def test_one_user_has_limited_influence(self, store: Store) -> None:
        await write(store, text("a"))
        for _ in range(30):
            await store.prompts.observe(HERE, seen("a", 0.0, user="loud"))
        branch = (await store.prompts.families(HERE, ["a"]))["a"].branches[0]
        assert branch.weight == pytest.approx(0.5 * 0.9**10, abs=1e-9)
        assert len(await store.prompts.observations(HERE, "a")) == branch.observations == 30

    async def test_evidence_grows_with_the_observed_signals(self, store: Store) -> None:
        await write(store, text("a"))
        await store.prompts.observe(HERE, seen("a", 0.5))
        await store.prompts.observe(HERE, seen("a", 1.0, task_coding=1.0))
        evidence = (await store.prompts.families(HERE, ["a"]))["a"].evidence[MAIN]
        assert (evidence.signals, evidence.n) == (("task_coding",), 2)
        assert evidence.b == pytest.approx((1.5, 1.0))

    async def test_pages_list_all_names(self, store: Store) -> None:
        await write(store, *(text(f"p/{n:02}") for n in range(7)), text("q"))
        found, after = [], ""
        while True:
            page = await store.prompts.page(HERE, prefix="p/", limit=3, after=after)
            found += [each.slug for each in page.items]
            if page.next is None:
                break
            after = page.next
        assert found == [f"p/{n:02}" for n in range(7)]

    async def test_prompts_belong_to_one_tenant(self, store: Store) -> None:
        await write(store, text("a", "ours"))
        await write(store, text("a", "theirs"), scope=THERE)
        await store.prompts.observe(THERE, seen("a", 1.0))
        for scope, said, count in ((HERE, "ours", 0), (THERE, "theirs", 1)):
            family = (await store.prompts.families(scope, ["a"]))["a"]
            assert (family.active[0].sections["body"], family.branches[0].observations) == (said, count)
            assert [each.kind for each in await store.prompts.events(scope, "a")] == ["write"]
            assert len(await store.prompts.observations(scope, "a")) == count
        assert await store.prompts.tenants() == [THERE.tenant]
        nowhere = Scope("nowhere")
        assert await store.prompts.families(nowhere, ["a"]) == {}
        assert (await store.prompts.page(nowhere)).items == ()
        assert await store.prompts.versions(nowhere, "a") == []

    async def test_a_write_repeated_under_its_key_runs_once(self, store: Store) -> None:
        await write(store, text("a"))

        async def observe(user: str | None = None, *, finish: bool = False) -> int:
            request = store.keyed_request(Scope(HERE.tenant, user), "k", b"asked", name="k", at=BEGINNING)
            with request.running():
                branch = await store.prompts.observe(HERE, seen("a", 1.0))
            if finish:
                assert await store.finish(request, b'{"rolledBack":true}') == b'{"rolledBack":true}'
            return branch.observations

        assert await observe() == 1
        assert await store.answer_of(store.keyed_request(HERE, "k", b"asked", name="k", at=BEGINNING)) is None
        with pytest.raises(KeyReused):
            await store.answer_of(store.keyed_request(HERE, "k", b"other", name="k", at=BEGINNING))
        assert await observe(finish=True) == 1, "the result is recorded in the transaction of the write"
        with pytest.raises(AnsweredError):
            await observe()
        told = await store.idempotency_record(HERE, "k")
        assert told is not None
        assert (told.digest, told.turn) == (b"asked", 0)
        same = store.keyed_request(HERE, "k", b"asked", name="k", at=BEGINNING)
        assert await store.answer_of(same) == b'{"rolledBack":true}'
        assert len(await store.prompts.observations(HERE, "a")) == 1
        assert await observe("bob") == 2, "each user's keys are separate"

    async def test_a_failed_write_does_not_bind_its_key(self, store: Store) -> None:
        await write(store, text("a"))
        late = Write(version=text("a", "two"), base=7)
        request = store.keyed_request(HERE, "k", b"asked", name="k", at=BEGINNING)
        with pytest.raises(Conflict, match="has changed"), request.running():
            await store.prompts.save(HERE, [late], by="ann", now=BEGINNING)
        assert await store.idempotency_record(HERE, "k") is None
        again = store.keyed_request(HERE, "k", b"asked", name="k", at=BEGINNING)
        with again.running():
            await store.prompts.save(HERE, [msgspec.structs.replace(late, base=1)], by="ann", now=BEGINNING)
        assert await store.finish(again, b"1") == b"1"
        assert await store.answer_of(again) == b"1"

    async def test_versions_are_loaded_by_number(self, store: Store) -> None:
        for n in range(1, 4):
            await write(store, text("a", f"text {n}"))
        found = await store.prompts.versions(HERE, "a", branch=MAIN, numbers=[3, 1, 9, 2**70])
        assert [each.sections["body"] for each in found] == ["text 1", "text 3"]
