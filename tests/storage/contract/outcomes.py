"""The contract of outcomes: a turn's outcome is learned once, and a correction replaces what was learned."""

import asyncio
from typing import Any

import msgspec
import pytest

from cuebook.errors import Conflict, NotFound
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Observation, Outcome, StoredOutcome
from cuebook.storage.outcomes import Lesson
from cuebook.storage.store import Store
from cuebook.testing.doubles import BEGINNING
from storage.contract.posts import OWNER
from storage.contract.prompts import text, write
from storage.contract.turns import answer, begin, end
from storage.makers import draft

SLUG = "persona/kind"


def heard(sentiment: float, **changes: Any) -> Outcome:
    """Return what a message says about the previous turn."""
    made = Outcome(by="next", at=BEGINNING, score=sentiment, sentiment=sentiment, corrections=0, user="ann")
    return msgspec.structs.replace(made, **changes)


async def turns(store: Store, *scores: float, conversation: str = "c") -> None:
    """Run one turn, then one turn per score that rates the previous turn."""
    for n, score in enumerate([None, *scores], 1):
        before = None if score is None else (n - 1, heard(score))
        lease = await begin(store, draft(f"q{n}", f"ask {n}"), conversation=conversation, user="ann", outcome=before)
        await end(store, lease, answer(f"a{n}"))


def lesson(score: float, *, slug: str = SLUG, turn: int = 1, user: str = "ann", **signals: float) -> Lesson:
    """Return an observation of a turn."""
    observation = Observation(
        slug=slug, branch=MAIN, number=1, score=score, sentiment=score, user=user, conversation="c", turn=turn,
        signals=signals, at=BEGINNING,
    )  # fmt: skip
    return observation, None


async def load_outcome(store: Store, turn: int = 1) -> StoredOutcome:
    """Load a turn's outcome, which must exist."""
    found = await store.outcomes.get(OWNER, "c", turn)
    assert found is not None
    return found


async def learn_outcome(store: Store, score: float, *, turn: int = 1, **signals: float) -> None:
    """Learn the due outcome of a turn."""
    own = lesson(score, turn=turn)[0]
    own = msgspec.structs.replace(own, signals=signals)
    assert await store.outcomes.fold(OWNER, "c", turn, await load_outcome(store, turn), lessons=[(own, None)])


async def learned_state(store: Store, slug: str = SLUG) -> tuple[float, int, object]:
    """Return what a prompt learned: weight, number of observations and evidence."""
    family = (await store.prompts.families(OWNER, [slug]))[slug]
    return family.branches[0].weight, family.branches[0].observations, family.evidence.get(MAIN)


