"""Forgetting: nothing of it is left in any byte, nothing brings it back, and a signed receipt says what went."""

from pathlib import Path

import pytest
from stage import book_on

from cuebook import Ask, Cuebook, NotFound, Part, Posted
from cuebook.testing import FrozenClock, ScriptedModel

CANARY = "Zanzibarquokka"


def left(folder: Path, words: str = CANARY) -> dict[str, int]:
    """Give the files of a folder that hold words, in whatever case, and how often."""
    needle = words.lower().encode()
    found = {
        str(file.relative_to(folder)): file.read_bytes().lower().count(needle)
        for file in folder.rglob("*")
        if file.is_file()
    }
    return {name: count for name, count in found.items() if count}


async def tell(book: Cuebook, name: str = "c", *, user: str | None = "ann", posts: int = 30) -> None:
    """Say the canary wherever words can go: posts, parts, wire, attachments, summary, items, a broken-off answer."""
    said = [
        Posted(
            sender=(user or "user") if n % 2 == 0 else "assistant",
            message=f"My house in {CANARY} has {n} rooms and a garden; I like {CANARY} tea number {n}.",
            parts=(Part("text", f"{CANARY} attached {n}", {"name": CANARY}),) if n % 7 == 0 else (),
        )
        for n in range(posts)
    ]
    await book.append(name, said, user=user)
    await book.append(name, [{"role": "user", "content": f"{CANARY} " * 900, "x_extra": CANARY}], user=user)
    await book.ask(Ask(f"What of {CANARY}?", name, user=user, attachments=(Part("text", CANARY),), idempotency_key="k"))
    await book.settle()
    await book.ask(Ask(f"And my house in {CANARY}?", name, user=user))


async def test_a_conversation_leaves_no_byte_and_a_receipt_that_anyone_can_check(tmp_path: Path) -> None:
    async with book_on(tmp_path, model=ScriptedModel(default=f"{CANARY} is fine."), clock=FrozenClock()) as book:
        await tell(book)
        assert await book.memory.summary("c")
        assert left(tmp_path)
        receipt = await book.memory.forget(conversation="c")
        assert left(tmp_path) == {}
        assert (receipt.state, receipt.kind, receipt.counts["conversations"]) == ("done", "conversation", 1)
        assert receipt.counts["posts"] > 30
        assert receipt.signature
        assert "c" not in receipt.asked
        assert book.receipts.verify(receipt).ok
        assert book.receipts.verify(receipt, name="c").names
        assert not book.receipts.verify(receipt, name="d").ok
        with pytest.raises(NotFound):
            await book.conversations.get("c")
        again = await book.memory.forget(conversation="c")
        assert (again.state, sum(again.counts.values())) == ("done", 0)
        assert [each.id for each in await book.receipts.list()] == [again.id, receipt.id]
        assert (await book.audit.verify()).ok
