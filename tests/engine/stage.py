"""What the tests of turns share.

Books on a real file, requests of the OpenAI wire, and what their windows account for.
"""

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
from cuebook.testing import FrozenClock, LoadedDice, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream, completion

NAME = "c"


def config(path: Path | None = None, **settings: Any) -> Config:
    """Settings by section__key, on a file or in memory."""
    arguments = {name.replace("__", "."): value for name, value in settings.items()}
    url = ":memory:" if path is None else str(path / "cuebook.db")
    return build(arguments={"store.url": url, "store.synchronous": "OFF", **arguments}, folder=str(path or "."))


@asynccontextmanager
async def cue_on(
    path: Path | None = None, *, model: Any = None, clock: Any = None, dice: Any = None, upstream: Any = None,
    embedder: Any = None, sinks: Any = (), worker: bool = False, **settings: Any,
) -> AsyncIterator[Cuebook]:  # fmt: skip
    """Open a book, its work behind done when asked for unless `worker`."""
    opened = Cuebook.open(
        config(path, **settings),
        model=model if model is not None else ScriptedModel(default="Noted."),
        clock=clock if clock is not None else FrozenClock(),
        dice=dice if dice is not None else LoadedDice(),
        upstream=upstream,
        embedder=embedder,
        sinks=sinks,
        worker=worker,
    )
    async with opened as cue:
        yield cue


def on(place: Path, clock: FrozenClock, **settings: Any) -> AbstractAsyncContextManager[Cuebook]:
    """Open a book in which a user is remembered across conversations."""
    return cue_on(place, clock=clock, **({"memory__user": True} | settings))


async def told(cue: Cuebook, clock: FrozenClock, text: str, conversation: str, **ask: Any) -> Reply:
    """Say something as `ann`, let a minute go by and do what is due; gives the answer."""
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
    """An OpenAI client before a book: it keeps its own history and resends it, or what a test makes of it."""

    def __init__(
        self, cue: Cuebook, upstream: ScriptedUpstream, *, conversation: str | None = NAME, who: str | None = None
    ):
        self.cue, self.upstream = cue, upstream
        self.conversation, self.who = conversation, who
        self.history: list[dict[str, Any]] = []
        self.head: Head | None = None

    async def send(
        self, messages: Any = None, *, server_history: bool = False, conversation: Any = ..., **fields: Any
    ) -> bytes:
        """Send messages as they are; answers with the body's bytes."""
        body = {"model": "m", "messages": self.history if messages is None else messages, **fields}
        call = RelayCall(
            body=json.dumps(body).encode(), headers={}, user=self.who, server_history=server_history,
            conversation=self.conversation if conversation is ... else conversation,
        )  # fmt: skip
        pieces = [piece async for piece in self.cue.relay(call)]
        self.head = pieces[0]
        return b"".join(pieces[1:])

    async def say(self, text: Any, answer: str = "Noted.", **fields: Any) -> str:
        """Add a message to the history, send it, and add the answer; gives the conversation it went to."""
        self.history.append(user(text) if not isinstance(text, dict) else text)
        self.upstream.say(completion(answer))
        reply = json.loads(await self.send(**fields))
        self.history.append(reply["choices"][0]["message"])
        assert self.head is not None
        return self.head.conversation


async def path(cue: Cuebook, name: str = NAME, who: str | None = None) -> list[str]:
    """The head's path as texts."""
    return [shown(post) for post in await cue.conversations.posts(name, user=who)]


async def everything(cue: Cuebook, name: str = NAME, who: str | None = None) -> list[str]:
    """All posts of all branches as texts."""
    return [shown(post) for post in await cue.conversations.posts(name, user=who, branches=True)]


def shown(post: Post) -> str:
    calls = "".join(f"<{part.extra['name']}>" for part in post.calls)
    return f"{post.message}{calls}" + ("…" if post.state == "interrupted" else "")


def places(window: Window, reach: int = 0) -> list[int]:
    """Every seq a window accounts for behind a summary that reaches so far, as often as it does."""
    found = list(range(1, reach + 1)) + [block.seq for block in window.blocks if block.seq]
    for left in window.dropped:
        found += range(left.first, left.last + 1) if left.first else []
    return sorted(found)


async def accounted(cue: Cuebook, window: Window, name: str = NAME, head: int | None = None) -> None:
    """Assert that each post of the path is in the window, under the summary or left out, exactly once."""
    conversation = await cue.conversations.get(name)
    posts = await cue.desk.store.posts(Scope(), name, head=conversation.head if head is None else head)
    path_seqs = [post.seq for post in posts]
    shown = [each.source for each in (*window.blocks, *window.dropped) if each.source.startswith("summary:")]
    version = int(shown[0].split(":")[1]) if shown else None
    summary = await cue.memory.summary(name, version=version)
    reach = summary.upto_seq if summary and summary.upto_seq in path_seqs else 0
    found = [seq for seq in path_seqs if seq <= reach]
    found += [seq for seq in places(window) if seq <= conversation.last_seq]  # an assembled query is not stored
    assert sorted(found) == path_seqs


def counted(window: Window, count: Any) -> int:
    """Count a window's messages the simple way: every text and name there is, and a frame for each message."""
    total = 0
    for message in map(json.loads, window.messages):
        total += 4 + count(message.get("name") or "")
        content = message.get("content") or ""
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        total += sum(map(count, texts))
        total += sum(count(call["function"]["arguments"]) for call in message.get("tool_calls") or ())
    return total
