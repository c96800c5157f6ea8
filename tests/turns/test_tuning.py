"""The optimizer at work: what it tunes is used by windows and compaction, and windows stay as steady as they were."""

from pathlib import Path

import pytest
from stage import NAME, accounted, book_on, bot, user

from cuebook import Ask, Cuebook
from cuebook.interfaces.reflections import TuningRun
from cuebook.records.memory import Scope
from cuebook.records.tuning import Tuning
from cuebook.records.turn import Manifest
from cuebook.testing import FrozenClock, ScriptedModel

SMALL = {"budget__context": 6000, "budget__reply": 1000, "budget__system": 100, "budget__memory": 0}
#: A long text that an agent reads more than once.
PAGE = "\n".join(f"Line {n} of the timetable says that the ferry number {1000 + n} leaves in time." for n in range(14))


async def tuning(book: Cuebook) -> Tuning | None:
    found = await book.desk.store.tuning.tuned(Scope(), NAME)
    return found.tuning if found else None


async def talk(book: Cuebook, turns: int, *, first: int = 0, words: int = 40) -> None:
    for n in range(first, first + turns):
        said = " ".join(f"w{n}x{k}" for k in range(words))
        await book.append(
            NAME, [user(f"Question {n}: {said}", id=f"q{n}"), bot(f"Answer {n}: {said[::-1]}", id=f"a{n}")]
        )


