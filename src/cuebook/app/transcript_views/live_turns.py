"""The rows of the live view: each turn's question and answer in short, its prompt's tokens by kind, and timing."""

from typing import Final

from msgspec import Struct

from cuebook.app.json_shapes import iso
from cuebook.app.reports.usage import CallUsage
from cuebook.engine.core.services import Services
from cuebook.errors import NotFound
from cuebook.records.conversation import Conversation
from cuebook.records.expression import shortened
from cuebook.records.memory import Scope
from cuebook.records.turn import RETRY_OF, SHADOW, Manifest, Turn, last_attempts

#: Maximum length of the shown question and answer, in characters.
SAID: Final = 400


class LiveTurn(Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn as one row: tokens by kind of block, cached tokens, and the number of dropped blocks."""

    conversation: str
    user: str | None
    turn: int
    attempt: int = 1  # a repeated request after failed turns is 2 or more
    first: int = 0  # the turn of its first attempt
    state: str
    at: str | None
    query: str
    reply: str
    tokens: int = 0
    budget: int = 0
    kinds: dict[str, int] = {}
    cached: int = 0
    cost: float | None = None
    dropped: int = 0  # blocks left out
    events: tuple[str, ...] = ()
    mood: str = ""
    error: str = ""
    seconds: float | None = None  # until it was answered; None before that, and in shadow mode
    first_s: float | None = None  # until the first chunk of a streamed answer
    shadow: bool = False  # its prompt was not sent
    spent: CallUsage = CallUsage()


async def lines_of(services: Services, known: Conversation, user: str | None, *, last: int) -> list[LiveTurn]:
    """Return the newest turns of a conversation, oldest first, without usage."""
    scope = Scope(user=user)
    try:
        turns = await services.store.turns(scope, known.id, last=last)
        seqs = sorted({seq for turn in turns for seq in (turn.query_seq, turn.reply_seq) if seq})
        path_posts = await services.store.posts_in(scope, known.id, [(seq, seq) for seq in seqs])
    except (NotFound, ValueError):
        return []  # it was deleted meanwhile
    posts = {each.seq: each.message or "" for each in path_posts}
    return [
        _line(known, turn, posts.get(turn.query_seq, ""), posts.get(turn.reply_seq) or turn.partial)
        for turn in last_attempts(turns)
    ]


def _line(conversation: Conversation, turn: Turn, query: str, reply: str) -> LiveTurn:
    data, step = turn.metadata, turn.steps[-1] if turn.steps else None
    manifest = step.manifest if step else None
    window = data.get("window") or {}
    cache = window.get("cache") or {}
    cached = step.usage.cache_read if step and step.usage else None
    first_ms, earlier = data.get("firstTokenMs"), data.get(RETRY_OF, ())
    return LiveTurn(
        conversation=conversation.id,
        user=conversation.user,
        turn=turn.n,
        attempt=len(earlier) + 1,
        first=min(earlier, default=turn.n),
        state=turn.state,
        at=iso(turn.created_at),
        query=shortened(query, SAID),
        reply=_tail(reply) if turn.state == "running" else shortened(reply, SAID),
        tokens=manifest.tokens if manifest else 0,
        budget=manifest.budget if manifest else 0,
        kinds=kinds_of(manifest) if manifest else {},
        cached=cached if cached is not None else cache.get("readTokens") or 0,
        cost=cache.get("cost"),
        dropped=sum(each.count for each in manifest.dropped) if manifest else 0,
        events=tuple((data.get("sentiment") or {}).get("events") or ()),
        mood=(data.get("mind") or {}).get("mood", ""),
        error=step.error if step else "",
        seconds=_seconds(turn),
        first_s=first_ms / 1000 if first_ms is not None else None,
        shadow=SHADOW in data,
    )


def kinds_of(manifest: Manifest) -> dict[str, int]:
    """Return a window's tokens by kind of block, in order; the query counts as a post."""
    results: dict[str, int] = {}
    for text in manifest.front:
        results[text.kind] = results.get(text.kind, 0) + text.tokens
    results["post"] = sum(each.tokens for each in manifest.path)
    for text in manifest.volatile:
        results[text.kind] = results.get(text.kind, 0) + text.tokens
    if manifest.tools_tokens:
        results["tools"] = manifest.tools_tokens
    return {kind: tokens for kind, tokens in results.items() if tokens}


def _seconds(turn: Turn) -> float | None:
    """Return the seconds until a turn was answered.

    None before that, and in shadow mode, where the turn is stored after its answer.
    """
    if not turn.closed_at or turn.metadata.get(SHADOW):
        return None
    return round(turn.closed_at - turn.created_at, 3)


def _tail(text: str) -> str:
    """Return the end of an unfinished answer."""
    text = " ".join(text.split())
    return text if len(text) <= SAID else f"…{text[1 - SAID :]}"
