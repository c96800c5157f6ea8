"""Assemble benchmark: build a full window of a long conversation, compared with raw reading and with a peer library."""

import asyncio
import json
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import AsyncRound, Figure, Run, compared, interleave_async
from bench.peers import install
from bench.stores import CONVERSATION, SCOPE, SQL, reading, store
from cuebook import Ask, Cuebook
from cuebook.config import Config, ConfigSections, MemoryConfig, StoreConfig, UpstreamConfig
from cuebook.engine.core.recall import recall_query
from cuebook.engine.turn.chat import read_ask
from cuebook.engine.turn.history import align_history
from cuebook.engine.turn.plan import plan_window
from cuebook.engine.turn.scene import path_query
from cuebook.engine.turn.system_prompt import SystemPrompt
from cuebook.engine.turn.window_request import window_request
from cuebook.interfaces import Model
from cuebook.records.turn import Window

_WORDS, _LONG_WORDS = 23, 100
_POSTS = 10_000
_ASK = Ask("What did we say about the budget of the new garden, and who wanted it?", CONVERSATION)


def assemble(run: Run) -> Iterator[Figure]:
    """Assemble windows of 190,000 tokens without a summary, so the path is as long as possible."""
    return iter(asyncio.run(_assemble(run)))


async def _assemble(run: Run) -> list[Figure]:
    rounds = run.rounds(25)
    short, wordy, long = store(run, _POSTS, _WORDS), store(run, _POSTS, _LONG_WORDS), store(run, run.many, _WORDS)
    async with (
        cue_on(short) as bare,
        cue_on(wordy) as few,
        cue_on(long) as grown,
        cue_on(short, usual=True) as usual,
        cue_on(short) as cold,
    ):
        window, other = await bare.assemble(_ASK), await few.assemble(_ASK)
        with reading(short) as connection, reading(wordy) as second:
            sides = await interleave_async(
                rounds,
                {
                    "ours": _ours(bare),
                    "raw": _raw(connection, window),
                    "few": _ours(few),
                    "few raw": _raw(second, other),
                    "grown": _ours(grown),
                    "usual": _ours(usual),
                    "cold": _ours(cold, cold=True),
                },
            )
        raw, without = "raw read and JSON", "without"
        figures = [
            compared(_describe_window(window, _WORDS), sides["ours"], raw, sides["raw"], bar=2),
            compared(_describe_window(other, _LONG_WORDS), sides["few"], raw, sides["few raw"], bar=2),
            compared("the same with a cold cache", sides["cold"], raw, sides["raw"]),
            compared(f"from {run.many:,} posts", sides["grown"], f"from {_POSTS:,}", sides["ours"], bar=1.3),
            compared("with recall and cache rules", sides["usual"], without, sides["ours"]),
        ]
        return [*figures, *await _peer(run, {_WORDS: bare, _LONG_WORDS: few})]


def _describe_window(window: Window, words: int) -> str:
    kept = sum(1 for block in window.blocks if block.seq)
    return f"{window.tokens:,} tokens, {kept:,} of {_POSTS:,} posts of {words} words"


@asynccontextmanager
async def cue_on(path: Path, *, usual: bool = False, model: Model | None = None) -> AsyncIterator[Cuebook]:
    """Open a project on a store without summaries and background jobs; `usual` enables recall and cache rules."""
    settings = ConfigSections(
        store=StoreConfig(url=str(path)),
        memory=MemoryConfig(profile="off", recall=usual),
        upstream=UpstreamConfig(cache_rule="auto" if usual else "off"),
    )
    async with Cuebook.open(Config(settings=settings, folder=str(path.parent)), model=model, worker=False) as cue:
        yield cue


def _ours(cue: Cuebook, *, cold: bool = False) -> AsyncRound:
    """Assemble and measure the CPU of the whole process, since a thread reads. `cold` empties the caches first."""
    store: Any = cue.services.store

    async def one() -> float:
        if cold:
            store.paths.clear()
        began = time.process_time()
        await cue.assemble(_ASK)
        return time.process_time() - began

    return one


async def _in_memory(cue: Cuebook) -> AsyncRound:
    """Plan and render with everything already loaded."""
    services = cue.services
    scene = await services.store.scene(SCOPE, path_query(services, CONVERSATION, _ASK.text, parent=None, budget=None))
    request = read_ask(services, _ASK, post_id="query")
    place = await align_history(services, SCOPE, request)
    query = recall_query(services, scene, _ASK, quotes=False)
    content = window_request(services, scene, request, place, SystemPrompt(), query=query)

    async def one() -> float:
        began = time.process_time()
        plan_window(services, scene, content)
        return time.process_time() - began

    return one


def _raw(connection: sqlite3.Connection, window: Window) -> AsyncRound:
    """Read the window's rows with the same columns, and encode them as a request's messages."""
    seqs = [block.seq for block in window.blocks if block.seq and block.kind == "post"]
    values = {"tenant": SCOPE.tenant, "no": 1, "first": min(seqs), "last": max(seqs)}
    statement = SQL["path_stretch"]

    async def one() -> float:
        began = time.process_time()
        rows = connection.execute(statement, values).fetchall()
        rows.reverse()
        msgspec.json.encode([{"role": row[3], "content": row[5]} for row in rows])
        return time.process_time() - began

    return one


# ---- the peer --------------------------------------------------------------------------------------------------------


async def _peer(run: Run, cues: dict[int, Cuebook]) -> list[Figure]:
    """Trim the conversation to the tokens of our window with the peer's fastest counter."""
    what = "the same windows"
    if not run.peers:
        return [Figure(what, "", "langchain-core trim_messages: needs --peers")]
    python = install(run.disk / "langchain", "langchain-core")
    if python is None:
        return [Figure(what, "", "langchain-core trim_messages: installation failed")]
    found: list[Figure] = []
    for words, cue in cues.items():
        window = await cue.assemble(_ASK)
        kept = sum(1 for block in window.blocks if block.seq)
        with trimming(run, python, words, kept) as theirs:
            sides = await interleave_async(
                run.rounds(15), {"ours": _ours(cue), "memory": await _in_memory(cue), "theirs": theirs}
            )
        peer = "trim_messages, all in memory"
        found += [
            compared(f"{words} words: read and assemble", sides["ours"], peer, sides["theirs"], bar=10, inverse=True),
            compared(f"{words} words: assemble, all in memory", sides["memory"], peer, sides["theirs"], inverse=True),
        ]
    return found


@contextmanager
def trimming(run: Run, python: str, words: int, kept: int) -> Iterator[AsyncRound]:
    """Start the peer with a conversation's messages in memory. Each round trims them once."""
    posts = run.disk / "messages.json"
    whole = {"tenant": SCOPE.tenant, "no": 1, "first": 1, "last": _POSTS}
    with reading(store(run, _POSTS, words)) as connection:
        rows = connection.execute(SQL["path_stretch"], whole).fetchall()
    posts.write_text(json.dumps([[row[3], row[5]] for row in reversed(rows)]))
    command = [python, str(Path(__file__).with_name("peer_trim.py")), str(posts), str(kept)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        pipe, answers = child.stdin, child.stdout
        if pipe is None or answers is None:
            raise AssertionError

        async def theirs() -> float:
            pipe.write("go\n")
            pipe.flush()
            return float(answers.readline())

        yield theirs
        pipe.close()
