"""Tests of SIGKILL during a stream, a write or a compaction.

Every acknowledged write is stored, and nothing else happened.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conversation_process import PIECES
from project import Project

from cuebook import Ask, Cuebook
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from storage.history import losses

CONVERSATION_PROCESS = Path(__file__).with_name("conversation_process.py")

FAILPOINTS = [
    "append.stored:kill@20",
    "open.begin:kill",
    "open.stored:kill",
    "checkpoint.stored:kill@2",
    "stream.piece:kill@30",
    "stream.ended:kill",
    "close.begin:kill",
    "close.stored:kill",
    "compact.read:kill",
    "compact.made:kill",
    "summary.begin:kill",
    "summary.stored:kill",
    "commit.before:kill@31",
    "commit.after:kill@31",
]


class Later:
    """A clock ahead of every lease of the killed process."""

    def now(self) -> float:
        return time.time() + 120


@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_acknowledged_writes_survive_a_kill(
    project: Project, failpoint: str, record_fault: Callable[..., None]
) -> None:
    log = project.run_until_killed(CONVERSATION_PROCESS, failpoint)
    async with project.open(clock=Later()) as cue:
        before = await cue.services.store.summary(Scope(), "c")
        await cue.work()
        posts = await cue.conversations.posts("c", branches="all")
        acknowledged = [line.removeprefix("post ") for line in log if line.startswith("post ")]
        counts = Counter(acknowledged=len(log)) + losses(posts, acknowledged)
        record_fault("kill -9 in a turn or compaction", counts)
        assert [post.seq for post in posts] == list(range(1, len(posts) + 1))
        assert [post.id for post in posts][: len(acknowledged)] == acknowledged
        await check_turn(cue, log)
        path = await cue.conversations.posts("c")
        assert before is None or before.upto_seq in [post.seq for post in path]
        assert "summary" not in log
        await cue.settle()
        after = await cue.services.store.summary(Scope(), "c")
        assert (after is not None) == (len(path) >= 24), "a new process repeats a killed pass"
        ids = {post.id for post in posts}
        assert all(ids.issuperset(item.sources) for item in await cue.memory.items("c"))
        reply = await cue.ask(Ask("And key 9?", "c"))
        assert "room 9" in reply.text


async def check_turn(cue: Cuebook, log: list[str]) -> None:
    """Check that an acknowledged query is stored, and its answer whole if acknowledged, else partial."""
    turns = (await cue.conversations.get("c")).turns
    assert turns == int("query 1" in log) or turns == 1
    if not turns:
        return
    record = to_wire(await cue.turns.show("c", 1))
    assert record["query"] == "Where does key 7 hang?"
    whole = "".join(PIECES)
    if "reply 1" in log:
        assert (record["state"], record["reply"]) == ("finished", whole)
    assert record["state"] in ("finished", "interrupted")
    assert whole.startswith(record["reply"])
    assert (await cue.turns.replay("c", 1)).verdict == "identical"


async def test_a_partial_answer_is_kept(project: Project) -> None:
    project.run_until_killed(CONVERSATION_PROCESS, "stream.piece:kill@35")
    async with project.open(clock=Later()) as cue:
        await cue.work()
        record = to_wire(await cue.turns.show("c", 1))
        assert record["state"] == "interrupted"
        assert record["reply"].startswith(PIECES[0])
        [last] = [post for post in await cue.conversations.posts("c") if post.state == "interrupted"]
        assert last.message == record["reply"]


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_the_turn_of_a_killed_process_ends_at_once(project: Project) -> None:
    """Its lease would have lasted an hour. A file's lease names its process; one on a server ends by its time."""
    for n in (1, 2):
        project.run_until_killed(CONVERSATION_PROCESS, "stream.piece:kill@35", "3600")
        async with project.open() as cue, asyncio.timeout(60):
            if n == 1:
                await cue.ask(Ask("And key 9?", "c"))
            else:
                await cue.work()
            record = to_wire(await cue.turns.show("c", 1))
            assert (record["state"], record["steps"][0]["error"]) == (
                "interrupted", "the answering process ended",
            )  # fmt: skip
            assert record["reply"].startswith(PIECES[0])
            await cue.conversations.delete("c")
    async with project.open() as cue:
        await cue.work()
    left = [each for each in names_in(project.folder) if each != "logs"]  # the mirror of the audit log
    assert left == ["cuebook.db", "cuebook.db.key"], "no other file is left"


@pytest.mark.parametrize(
    ("database_kind", "lease_s"), [("sqlite", "3600"), ("postgresql", "10")], indirect=["database_kind"]
)
async def test_a_waiter_for_a_killed_process_continues(project: Project, lease_s: str) -> None:
    """It waits no longer on a file, and until the lease ends on a server."""
    process = await asyncio.create_subprocess_exec(
        *project.command(CONVERSATION_PROCESS, lease_s),
        env={**os.environ, "CUEBOOK_FAILPOINT": "stream.piece:stop@20"},
        stdout=asyncio.subprocess.PIPE,
    )
    while not (await process.stdout.readline()).startswith(b"query"):
        pass
    async with project.open() as cue:
        waiting = asyncio.create_task(cue.ask(Ask("And key 9?", "c")))
        await asyncio.sleep(1)
        assert not waiting.done(), "a stopped process still holds its turn"
        process.kill()
        async with asyncio.timeout(60):
            assert (await waiting).turn == 2
        assert (await cue.turns.get("c", 1)).state == "interrupted"
    await process.communicate()
