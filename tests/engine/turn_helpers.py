"""Helpers for tests of turns.

They open databases on real files, build requests of the OpenAI wire and check which posts a window accounts for.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from cuebook import Ask, Cuebook, Reply, Window
from cuebook.app.cuebook import Head, RelayCall
from cuebook.config import Config, build
from cuebook.records.conversation import Post
from cuebook.records.memory import Scope
from cuebook.records.mind import ConversationMood, MoodState
from cuebook.testing import FrozenClock, LoadedDice, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from empty_database import write_empty_database, write_key
from scripted_answers import completion

NAME = "c"


#: Time limits for what may be late, after which a turn goes on without it. A busy machine may stop for seconds.
PATIENT = dict.fromkeys(("embedder.timeout_s", "experience.timeout_s", "memory.recall_timeout_s"), 60.0)


def config(path: Path | None = None, **settings: Any) -> Config:
    """Build a config from settings named section__key, on a file or in memory."""
    arguments = {name.replace("__", "."): value for name, value in settings.items()}
    url = ":memory:" if path is None else str(path / "cuebook.db")
    defaults = {"store.url": url, "store.synchronous": "OFF"} | PATIENT
    return build(arguments=defaults | arguments, folder=str(path or "."))


@asynccontextmanager
async def cue_on(
    path: Path | None = None, *, model: Any = None, clock: Any = None, dice: Any = None, upstream: Any = None,
    embedder: Any = None, sinks: Any = (), worker: bool = False, **settings: Any,
) -> AsyncIterator[Cuebook]:  # fmt: skip
    """Open a database; unless `worker`, background jobs run only when a test asks for them."""
    if path is not None:
        write_empty_database(path / "cuebook.db")
        write_key(path / "cuebook.db")
    handle = Cuebook.open(
        config(path, **settings),
        model=model if model is not None else ScriptedModel(default="Noted."),
        clock=clock if clock is not None else FrozenClock(),
        dice=dice if dice is not None else LoadedDice(),
        upstream=upstream,
        embedder=embedder,
        sinks=sinks,
        worker=worker,
    )
    async with handle as cue:
        yield cue


def open_with_memory(folder: Path, clock: FrozenClock, **settings: Any) -> AbstractAsyncContextManager[Cuebook]:
    """Open a database with cross-conversation user memories."""
    return cue_on(folder, clock=clock, **({"memory__user": True} | settings))


async def ask_and_settle(cue: Cuebook, clock: FrozenClock, text: str, conversation: str, **ask: Any) -> Reply:
    """Ask as `ann`, advance the clock by a minute and run the due jobs. Return the reply."""
    reply = await cue.ask(Ask(text, conversation, **({"user": "ann"} | ask)))
    clock.advance(60)
    await cue.settle()
    return reply


def user(text: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def bot(text: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def system(text: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "system", "content": text, **fields}


class Client:
    """An OpenAI client that keeps and resends its own history, or sends what a test passes."""

    def __init__(
        self, cue: Cuebook, upstream: ScriptedUpstream, *, conversation: str | None = NAME, user_id: str | None = None
    ):
        self.cue, self.upstream = cue, upstream
        self.conversation, self.user_id = conversation, user_id
        self.history: list[dict[str, Any]] = []
        self.head: Head | None = None

    async def send(
        self, messages: Any = None, *, server_history: bool = False, conversation: Any = ..., **fields: Any
    ) -> bytes:
        """Send messages unchanged. Return the bytes of the response body."""
        body = {"model": "m", "messages": self.history if messages is None else messages, **fields}
        call = RelayCall(
            body=json.dumps(body).encode(), headers={}, user=self.user_id, server_history=server_history,
            conversation=self.conversation if conversation is ... else conversation,
        )  # fmt: skip
        pieces = [piece async for piece in self.cue.relay(call)]
        self.head = pieces[0]
        return b"".join(pieces[1:])

    async def say(self, text: Any, answer: str = "Noted.", **fields: Any) -> str:
        """Append a message to the history, send it and append the answer. Return the conversation id."""
        self.history.append(user(text) if not isinstance(text, dict) else text)
        self.upstream.say(completion(answer))
        reply = json.loads(await self.send(**fields))
        self.history.append(reply["choices"][0]["message"])
        assert self.head is not None
        return self.head.conversation


class Halting(ScriptedModel):
    """A model that waits after its first piece: `reached` is set when that was read, and `proceed` lets it go on."""

    def __init__(self, *replies: Any, **settings: Any) -> None:
        super().__init__(*replies, **settings)
        self.reached, self.proceed = asyncio.Event(), asyncio.Event()

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        async for piece in super().stream(request):
            yield piece
            self.reached.set()
            await self.proceed.wait()


async def path(cue: Cuebook, name: str = NAME, user_id: str | None = None) -> list[str]:
    """Return the posts on the head's path as texts."""
    return [text_of_post(post) for post in await cue.services.store.posts(Scope(user=user_id), name)]


async def all_texts(cue: Cuebook, name: str = NAME, user_id: str | None = None) -> list[str]:
    """Return the posts of all branches as texts."""
    return [text_of_post(post) for post in await cue.services.store.posts(Scope(user=user_id), name, path=False)]


def is_neutral(mood: ConversationMood) -> bool:
    """Return whether a mood state is the initial one."""
    return MoodState(**{name: getattr(mood, name) for name in MoodState.__struct_fields__}) == MoodState()


def text_of_post(post: Post) -> str:
    calls = "".join(f"<{part.extra['name']}>" for part in post.calls)
    return f"{post.message}{calls}" + ("…" if post.state == "interrupted" else "")


def accounted_seqs(window: Window, reach: int = 0) -> list[int]:
    """Return every seq that a window or a summary up to `reach` accounts for, with repetitions."""
    seqs = list(range(1, reach + 1)) + [block.seq for block in window.blocks if block.seq]
    for span in window.dropped:
        seqs += range(span.first, span.last + 1) if span.first else []
    return sorted(seqs)


async def check_accounted(cue: Cuebook, window: Window, name: str = NAME, head: int | None = None) -> None:
    """Check that each post of the path is in the window, summarized or dropped, exactly once."""
    conversation = await cue.services.store.conversation(Scope(), name)
    posts = await cue.services.store.posts(Scope(), name, head=conversation.head if head is None else head)
    path_seqs = [post.seq for post in posts]
    summaries = [each.source for each in (*window.blocks, *window.dropped) if each.source.startswith("summary:")]
    version = int(summaries[0].split(":")[1]) if summaries else None
    summary = await cue.services.store.summary(Scope(), name, version=version)
    reach = summary.upto_seq if summary and summary.upto_seq in path_seqs else 0
    seqs = [seq for seq in path_seqs if seq <= reach]
    seqs += [seq for seq in accounted_seqs(window) if seq <= conversation.last_seq]  # an assembled query is not stored
    assert sorted(seqs) == path_seqs


def count_tokens(window: Window, count: Any) -> int:
    """Compute a window's tokens the simple way: all texts and names plus a frame for each message."""
    total = 0
    for message in map(json.loads, window.raw_messages):
        total += 4 + count(message.get("name") or "")
        content = message.get("content") or ""
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        total += sum(map(count, texts))
        total += sum(count(call["function"]["arguments"]) for call in message.get("tool_calls") or ())
    return total
