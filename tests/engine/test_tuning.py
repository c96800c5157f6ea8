"""Tests of the optimizer: windows and compaction use its tunings, and windows stay stable."""

from pathlib import Path

import pytest
from turn_helpers import NAME, bot, check_accounted, cue_on, user

from cuebook import Ask, Cuebook
from cuebook.records.memory import Scope
from cuebook.records.tuning import TuningState
from cuebook.records.turn import Manifest
from cuebook.testing import FrozenClock, ScriptedModel

SMALL = {"budget__context": 6000, "budget__reply": 1000, "budget__system": 100, "budget__memory": 0}
#: A long text that an agent reads more than once.
PAGE = "\n".join(f"Line {n} of the timetable says that the ferry number {1000 + n} leaves in time." for n in range(14))


async def tuning(cue: Cuebook) -> TuningState | None:
    state = await cue.services.store.tuning.tuned(Scope(), NAME)
    return state[0] if state else None


async def append_turns(cue: Cuebook, turns: int, *, first: int = 0, words: int = 40) -> None:
    for n in range(first, first + turns):
        text = " ".join(f"w{n}x{k}" for k in range(words))
        await cue.append(
            NAME, [user(f"Question {n}: {text}", id=f"q{n}"), bot(f"Answer {n}: {text[::-1]}", id=f"a{n}")]
        )


