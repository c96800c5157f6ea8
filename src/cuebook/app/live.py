"""What goes on in a book: its newest turns and what they took, and each change as it comes, whoever makes it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.shapes import iso
from cuebook.app.spent import MOST, TURNS, SpentOn, Taken
from cuebook.app.talks import Talking
from cuebook.config import Config
from cuebook.engine.desk import Desk
from cuebook.errors import NotFound
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope
from cuebook.records.turn import SHADOW, Manifest, Turn

#: Conversations that are watched, the most recent, and turns that are listed of them in all.
WATCHED: Final = 20
LISTED: Final = 40
#: Turns of a conversation that are looked at for a change: a short one ends before the next look.
LOOKED_AT: Final = 2
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
    seconds: float | None = None  # until it was answered; None while it is not, and where it passed in shadow
    first_s: float | None = None  # until its answer's first piece, where it streamed
    shadow: bool = False  # its prompt was not sent
    spent: Taken = Taken()


class Sums(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the newest turns of the most recent conversations took, and what is kept of all."""

    conversations: int = 0
    turns: int = 0
    all: bool = True  # there are no others
    taken: Taken = Taken()
    posts: int = 0
    memories: int = 0  # items of conversations, and memories across them


class Live:
    """The newest turns of a book, as who asks may see them."""

    def __init__(self, desk: Desk, config: Config) -> None:
        self._desk = desk
        #: What single turns took.
        self.spent = SpentOn(desk, config)
        #: Conversations found by words, and read as they were said, with their branches.
        self.talks = Talking(desk)

    async def newest(self, *, user: str | None = None) -> list[LiveTurn]:
        """Give the newest turns of the recent conversations, the newest first."""
        recent = await self._recent(user)
        share = max(1, LISTED // max(1, len(recent)))
        found = []
        for known in recent:
            turns = await self._turns(known, user, last=share)
            took = await self._took(known.id, turns[0].turn, turns[-1].turn, user) if turns else {}
            found += [replace(each, spent=took.get(each.turn, Taken())) for each in turns]
        return sorted(found, key=lambda each: each.at or "", reverse=True)

    async def changes(self, *, user: str | None = None, pause_s: float = PAUSE_S) -> AsyncIterator[LiveTurn | None]:
        """Give each turn anew when something of it changed since the call; None after a look that found nothing."""
        seen = {_key(each): each for each in await self._looked_at(user)}
        while True:
            await asyncio.sleep(pause_s)
            changed = [each for each in await self._looked_at(user) if seen.get(_key(each)) != each]
            for each in changed:
                seen[_key(each)] = each
                took = await self._took(each.conversation, each.turn, each.turn, user)
                yield replace(each, spent=took.get(each.turn, Taken()))
            if not changed:
                yield None
            if len(seen) > 4 * WATCHED * LOOKED_AT:
                seen = dict(list(seen.items())[-2 * WATCHED * LOOKED_AT :])

    async def sums(self, *, user: str | None = None) -> Sums:
        """Sum up what the newest turns took. Raises InvalidInput for prices of the project that cannot be read."""
        scope = Scope(user=user)
        page = await self._desk.store.conversations(scope, limit=WATCHED, cursor=None)
        tally = await self._desk.store.tuning.tally(scope, None)
        found = Sums(posts=tally.short_term, memories=tally.long_term + tally.cross_session)
        whole = page.cursor is None
        for known in page.items:
            last = min(TURNS, MOST - found.turns)
            whole &= known.turns <= last
            if known.turns and last > 0:
                found = _plus(found, await self._took(known.id, known.turns - last + 1, known.turns, user))
        return replace(found, conversations=len(page.items), all=whole)

    async def _took(self, conversation: str, first: int, last: int, user: str | None) -> Mapping[int, Taken]:
        try:
            return await self.spent.turns(conversation, first, last, user=user)
        except NotFound:
            return {}  # it was forgotten meanwhile

    async def _recent(self, user: str | None) -> list[Conversation]:
        page = await self._desk.store.conversations(Scope(user=user), limit=WATCHED, cursor=None)
        return [each for each in page.items if each.turns]

    async def _looked_at(self, user: str | None) -> list[LiveTurn]:
        """Give the turns that may have changed, the oldest first; what they took is not read."""
        recent = await self._recent(user)
        found = [turn for each in recent for turn in await self._turns(each, user, last=LOOKED_AT)]
        return sorted(found, key=lambda each: each.at or "")

    async def _turns(self, known: Conversation, user: str | None, *, last: int) -> list[LiveTurn]:
        scope = Scope(user=user)
        try:
            turns = await self._desk.store.turns(scope, known.id, last=last)
            seqs = sorted({seq for turn in turns for seq in (turn.query_seq, turn.reply_seq) if seq})
            said = await self._desk.store.posts_in(scope, known.id, [(seq, seq) for seq in seqs])
        except (NotFound, ValueError):
            return []  # it was forgotten meanwhile
        posts = {each.seq: each.message or "" for each in said}
        return [
            _line(known, turn, posts.get(turn.query_seq, ""), posts.get(turn.reply_seq) or turn.partial)
            for turn in turns
        ]


def _key(turn: LiveTurn) -> tuple[str, int]:
    return turn.conversation, turn.turn


def _plus(sums: Sums, took: Mapping[int, Taken]) -> Sums:
    taken = sums.taken
    for each in took.values():
        taken = taken.plus(each)
    return replace(sums, turns=sums.turns + len(took), taken=taken)


def _line(known: Conversation, turn: Turn, query: str, reply: str) -> LiveTurn:
    told, step = turn.metadata, turn.steps[-1] if turn.steps else None
    manifest = step.manifest if step else None
    window = told.get("window") or {}
    cache = window.get("cache") or {}
    cached = step.usage.cache_read if step and step.usage else None
    first_ms = told.get("firstTokenMs")
    return LiveTurn(
        conversation=known.id,
        user=known.user,
        turn=turn.n,
        state=turn.state,
        at=iso(turn.created_at),
        query=_short(query),
        reply=_tail(reply) if turn.state == "running" else _short(reply),
        tokens=manifest.tokens if manifest else 0,
        budget=manifest.budget if manifest else 0,
        kinds=kinds_of(manifest) if manifest else {},
        cached=cached if cached is not None else cache.get("readTokens") or 0,
        cost=cache.get("cost"),
        dropped=sum(each.count for each in manifest.dropped) if manifest else 0,
        events=tuple((told.get("sentiment") or {}).get("events") or ()),
        mood=(told.get("mind") or {}).get("mood", ""),
        error=step.error if step else "",
        seconds=_seconds(turn),
        first_s=first_ms / 1000 if first_ms is not None else None,
        shadow=SHADOW in told,
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


def _seconds(turn: Turn) -> float | None:
    """Give how long a turn took until it was answered.

    None while it is not, and where it passed in shadow: it was opened and closed behind its answer.
    """
    if not turn.closed_at or turn.metadata.get(SHADOW):
        return None
    return round(turn.closed_at - turn.created_at, 3)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SAID else f"{text[: SAID - 1]}…"


def _tail(text: str) -> str:
    """Give the end of an answer that still grows."""
    text = " ".join(text.split())
    return text if len(text) <= SAID else f"…{text[1 - SAID :]}"
