"""What is settled: conversations, prompts to judge, the audit's mirror and its checkpoints."""

import asyncio
from pathlib import Path

from stage import book_on

from cuebook.testing import FrozenClock

MIRROR = "logs/prompts_audit.jsonl"


async def test_after_settling_nothing_is_due_and_the_mirror_has_every_record(tmp_path: Path) -> None:
    clock = FrozenClock()
    async with book_on(tmp_path, clock=clock, prompts__rollback="sigma") as book:
        await book.prompts.save("a", {"body": "x"})
        await book.prompts.observe("a", sentiment=1.0)
        clock.advance(100.0)
        assert await book.settle(timeout=0) == {"rollback": 1, "audit": 2}
        assert await book.settle() == {}
        assert len((tmp_path / MIRROR).read_text().splitlines()) == 2
        assert (await book.audit.verify_mirror(tmp_path / MIRROR)).ok
        await book.prompts.observe("a", sentiment=1.0)
        clock.advance(100.0)
        assert await book.settle() == {}
        assert [each.size for each in await book.audit.checkpoints()] == [3]


async def test_a_mirror_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    async with book_on(tmp_path) as book:
        await book.prompts.save("a", {"body": "x"})
        assert await book.settle() == {"audit": 1}
        (tmp_path / "logs").unlink()
        assert await book.settle() == {}
        assert len((tmp_path / MIRROR).read_text().splitlines()) == 1


async def test_settling_that_is_cut_short_mirrors_no_record_twice(tmp_path: Path) -> None:
    async with book_on(tmp_path) as book:
        for n in range(200):
            await book.prompts.save("a", {"body": f"text {n}"})
        for n in range(20):
            settling = asyncio.create_task(book.settle())
            await asyncio.sleep(n / 2000)
            settling.cancel()
            await asyncio.wait((settling,))
        assert await book.settle() == {}
    assert len((tmp_path / MIRROR).read_text().splitlines()) == 200
