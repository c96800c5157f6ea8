"""What goes on in a book: its newest turns, and each change of one as it comes, whichever process makes it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from msgspec import Struct

from cuebook.app.shapes import iso
from cuebook.engine.desk import Desk
from cuebook.errors import NotFound
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope
from cuebook.records.turn import Manifest, Turn

#: Conversations that are watched, the most recent.
WATCHED: Final = 20
#: Seconds between two looks. A turn that runs keeps what has come of its answer every two seconds.
PAUSE_S: Final = 0.5
#: Characters of what was asked and answered.
SAID: Final = 400


class LiveTurn(Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn in a line: what it takes by kind of block, what of it was cached, and what was left out."""

    conversation: str
    user: str | None
    turn: int
    state: str
    at: str | None
    query: str
    reply: str
    tokens: int = 0
    budget: int = 0
    kinds: dict[str, int] = {}
    cached: int = 0
    cost: float | None = None
    dropped: int = 0  # things left out
    events: tuple[str, ...] = ()
    mood: str = ""
    error: str = ""


class Live:
    """The newest turns of a book, as who asks may see them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def newest(self, *, user: str | None = None) -> list[LiveTurn]:
        """Give the last turn of each recent conversation, the newest first."""
        found = [await self._last(each, user) for each in await self._recent(user)]
        return [each for each in found if each is not None]

    async def changes(self, *, user: str | None = None, pause_s: float = PAUSE_S) -> AsyncIterator[LiveTurn | None]:
        """Give each turn anew when something of it changed since the call; None after a look that found nothing."""
        seen = {(each.conversation, each.turn): each for each in await self.newest(user=user)}
        while True:
            await asyncio.sleep(pause_s)
            changed = [
                each for each in await self.newest(user=user) if seen.get((each.conversation, each.turn)) != each
            ]
            for each in reversed(changed):
                seen[each.conversation, each.turn] = each
                yield each
            if not changed:
                yield None
            if len(seen) > 4 * WATCHED:
                seen = dict(list(seen.items())[-2 * WATCHED :])

    async def _recent(self, user: str | None) -> list[Conversation]:
        page = await self._desk.store.conversations(Scope(user=user), limit=WATCHED, cursor=None)
        return [each for each in page.items if each.turns]

    async def _last(self, known: Conversation, user: str | None) -> LiveTurn | None:
        scope = Scope(user=user)
        try:
            [turn] = await self._desk.store.turns(scope, known.id, last=1)
            seqs = [(seq, seq) for seq in (turn.query_seq, turn.reply_seq) if seq]
            posts = {each.seq: each.message or "" for each in await self._desk.store.posts_in(scope, known.id, seqs)}
        except (NotFound, ValueError):
            return None  # it was forgotten meanwhile
        reply = posts.get(turn.reply_seq) or turn.partial
        return _line(known, turn, posts.get(turn.query_seq, ""), reply)


def _line(known: Conversation, turn: Turn, query: str, reply: str) -> LiveTurn:
    told, step = turn.metadata, turn.steps[-1] if turn.steps else None
    manifest = step.manifest if step else None
    window = told.get("window") or {}
    cache = window.get("cache") or {}
    cached = step.usage.cache_read if step and step.usage else None
    return LiveTurn(
        conversation=known.id,
        user=known.user,
        turn=turn.n,
        state=turn.state,
        at=iso(turn.created_at),
        query=_short(query),
        reply=_short(reply),
        tokens=manifest.tokens if manifest else 0,
        budget=manifest.budget if manifest else 0,
        kinds=kinds_of(manifest) if manifest else {},
        cached=cached if cached is not None else cache.get("readTokens") or 0,
        cost=cache.get("cost"),
        dropped=sum(each.count for each in manifest.dropped) if manifest else 0,
        events=tuple((told.get("sentiment") or {}).get("events") or ()),
        mood=(told.get("mind") or {}).get("mood", ""),
        error=step.error if step else "",
    )


def kinds_of(manifest: Manifest) -> dict[str, int]:
    """Give what a window takes by kind of block, in the order they stand; the query counts as a post."""
    found: dict[str, int] = {}
    for text in manifest.front:
        found[text.kind] = found.get(text.kind, 0) + text.tokens
    found["post"] = sum(each.tokens for each in manifest.path)
    for text in manifest.volatile:
        found[text.kind] = found.get(text.kind, 0) + text.tokens
    if manifest.tools_tokens:
        found["tools"] = manifest.tools_tokens
    return {kind: tokens for kind, tokens in found.items() if tokens}


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SAID else f"{text[: SAID - 1]}…"
