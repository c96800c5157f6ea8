"""Test of a very long conversation: each post is stored once, old posts are found, and a prompt stays in its budget."""

from collections import Counter
from collections.abc import Callable

from project import Project

from cuebook import Ask, Posted
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel
from storage.history import losses

POSTS, AT_ONCE = 10_000, 1_000


async def test_a_conversation_of_many_posts(project: Project, record_fault: Callable[..., None]) -> None:
    names = [f"p{number}" for number in range(POSTS)]
    async with project.open(model=ScriptedModel(default="Noted.")) as cue:
        for start in range(0, POSTS, AT_ONCE):
            numbers = range(start, start + AT_ONCE)
            posts = [
                Posted(id=names[number], sender="ann", message=f"Locker {number} is in corridor {number * 3}.")
                for number in numbers
            ]
            await cue.append("c", posts, user="ann")
        [hit, *_] = await cue.memory.search("locker 137", conversation="c", user="ann")
        assert "Locker 137 " in hit.text
        reply = await cue.ask(Ask("Where is locker 137?", "c", user="ann"))
        window = (await cue.turns.replay("c", 1)).window
        assert window is not None
        assert sum(block.tokens for block in window.blocks) <= cue.services.settings.limits.context
        counts = losses(await cue.services.store.posts(Scope(), "c", path=False), names)
        record_fault("a conversation of 10,000 posts", Counter(acknowledged=POSTS) + counts)
        assert reply.text == "Noted."
        assert not +counts
    assert project.audit() == []