async def test_it_runs_where_something_changed_and_an_interval_passed(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with book_on(tmp_path, clock=clock) as book:
        await talk(book, 4)
        assert await book.settle() == {}
        assert await tuning(book) is None  # fewer than ten posts
        await talk(book, 1, first=4)
        assert await book.settle(timeout=0) == {"optimizer": 1}
        assert await book.settle() == {}
        first = await tuning(book)
        assert first is not None
        assert (first.runs, first.full_message_window) == (1, 31)
        await talk(book, 1, first=5)
        clock.advance(119.0)
        assert await book.settle() == {}
        assert await tuning(book) == first  # not yet
        clock.advance(1.0)
        await book.work()
        clock.advance(500.0)
        await book.work()
        assert (await tuning(book) or first).runs == 2  # nothing changed since


async def test_what_was_tuned_is_there_when_the_book_is_opened_again(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with book_on(tmp_path, clock=clock) as book:
        await talk(book, 5)
        await book.settle()
        before = await tuning(book)
    clock.advance(500.0)
    async with book_on(tmp_path, clock=clock) as book:
        await book.settle()
        assert await tuning(book) == before
        await talk(book, 1, first=5)
        await book.settle()
        assert (await tuning(book) or Tuning()).full_message_window == 32


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async with book_on(tmp_path, optimizer__enabled=False) as book:
        await talk(book, 8)
        assert await book.settle(timeout=0) == {}
        assert await book.settle() == {}
        assert await tuning(book) is None


async def put(book: Cuebook, tuning: Tuning) -> None:
    """Keep a tuning as a run of now would."""
    found = await book.conversations.get(NAME)
    stands = await book.desk.store.tuning.tuned(Scope(), NAME)
    run = TuningRun(
        no=found.no,
        seen_seq=found.last_seq,
        before=stands.updated_at if stands else 0.0,
        now=book.desk.clock.now(),
        tuning=tuning,
    )
    assert await book.desk.store.tuning.keep(Scope(), NAME, run)


@pytest.mark.parametrize(("tunes", "condensed"), [(False, False), (True, True)])
async def test_the_tuned_trigger_decides_when_profile_budget_condenses(
    tmp_path: Path, *, tunes: bool, condensed: bool
) -> None:
    async with book_on(tmp_path, memory__profile="budget", optimizer__enabled=tunes, **SMALL) as book:
        await talk(book, 22, words=9)
        found = await book.conversations.get(NAME)
        assert 0.45 < found.backlog_tokens / 4500 < 0.7  # the settings' trigger
        await put(book, Tuning(compression_trigger=0.4, full_message_window=10, runs=1))
        await book.settle()
        assert (await book.memory.summary(NAME) is not None) is condensed


async def seqs(book: Cuebook, query: str = "And now?") -> list[int]:
    window = await book.assemble(Ask(query, conversation=NAME))
    await accounted(book, window)
    assert window.tokens <= window.budget
    assert (await book.assemble(Ask(query, conversation=NAME))).messages == window.messages
    return [block.seq for block in window.blocks if block.seq]


async def test_the_tuned_full_window_says_how_many_posts_stay_whole(tmp_path: Path) -> None:
    async with book_on(tmp_path, memory__profile="off", memory__recall=False, **SMALL) as book:
        await talk(book, 12, words=30)
        before = await seqs(book)
        await put(book, Tuning(full_message_window=2, runs=1))
        after = await seqs(book)
        assert len(after) < len(before)
        await put(book, Tuning(full_message_window=50, runs=2))
        assert await seqs(book) == before


def forms(manifest: Manifest) -> dict[int, str]:
    return {seq: each.form for each in manifest.path for seq in range(each.first, each.last + 1)}


async def test_what_is_said_again_stands_shortened_once_the_front_changes_anyway(tmp_path: Path) -> None:
    clock = FrozenClock()
    model = ScriptedModel(default=PAGE)
    settings = {"memory__profile": "off", "memory__recall": False, **SMALL}
    async with book_on(tmp_path, clock=clock, model=model, **settings) as book:
        runs, shortened, before = [0], 0, {0: ""}
        for n in range(24):
            reply = await book.ask(Ask(f"Question {n}: when does the next ferry leave, please?", conversation=NAME))
            told = reply.metadata["window"].get("tuning", {}).get("run", 0)
            turn = await book.turns.get(NAME, n + 1)
            now = forms(turn.steps[0].manifest)
            if {seq: form for seq, form in now.items() if seq <= max(before)} == before:
                assert told == runs[-1]  # nothing in front changed, so no run was taken up
            assert reply.window is not None
            assert reply.window.tokens <= reply.window.budget
            shortened = max(shortened, sum(form == "compressed" for form in now.values()))
            runs.append(told)
            before = now
            assert (await book.turns.replay(NAME, n + 1)).verdict == "identical"
            clock.advance(130.0)
            await book.settle()
        await accounted(book, await book.assemble(Ask("And now?", conversation=NAME)))
        assert runs[-1] > runs[1] == 0
        assert shortened > 3
        assert (await tuning(book) or Tuning()).tokens_saved > 0


async def test_in_a_conversation_that_fits_nothing_in_front_ever_changes(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with book_on(tmp_path, clock=clock, model=ScriptedModel(default=PAGE), memory__profile="off") as book:
        for n in range(14):
            reply = await book.ask(Ask(f"ok {n}", conversation=NAME))
            assert "tuning" not in reply.metadata["window"]
            clock.advance(130.0)
            await book.settle()
        marked = await tuning(book)
        assert marked is not None
        assert marked.runs > 5
        window = await book.assemble(Ask("And now?", conversation=NAME))
        assert [block.seq for block in window.blocks if block.seq] == list(range(1, 30))


async def test_deleting_a_conversation_forgets_its_tuning(tmp_path: Path) -> None:
    async with book_on(tmp_path) as book:
        await talk(book, 6)
        await book.settle()
        counts = await book.conversations.delete(NAME)
        assert (counts["tuning"], counts["optimizations"]) == (1, 1)
        await talk(book, 1)
        assert await tuning(book) is None


async def test_a_promoted_post_becomes_an_item_when_it_goes_under_a_summary_and_once(tmp_path: Path) -> None:
    said = "The nightly export is critical; it failed at https://example.com/exports/77 with an error in step 3."
    clock = FrozenClock()
    async with book_on(tmp_path, clock=clock) as book:
        await book.append(NAME, [user("Hello.", id="h"), {"role": "assistant", "content": said, "id": "p"}])
        await talk(book, 5)
        assert ("promote", "p") in [(e.type, e.post_id) for e in (await book.memory.analyze(NAME)).suggested_actions]
        assert (await book.optimizer.run(NAME)).entries_promoted == 1
        assert (await book.optimizer.run(NAME)).entries_promoted == 0
        assert "promote" not in [each.type for each in (await book.memory.analyze(NAME)).suggested_actions]
        await talk(book, 12, first=5)
        await book.settle()
        assert (await book.memory.summary(NAME)) is not None
        told = [item for item in await book.memory.items(NAME) if "p" in item.sources]
        assert len(told) == 1
        assert "https://example.com/exports/77" in told[0].text
        clock.advance(500.0)
        await talk(book, 30, first=17)
        await book.settle()
        assert len([item for item in await book.memory.items(NAME) if "p" in item.sources]) == 1
        assert (await book.memory.stats(NAME)).by_type.long_term >= 1
