"""Tests of the erasure dry run: it predicts what a forget deletes and changes nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path

from turn_helpers import cue_on

from cuebook import Ask, Cuebook, Posted
from cuebook.testing import FrozenClock, ScriptedModel


async def store_conversations(cue: Cuebook, clock: FrozenClock) -> None:
    """Store two equal conversations of ann, one of bob in which ann takes part, and an API key."""
    for name in ("c1", "c2"):
        await cue.ask(Ask("I live in Oslo.", name, user="ann"))
        clock.advance(60)
        await cue.settle()
    await cue.ask(Ask("I am allergic to nuts.", "c1", user="ann"))
    shared = [
        Posted(sender="bob", message="Our boat is called Marigold."),
        Posted(sender="assistant", message="A fine name."),
        Posted(sender="ann", message="My garden is by the old mill."),
        Posted(sender="assistant", message="By the old mill, then."),
        Posted(sender="bob", message="The boat needs paint."),
    ]
    await cue.append("shared", shared, user="bob")
    await cue.settle()
    await cue.keys.new("editor", user="ann")


def rows_of(folder: Path) -> list[str]:
    """Return every row of every table."""
    with closing(sqlite3.connect(folder / "cuebook.db")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [f"{name} {row}" for name in sorted(names) for row in connection.execute(f'SELECT * FROM "{name}"')]  # noqa: S608


async def test_a_dry_run_predicts_the_erasure_and_changes_nothing(tmp_path):
    clock = FrozenClock()
    async with cue_on(tmp_path, model=ScriptedModel(default="Noted."), clock=clock, memory__user=True) as cue:
        await store_conversations(cue, clock)
        [nuts] = [each.id for each in (await cue.memory.list(user="ann")).items if "nuts" in each.text]
        before = rows_of(tmp_path)
        requests = {
            "memory": {"memories": [nuts], "by": "ann"},
            "others": {"conversation": "shared", "by": "eve"},
            "conversation": {"conversation": "c1", "by": "ann"},
            "user": {"user": "ann"},
        }
        previews = {name: await cue.memory.would_forget(**named) for name, named in requests.items()}
        assert rows_of(tmp_path) == before, "nothing is changed"
        assert await cue.memory.receipts() == []

        assert [each.text for each in previews["memory"].memories] == ["I am allergic to nuts."]
        assert [(each.what, each.count) for each in previews["memory"].stays] == [("sourcePosts", 1)]
        assert (previews["others"].counts, previews["others"].conversations) == ({}, ()), (
            "other users' data does not exist for her"
        )
        [oslo] = [each for each in previews["conversation"].memories if "Oslo" in each.text]
        assert (
            oslo.scope,
            {each.what: each.count for each in previews["conversation"].stays}["memoriesFromOthers"],
        ) == (
            "user",
            1,
        )
        reached = {each.conversation_id: (each.posts, each.left) for each in previews["user"].conversations}
        assert reached == {"c1": (4, 0), "c2": (2, 0), "shared": (2, 3)}
        stays = {each.what: each for each in previews["user"].stays}
        counts = {name: each.count for name, each in stays.items()}
        assert counts == {"othersPosts": 3, "emptyPlaces": 2, "auditRecords": 1, "keys": 1}
        assert stays["othersPosts"].why == "written by other users, or replies to them"

        for name in ("memory", "conversation", "user"):
            now = await cue.memory.would_forget(**requests[name])
            receipt = await cue.memory.forget(**requests[name])
            assert now.counts == {kind: count for kind, count in receipt.counts.items() if count}, name
        assert (await cue.memory.would_forget(user="ann")).counts == {}
