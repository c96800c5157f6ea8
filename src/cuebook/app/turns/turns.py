"""The `cue.turns` API: show each turn's prompt block by block, replay it, ask what-if questions, give feedback."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app import json_shapes as shapes
from cuebook.app.paging import LIMIT, check_limit, read_cursor, write_cursor
from cuebook.app.turns import feedback
from cuebook.app.turns.mood import reflection_shape
from cuebook.app.turns.what_if import to_wire, what_if
from cuebook.engine.core.services import Services
from cuebook.engine.replay.redecide import WindowDiff
from cuebook.engine.turn.compare import render_again
from cuebook.errors import NotFound
from cuebook.interfaces.store import Alignment
from cuebook.records.answer import Page
from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.digest import messages_digest
from cuebook.records.memory import Scope
from cuebook.records.outcome import StoredOutcome
from cuebook.records.prompt import TaskOutcome
from cuebook.records.turn import SHADOW, Manifest, Step, Turn, Window
from cuebook.window.block_text import text_of
from cuebook.window.post_forms import whole
from cuebook.window.window import RENDERER

Verdict = Literal["identical", "erased", "withheld", "renderer-changed", "altered"]
#: Prefixes of memory ids in the source of a text.
_MEMORY = "memory:"
#: The metadata fields that reveal memories.
_RECALLED = "longTermMemoryRetrieval"


class Replay(Struct, frozen=True, kw_only=True):
    """A window re-rendered. `window` is None if part of it was erased, or the caller may not see it."""

    verdict: Verdict
    digest: str
    window: Window | None
    reason: str = ""
    counterfactual: WindowDiff | None = None  # for a what-if question


def replay_shape(found: Replay) -> shapes.Wire:
    """Return a replay as a JSON object."""
    window = shapes.window(found.window) if found.window else None
    values = {"verdict": found.verdict, "digest": found.digest, "reason": found.reason, "window": window}
    return values | ({"counterfactual": to_wire(found.counterfactual)} if found.counterfactual else {})


class Turns:
    """The turns of a project's conversations.

    A guest of a conversation sees its posts, but not the memories from its first user's other conversations.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def get(self, conversation: str, n: int, *, user: str | None = None) -> Turn:
        """Return a turn. Raises NotFound."""
        scope = Scope(user=user)
        turn = await self._services.store.turn(scope, conversation, n)
        return _for_guest(turn) if await self._is_guest(scope, conversation) else turn

    async def last(self, conversation: str, *, user: str | None = None, last: int = 20) -> list[Turn]:
        """Return the newest turns, oldest first."""
        scope = Scope(user=user)
        turns = await self._services.store.turns(scope, conversation, last=last)
        return list(map(_for_guest, turns)) if await self._is_guest(scope, conversation) else turns

    async def page(
        self, conversation: str, *, user: str | None = None, limit: int = LIMIT, cursor: str | None = None
    ) -> Page[Turn]:
        """Return a page of all turns, oldest first."""
        scope = Scope(user=user)
        found = await self._services.store.conversation(scope, conversation)
        start = int(read_cursor(cursor, "turns", no=found.no)[0]) if cursor is not None else 0
        check_limit(limit)
        last = min(start + limit, found.turns)
        turns = [await self._services.store.turn(scope, conversation, n) for n in range(start + 1, last + 1)]
        if _is_guest(found, scope):
            turns = list(map(_for_guest, turns))
        more = write_cursor("turns", last, no=found.no) if last < found.turns else None
        return Page(items=tuple(turns), next=more)

    async def show(
        self, conversation: str, n: int, *, step: int | None = None, user: str | None = None
    ) -> dict[str, Any]:
        """Return a turn as a JSON object (INTERFACE's shape): query, reply, and its window's blocks.

        Each block has its source and tokens. Raises NotFound.
        """
        scope = Scope(user=user)
        turn = await self.get(conversation, n, user=user)
        shown_step = self._step(turn, step)
        replay = await self._render(scope, conversation, shown_step.manifest)
        seqs = [(seq, seq) for seq in (turn.query_seq, turn.reply_seq) if seq]
        posts = {post.seq: post for post in await self._services.store.posts_in(scope, conversation, seqs)}
        query, reply = posts.get(turn.query_seq), posts.get(turn.reply_seq)
        data = shapes.turn(
            turn,
            query=_said(query),
            reply=_said(reply),
            shown=replay.window,
        )
        if data["window"]:
            data["window"]["cache"] = _cache(turn, shown_step)
            covered = await self._covered(scope, conversation, shown_step.manifest)
            data["window"]["covered"] = [
                {"from": first, "to": last, "count": last - first + 1} for first, last in covered
            ]
        word = await feedback.observation(self._services, scope, conversation, turn)
        made = await self._services.store.reflections.of(scope, conversation, turn=n)
        reflections = [reflection_shape(each) for each in reversed(made)]
        return data | {
            "replay": replay.verdict, "step": shown_step.n, "observation": word, "reflections": reflections,
        }  # fmt: skip

    async def replay(
        self,
        conversation: str,
        n: int,
        *,
        step: int | None = None,
        user: str | None = None,
        with_prompt: Sequence[str] = (),
        as_of: datetime | str | int | None = None,
        without: Sequence[str] = (),
        ask: bool = False,
    ) -> Replay:
        """Render a turn's window again from stored data, and compare it with the digest of what was sent.

        The last four arguments add a what-if replay of the first step's window (`counterfactual`). `with_prompt` sets
        prompt versions (`SLUG`, `SLUG@BRANCH`, `SLUG@BRANCH:NUMBER`). `as_of` uses the memory at a time (a datetime,
        ISO 8601, or a turn's number). `without` omits memories by id. `ask` calls the model with the result. Stores
        nothing but that call's audit record. Raises InvalidInput, NotFound, and Denied for a guest's what-if.
        """
        turn, scope = await self.get(conversation, n, user=user), Scope(user=user)
        found = await self._render(scope, conversation, self._step(turn, step).manifest)
        if not (with_prompt or without or ask or as_of is not None):
            return found
        counterfactual = await what_if(
            self._services, scope, conversation, n, with_prompt=with_prompt, as_of=as_of, without=without, ask=ask
        )
        return replace(found, counterfactual=counterfactual)

    async def feedback(
        self,
        conversation: str,
        n: int,
        *,
        score: float | None = None,
        thumb: feedback.Thumb | None = None,
        outcome: TaskOutcome | None = None,
        corrections: int | None = None,
        comment: str = "",
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> StoredOutcome:
        """Store feedback on a turn and return it. It overrides earlier feedback and what the next message implies.

        `score` is from 0 to 1; `thumb` up is 1, down is 0. The turn's prompts have learned from it when this returns,
        and what they had learned from the turn is corrected. Raises InvalidInput, NotFound, and Conflict while the turn
        is being answered.
        """
        return await feedback.give(
            self._services, conversation, n, score=score, thumb=thumb, outcome=outcome, corrections=corrections,
            comment=comment, user=user, idempotency_key=idempotency_key,
        )  # fmt: skip

    async def _is_guest(self, scope: Scope, conversation: str) -> bool:
        return scope.user is not None and _is_guest(await self._services.store.conversation(scope, conversation), scope)

    def _step(self, turn: Turn, step: int | None) -> Step:
        for each in turn.steps:
            if each.n == (step or turn.steps[-1].n):
                return each
        msg = f"Unknown step {step} of turn {turn.n}. Available: 1 to {len(turn.steps)}."
        raise NotFound(msg)

    async def _covered(self, scope: Scope, conversation: str, manifest: Manifest) -> list[tuple[int, int]]:
        """Return the posts (inclusive ranges of seqs) that a window's summary covers, shown in it or not."""
        version = manifest.summary_version
        summary = await self._services.store.summary(scope, conversation, version=version) if version else None
        if summary is None:
            return []
        [place] = await self._services.store.align(scope, (), conversation=conversation)
        covered = _upto(place, summary.upto_seq)
        if covered:
            return covered
        posts = await self._services.store.posts(scope, conversation, head=summary.upto_seq)  # on another branch
        return _ranges([post.seq for post in posts])

    async def _render(self, scope: Scope, conversation: str, manifest: Manifest) -> Replay:
        found = await self._services.store.conversation(scope, conversation)
        if _is_guest(found, scope) and any(text.source.startswith(_MEMORY) for text in manifest.volatile):
            reason = "contains memories of other conversations, visible only to the conversation's first user"
            return Replay(verdict="withheld", digest="", window=None, reason=reason)
        try:
            window = await render_again(self._services, scope, conversation, manifest, owner=found.user)
        except NotFound as erased:
            return Replay(verdict="erased", digest="", window=None, reason=str(erased))
        digest = messages_digest(window.messages)
        ratio = manifest.stable_prefix_ratio
        fields = {name: getattr(window, name) for name in window.__struct_fields__}
        window = Window(**(fields | {"stable_prefix_ratio": ratio, "anchors": manifest.anchors}))
        if digest == manifest.digest:
            return Replay(verdict="identical", digest=digest, window=window)
        if manifest.renderer != RENDERER:
            reason = f"rendered by version {manifest.renderer}, this is {RENDERER}"
            return Replay(verdict="renderer-changed", digest=digest, window=window, reason=reason)
        return Replay(verdict="altered", digest=digest, window=window, reason="the bytes differ from what was sent")


def _is_guest(conversation: Conversation, scope: Scope) -> bool:
    """Return whether the caller is a guest in another user's conversation."""
    return scope.user is not None and conversation.user not in (None, scope.user)


def _for_guest(turn: Turn) -> Turn:
    """Return a turn without the names of memories, which contain their words."""
    return replace(turn, metadata={name: value for name, value in turn.metadata.items() if name != _RECALLED})


def _upto(place: Alignment, upto: int) -> list[tuple[int, int]]:
    """Return the head's path up to one of its posts as ranges, oldest first; nothing for a post on another branch."""
    runs: list[tuple[int, int]] = []
    seq = place.conversation.head
    run = place.posts[seq].run if seq in place.posts else 0
    while seq:
        runs.append((run, seq))
        seq, run = place.runs[run]
    if not any(first <= upto <= last for first, last in runs):
        return []
    return [(first, min(last, upto)) for first, last in reversed(runs) if first <= upto]


def _ranges(seqs: Sequence[int]) -> list[tuple[int, int]]:
    results: list[tuple[int, int]] = []
    for seq in seqs:
        if results and results[-1][1] == seq - 1:
            results[-1] = (results[-1][0], seq)
        else:
            results.append((seq, seq))
    return results


def _cache(turn: Turn, step: Step) -> dict[str, Any]:
    """Return the prompt-cache use of a step: as the provider reported it, else simulated for the newest step.

    Reports in shadow mode do not count: they belong to the client's own prompt.
    """
    usage, sent = step.usage, SHADOW not in turn.metadata
    if sent and usage is not None and usage.cache_read is not None:
        return {"readTokens": usage.cache_read, "writeTokens": usage.cache_write or 0, "simulated": False}
    return dict(turn.metadata.get("window", {}).get("cache", {})) if step.n == turn.steps[-1].n else {}


def _said(post: PathPost | None) -> str:
    if post is None:
        return ""
    return post.message or text_of(whole(post, None))
