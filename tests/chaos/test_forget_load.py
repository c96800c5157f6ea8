"""Tests of forgetting a user while eight conversations stream and a second process works: no byte is left.

The suite runs a short version. The long one is scripts/chaos: CUEBOOK_CHAOS_KILLS=1000.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from project import Project

from cuebook import Ask, Cuebook, Part, Posted
from cuebook.errors import CuebookError
from cuebook.interfaces import ModelRequest, Piece
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.erasure import Receipt
from hashing_embedder import HashingEmbedder
from storage.databases import content_of, database_files
from storage.history import losses

READER_WRITER = Path(__file__).with_name("reader_writer.py")
ROUNDS = max(1, int(os.environ.get("CUEBOOK_CHAOS_KILLS", "10")) // 100)
CANARY, ANN, FILE = "Zanzibarquokka", "ann-Xylorimba", "Quetzalfile"
CANARIES = (CANARY, ANN, FILE)


class Echo:
    """A model that slowly repeats where the garden is, if the prompt contains it."""

    name = "echo"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Answer in thirty pieces."""
        secret = b"Where is it?" in request.messages[-1]
        for n in range(30):
            await asyncio.sleep(0.004)
            yield Piece(text=f"The garden is in {CANARY}. " if secret else f"The boat has {n} sails. ")
        yield Piece(finish="stop")

    async def aclose(self) -> None:
        """Do nothing: the model holds no resource."""


class Load:
    """Eight conversations of two users that ask repeatedly; bob's answers are recorded."""

    def __init__(self, cue: Cuebook) -> None:
        self.cue = cue
        self.stop_ann, self.stop = asyncio.Event(), asyncio.Event()
        self.stored: dict[str, list[str]] = {}
        self.cut = 0

    async def of_ann(self, name: str) -> None:
        n = 0
        while not self.stop_ann.is_set():
            n += 1
            ask = Ask(
                f"{n}: My garden is in {CANARY}. Where is it?", name, user=ANN, persona="helper",
                attachments=(Part("file", FILE, {"name": FILE}),), idempotency_key=f"{FILE}-{name}-{n}",
            )  # fmt: skip
            try:
                async for _ in self.cue.stream(ask):
                    pass
            except CuebookError:
                self.cut += 1
                return

    async def of_bob(self, name: str) -> None:
        n = 0
        while not self.stop.is_set():
            n += 1
            text = f"{n}: How many sails has the boat?"
            try:
                reply = await self.cue.ask(Ask(text, name, user="bob", persona="helper"))
            except CuebookError:
                await asyncio.sleep(0.01)  # the answer used ann's words: ask again
                continue
            self.stored.setdefault(name, []).extend((text, reply.text))


class Lines:
    """The lines of the other process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.stored: set[str] = set()

    def send(self) -> None:
        """Let the process end its next stage."""
        self._process.stdin.write(b"\n")

    async def until(self, wanted: str) -> None:
        """Read up to a line."""
        while True:
            line = (await self._process.stdout.readline()).decode().strip()
            assert line, "the process ended"
            if line == wanted:
                return
            if line.startswith("kept "):
                self.stored.add(line.removeprefix("kept "))


async def add_prompt(cue: Cuebook) -> None:
    """Add a persona with a managed prompt, so that the audit and its mirror contain the texts."""
    await cue.prompts.save("persona/kind", {"body": "Be kind to $user_name."}, params=["user_name"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["words", "meaning"])
@pytest.mark.parametrize("number", range(ROUNDS))
async def test_a_user_is_forgotten_under_load(
    project: Project, kind: str, number: int, record_fault: Callable[..., None]
) -> None:
    dice = random.Random(f"{kind}{number}")
    (project.folder / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "prompts": {"persona": "persona/kind"}}
    (project.folder / "personas" / "helper.json").write_text(json.dumps(helper))
    embedder = HashingEmbedder() if kind == "meaning" else None
    config = project.config(memory_user=True, work_interval_s=0.05, work_checkpoint_s=0.05)
    async with Cuebook.open(config, model=Echo(), dice=SystemDice(), embedder=embedder) as cue:
        await add_prompt(cue)
        shared = [Posted(sender=ANN if n % 3 == 0 else "bob", message=_words(n)) for n in range(40)]
        await cue.append("bob-0", shared, user="bob")
        load = Load(cue)
        other = await asyncio.create_subprocess_exec(
            *project.command(READER_WRITER, ANN, CANARY, kind),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(READER_WRITER.parents[1])},
        )  # fmt: skip
        lines = Lines(other)
        try:
            first, second = await _forgotten(cue, load, lines, pause=0.5 + dice.random(), twice=dice.random() < 0.5)
        finally:
            load.stop_ann.set()
            load.stop.set()
            if other.returncode is None:
                other.kill()
                await other.wait()
        assert await cue.settle() == {}
        for receipt in (first, second):
            signed = await cue.memory.receipt(receipt.id)
            assert signed.state == "done"
            assert cue.memory.verify_receipt(signed).ok
        assert project.files_with(*CANARIES) == set()
        assert (await cue.memory.list(user=ANN)).items == ()
        assert (await cue.audit.verify()).ok
        assert (await cue.audit.verify_mirror(project.folder / "logs/prompts_audit.jsonl")).ok
        for name, expected in load.stored.items():
            messages = [post.message for post in await cue.conversations.posts(name)]
            assert [each for each in messages if each in set(expected)] == expected, name
        beside = await cue.conversations.posts("beside-bob")
        record_fault("forget under load", Counter(acknowledged=len(lines.stored)) + losses(beside, [*lines.stored]))
        assert {post.id for post in beside} >= lines.stored
        assert lines.stored
    assert project.files_with(*CANARIES) == set()
    if embedder is not None:
        forgotten_texts = [text for text in embedder.asked if CANARY in text]
        assert forgotten_texts, "they had vectors"
        vectors = {bytes(each) for each in await embedder.embed(forgotten_texts[:50])}
        content = b"".join(map(content_of, database_files(project.database)))
        assert not [each for each in vectors if each in content]
    assert project.audit() == []


async def _forgotten(cue: Cuebook, load: Load, lines: Lines, *, pause: float, twice: bool) -> tuple[Receipt, Receipt]:
    """Let both processes work and forget ann meanwhile, with a second forget of her at the same time."""
    ann = [asyncio.create_task(load.of_ann(f"ann-{n}")) for n in range(4)]
    bob = [asyncio.create_task(load.of_bob(f"bob-{n}")) for n in range(4)]
    await lines.until("works")
    await asyncio.sleep(pause)
    lines.send()
    await lines.until("left ann")
    load.stop_ann.set()
    await asyncio.sleep(0.05)  # new asks come after the forget; running ones continue
    also = {"user": ANN} if twice else {"conversation": ("ann-0", "ann-1", "not-there")}
    first, second = await asyncio.gather(cue.memory.forget(user=ANN), cue.memory.forget(**also))
    await asyncio.gather(*ann)
    await asyncio.sleep(0.3)
    load.stop.set()
    await asyncio.gather(*bob)
    lines.send()
    await lines.until("over")
    return first, second


def _words(n: int) -> str:
    return f"My garden number {n} is in {CANARY}." if n % 3 == 0 else f"The boat has {n} sails and a blue keel."