class OutcomeContract:
    """The contract of outcomes."""

    async def test_a_turns_outcome_arrives_with_the_next_turn(self, store: Store) -> None:
        await turns(store, 0.9)
        found = await load_outcome(store)
        assert (found.due, found.revision, found.outcome) == (True, 1, heard(0.9, next_turn=2))
        assert await store.outcomes.get(OWNER, "c", 2) is None
        [due] = await store.outcomes.due(limit=9)
        assert due[1:] == ("c", 1)

    async def test_the_newest_outcomes_come_first(self, store: Store) -> None:
        await turns(store, 0.1, 0.2, 0.3)
        found = await store.outcomes.lately(OWNER, "c", limit=2)
        assert [each.sentiment for each in found] == [0.3, 0.2]
        with pytest.raises(NotFound):
            await store.outcomes.lately(Scope(user="eve"), "c", limit=2)

    async def test_the_first_message_after_a_turn_counts(self, store: Store) -> None:
        await turns(store, 0.9)
        lease = await begin(store, draft("q3", "otherwise"), after=2, outcome=(1, heard(0.1)))
        await end(store, lease, answer("a3"))
        assert (await load_outcome(store)).outcome.sentiment == 0.9

    async def test_a_due_outcome_is_learned_once(self, store: Store) -> None:
        await write(store, text(SLUG))
        await turns(store, 0.9)
        read = await load_outcome(store)
        made = await asyncio.gather(
            *(store.outcomes.fold(OWNER, "c", 1, read, lessons=[lesson(0.9)]) for _ in range(8))
        )
        assert sum(each is not None for each in made) == 1
        assert await store.outcomes.due(limit=9) == []
        found = await load_outcome(store)
        assert [(each.slug, each.branch, each.number) for each in found.taught] == [(SLUG, MAIN, 1)]
        assert [*(await learned_state(store))[:2]] == [pytest.approx(0.54), 1]

    async def test_an_outdated_outcome_is_not_learned(self, store: Store) -> None:
        await write(store, text(SLUG))
        await turns(store, 0.9)
        read = await load_outcome(store)
        await store.outcomes.give(OWNER, "c", 1, heard(0.2, by="feedback"))
        assert await store.outcomes.fold(OWNER, "c", 1, read, lessons=[lesson(0.9)]) is None
        assert (await learned_state(store))[1] == 0
        assert (await load_outcome(store)).due

    async def test_feedback_replaces_sentiment_and_older_feedback(self, store: Store) -> None:
        await turns(store, 0.9)
        for n, score in enumerate((0.1, 0.3), 2):
            found = await store.outcomes.give(OWNER, "c", 1, heard(score, by="feedback"))
            assert (found.revision, found.due, found.outcome.sentiment) == (n, True, score)
        lease = await begin(store, draft("q9", "and more"), outcome=(2, heard(0.7)))
        await end(store, lease, answer("a9"))
        await store.outcomes.give(OWNER, "c", 3, heard(1.0, by="feedback"))
        lease = await begin(store, draft("q10", "terrible"), outcome=(3, heard(0.0)))
        await end(store, lease, answer("a10"))
        assert (await load_outcome(store, 3)).outcome.sentiment == 1.0

    @pytest.mark.parametrize("later", [0, 3, 70])
    async def test_a_correction_equals_learning_it_at_first(self, store: Store, later: int) -> None:
        await write(store, text(SLUG), text("other"))
        await turns(store, 0.9)
        for score, slug in ((0.9, SLUG), (0.2, "other")):
            await store.prompts.observe(OWNER, lesson(0.6, slug=slug, turn=0)[0])
            if slug == SLUG:
                await learn_outcome(store, score, energy_high=0.5)
            else:
                await store.prompts.observe(OWNER, lesson(score, slug=slug, energy_high=0.5)[0])
            for n in range(later):
                seen, _ = lesson(n / later, slug=slug, turn=0, user=f"u{n}", task_coding=n % 2)
                await store.prompts.observe(OWNER, seen)
        _, mark, revised = await store.prompts.observations_since(OWNER, SLUG, MAIN, (1, 2), after=0, limit=99)
        await store.outcomes.give(OWNER, "c", 1, heard(0.2, by="feedback"))
        await learn_outcome(store, 0.2, energy_high=0.5)
        weight, count, evidence = await learned_state(store)
        other_weight, other_count, other_evidence = await learned_state(store, "other")
        assert [weight, count] == [pytest.approx(other_weight), other_count]
        assert msgspec.to_builtins(evidence) == {
            name: pytest.approx(value) if name in ("A", "b") else value
            for name, value in msgspec.to_builtins(other_evidence).items()
        }
        again, same, newer = await store.prompts.observations_since(OWNER, SLUG, MAIN, (1, 2), after=0, limit=99)
        assert (same, newer > revised, 0.2 in [each.score for each in again]) == (mark, True, True)

    async def test_an_anonymous_user_is_limited_per_conversation(self, store: Store) -> None:
        await write(store, text(SLUG))
        await turns(store, *[0.5] * 14)
        for _, _, turn in await store.outcomes.due(limit=100):
            seen = lesson(0.0, turn=turn, user="")
            await store.outcomes.fold(OWNER, "c", turn, await load_outcome(store, turn), lessons=[seen])
        weight, count, _ = await learned_state(store)
        assert [weight, count] == [pytest.approx(0.5 * 0.9**10), 14]
        assert [(await load_outcome(store, n)).taught[0].counted for n in range(1, 15)] == [True] * 10 + [False] * 4

    async def test_feedback_needs_a_finished_turn(self, store: Store) -> None:
        await turns(store)
        with pytest.raises(NotFound, match="Unknown turn 7"):
            await store.outcomes.give(OWNER, "c", 7, heard(1.0))
        with pytest.raises(NotFound):
            await store.outcomes.give(Scope(user="eve"), "c", 1, heard(1.0))
        with pytest.raises(NotFound):
            await store.outcomes.get(Scope(user="eve"), "c", 1)
        await begin(store, draft("q2", "and now?"))
        with pytest.raises(Conflict, match="still running"):
            await store.outcomes.give(OWNER, "c", 2, heard(1.0))

    async def test_deleting_a_conversation_deletes_its_outcomes(self, store: Store) -> None:
        await write(store, text(SLUG))
        await turns(store, 0.9)
        read = await load_outcome(store)
        await store.delete(OWNER, "c")
        assert await store.outcomes.due(limit=9) == []
        assert await store.outcomes.fold(OWNER, "c", 1, read, lessons=[lesson(0.9)]) is None
        await turns(store, 0.4)
        assert await store.outcomes.fold(OWNER, "c", 1, read, lessons=[lesson(0.9)]) is None
        assert (await load_outcome(store)).due