async def test_the_optimizer_runs_after_changes_and_an_interval(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        await append_turns(cue, 4)
        assert await cue.settle() == {}
        assert await tuning(cue) is None  # fewer than ten posts
        await append_turns(cue, 1, first=4)
        assert await cue.settle(timeout=0) == {"optimizer": 1}
        assert await cue.settle() == {}
        first = await tuning(cue)
        assert first is not None
        assert (first.runs, first.full_message_window) == (1, 31)
        await append_turns(cue, 1, first=5)
        clock.advance(119.0)
        assert await cue.settle() == {}
        assert await tuning(cue) == first  # not yet
        clock.advance(1.0)
        await cue.work()
        clock.advance(500.0)
        await cue.work()
        assert (await tuning(cue) or first).runs == 2  # nothing changed since


async def test_tunings_survive_a_restart(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        await append_turns(cue, 5)
        await cue.settle()
        before = await tuning(cue)
    clock.advance(500.0)
    async with cue_on(tmp_path, clock=clock) as cue:
        await cue.settle()
        assert await tuning(cue) == before
        await append_turns(cue, 1, first=5)
        await cue.settle()
        assert (await tuning(cue) or TuningState()).full_message_window == 32


async def test_the_optimizer_can_be_switched_off(tmp_path: Path) -> None:
    async with cue_on(tmp_path, optimizer__enabled=False) as cue:
        await append_turns(cue, 8)
        assert await cue.settle(timeout=0) == {}
        assert await cue.settle() == {}
        assert await tuning(cue) is None


async def put(cue: Cuebook, tuning: TuningState) -> None:
    """Store a tuning as a run of the optimizer would."""
    conversation = await cue.services.store.conversation(Scope(), NAME)
    stands = await cue.services.store.tuning.tuned(Scope(), NAME)
    before, now = stands[1] if stands else 0.0, cue.services.clock.now()
    assert await cue.services.store.tuning.keep(Scope(), conversation, tuning, before=before, now=now)


@pytest.mark.parametrize(("tunes", "condensed"), [(False, False), (True, True)])
async def test_the_tuned_trigger_starts_compaction_in_the_budget_profile(
    tmp_path: Path, *, tunes: bool, condensed: bool
) -> None:
    async with cue_on(tmp_path, memory__profile="budget", optimizer__enabled=tunes, **SMALL) as cue:
        await append_turns(cue, 22, words=9)
        conversation = await cue.services.store.conversation(Scope(), NAME)
        assert 0.45 < conversation.backlog_tokens / 4500 < 0.7  # the settings' trigger
        await put(cue, TuningState(compression_trigger=0.4, full_message_window=10, runs=1))
        await cue.settle()
        assert (await cue.conversations.summary(NAME) is not None) is condensed


async def seqs(cue: Cuebook, query: str = "And now?") -> list[int]:
    window = await cue.assemble(Ask(query, conversation=NAME))
    await check_accounted(cue, window)
    assert window.tokens <= window.budget
    assert (await cue.assemble(Ask(query, conversation=NAME))).raw_messages == window.raw_messages
    return [block.seq for block in window.blocks if block.seq]


async def test_the_tuned_tail_sets_how_many_posts_stay_verbatim(tmp_path: Path) -> None:
    async with cue_on(tmp_path, memory__profile="off", memory__recall=False, **SMALL) as cue:
        await append_turns(cue, 12, words=34)
        before = await seqs(cue)
        await put(cue, TuningState(full_message_window=2, runs=1))
        after = await seqs(cue)
        assert len(after) < len(before)
        await put(cue, TuningState(full_message_window=50, runs=2))
        assert await seqs(cue) == before


def forms(manifest: Manifest) -> dict[int, str]:
    return {seq: each.form for each in manifest.path for seq in range(each.first, each.last + 1)}


async def test_a_repeated_text_is_shortened_when_the_prefix_changes_anyway(tmp_path: Path) -> None:
    clock = FrozenClock()
    model = ScriptedModel(default=PAGE)
    settings = {"memory__profile": "off", "memory__recall": False, **SMALL}
    async with cue_on(tmp_path, clock=clock, model=model, **settings) as cue:
        runs, shortened, before = [0], 0, {0: ""}
        for n in range(24):
            reply = await cue.ask(Ask(f"Question {n}: when does the next ferry leave, please?", conversation=NAME))
            run = reply.metadata["window"].get("tuning", {}).get("run", 0)
            turn = await cue.turns.get(NAME, n + 1)
            now = forms(turn.steps[0].manifest)
            if {seq: form for seq, form in now.items() if seq <= max(before)} == before:
                assert run == runs[-1]  # the prefix did not change, so no tuning was applied
            assert reply.window is not None
            assert reply.window.tokens <= reply.window.budget
            shortened = max(shortened, sum(form == "compressed" for form in now.values()))
            runs.append(run)
            before = now
            assert (await cue.turns.replay(NAME, n + 1)).verdict == "identical"
            clock.advance(130.0)
            await cue.settle()
        await check_accounted(cue, await cue.assemble(Ask("And now?", conversation=NAME)))
        assert runs[-1] > runs[1] == 0
        assert shortened > 3
        assert (await tuning(cue) or TuningState()).tokens_saved > 0


async def test_in_a_conversation_that_fits_the_prefix_never_changes(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock, model=ScriptedModel(default=PAGE), memory__profile="off") as cue:
        for n in range(14):
            reply = await cue.ask(Ask(f"ok {n}", conversation=NAME))
            assert "tuning" not in reply.metadata["window"]
            clock.advance(130.0)
            await cue.settle()
        marked = await tuning(cue)
        assert marked is not None
        assert marked.runs > 5
        window = await cue.assemble(Ask("And now?", conversation=NAME))
        assert [block.seq for block in window.blocks if block.seq] == list(range(1, 30))


async def test_deleting_a_conversation_deletes_its_tuning(tmp_path: Path) -> None:
    async with cue_on(tmp_path) as cue:
        await append_turns(cue, 6)
        await cue.settle()
        counts = await cue.conversations.delete(NAME)
        assert (counts["tuning"], counts["optimizations"]) == (1, 1)
        await append_turns(cue, 1)
        assert await tuning(cue) is None


async def test_short_posts_are_not_suggested_forever(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        for n in range(24):
            await cue.append(NAME, [user("ok", id=f"u{n}"), {"role": "assistant", "content": "hi", "id": f"a{n}"}])
        clock.advance(3 * 86_400.0)
        runs = [await cue.optimizer.run(NAME) for _ in range(4)]
        assert [run.entries_compressed for run in runs] == [0, 0, 0, 0], "they have no shorter form"
        assert "compress" not in {each.type for each in (await cue.memory.analyze(NAME)).suggested_actions}
        assert (await cue.memory.analyze(NAME)).suggested_actions == ()


async def test_a_promoted_post_becomes_an_item_once_when_it_is_summarized(tmp_path: Path) -> None:
    text = "The nightly export is critical; it failed at https://example.com/exports/77 with an error in step 3."
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        await cue.append(NAME, [user("Hello.", id="h"), {"role": "assistant", "content": text, "id": "p"}])
        await append_turns(cue, 5)
        assert ("promote", "p") in [(e.type, e.post_id) for e in (await cue.memory.analyze(NAME)).suggested_actions]
        assert (await cue.optimizer.run(NAME)).entries_promoted == 1
        [item] = [item for item in await cue.memory.items(NAME) if "p" in item.sources]
        assert "https://example.com/exports/77" in item.text, "at once"
        assert (await cue.memory.stats(NAME)).by_type.long_term == 1
        assert (await cue.optimizer.run(NAME)).entries_promoted == 0
        assert "promote" not in [each.type for each in (await cue.memory.analyze(NAME)).suggested_actions]
        await append_turns(cue, 12, first=5)
        await cue.settle()
        assert (await cue.conversations.summary(NAME)) is not None
        items = [item for item in await cue.memory.items(NAME) if "p" in item.sources]
        assert len(items) == 1
        assert "https://example.com/exports/77" in items[0].text
        clock.advance(500.0)
        await append_turns(cue, 30, first=17)
        await cue.settle()
        assert len([item for item in await cue.memory.items(NAME) if "p" in item.sources]) == 1
        assert (await cue.memory.stats(NAME)).by_type.long_term >= 1
