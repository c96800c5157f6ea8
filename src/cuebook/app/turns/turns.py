"""The `cue.turns` API: show each turn's prompt block by block, replay it, ask what-if questions, give feedback."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from cuebook.app.arguments import (
    Conversation,
    Cursor,
    IdempotencyKey,
    MaybePageSize,
    StepNumber,
    Text,
    TurnNumber,
    User,
)
from cuebook.app.namespace import Namespace
from cuebook.app.paging import LIMIT, check_alone, read_cursor, write_cursor
from cuebook.app.turns.feedback import observation_of
from cuebook.app.turns.mood import reflection_of
from cuebook.app.turns.what_if import what_if as ask_what_if
from cuebook.app.turns.what_if import what_if_entry
from cuebook.engine.core.drafts import check_text
from cuebook.engine.jobs.observation import teach
from cuebook.engine.replay.redecide import WindowDiff
from cuebook.engine.turn.compare import render_again
from cuebook.errors import InvalidInput, NotFound
from cuebook.operations import Argument, operation
from cuebook.prompts.learn import score as score_of
from cuebook.records.answer import Page, as_answer
from cuebook.records.conversation import Conversation as StoredConversation
from cuebook.records.conversation import PathPost, is_guest, messages_digest
from cuebook.records.conversation_answers import (
    ListedTurn,
    ReplayEntry,
    TurnDetail,
    listed_turn,
    turn_fields,
    window_entry,
)
from cuebook.records.memory import POST, Scope
from cuebook.records.prompt import Outcome, TaskOutcome, TurnFeedback, turn_feedback
from cuebook.records.turn import RECALLED, SHADOW, Manifest, Step, Turn, Window, last_attempts
from cuebook.signals.outcome import NEUTRAL
from cuebook.window.post_forms import whole
from cuebook.window.window import RENDERER, text_of
from cuebook.wire.responses_requests import read_id

Verdict = Literal["identical", "erased", "withheld", "renderer-changed", "altered"]
#: The highest turn number.
HIGHEST = 2**31
#: Another name of the newest turn.
LATEST: Final = "latest"
#: Default number of turns in a list.
NEWEST = 20
#: Prefixes of memory ids in the source of a text.
_MEMORY = "memory:"
Thumb = Literal["up", "down"]
THUMBS: Final[dict[Thumb, float]] = {"up": 1.0, "down": 0.0}
#: Maximum length of a comment, in characters.
COMMENT: Final = 2_000


class Replay(Struct, frozen=True, kw_only=True):
    """A window re-rendered. `window` is None if part of it was erased, or the caller may not see it."""

    verdict: Verdict
    digest: str
    window: Window | None
    reason: str = ""
    counterfactual: WindowDiff | None = None  # for a what-if question


def replay_entry(found: Replay) -> ReplayEntry:
    """Return a replay as an answer."""
    return as_answer(
        ReplayEntry,
        found,
        window=window_entry(found.window) if found.window else None,
        counterfactual=what_if_entry(found.counterfactual) if found.counterfactual else UNSET,
    )


class Turns(Namespace):
    """The turns of a project's conversations.

    A guest of a conversation sees its posts, but not the memories from its first user's other conversations.
    """

    async def get(self, conversation: str, n: int, *, user: str | None = None) -> Turn:
        """Return a turn. Raises NotFound."""
        check_number(n)
        scope = Scope(user=user)
        turn = await self._services.store.turn(scope, conversation, n)
        guest = user is not None and is_guest(await self._services.store.conversation(scope, conversation), user)
        return _for_guest(turn) if guest else turn

    @operation(
        "GET /api/conversations/{conversation}/turns",
        role="viewer",
        cli="turn list",
        examples=("cuebook turn list c1", "cuebook turn list c1 --last 5 --json"),
        none="no turns yet. Imported posts have none; `cuebook chat` and `cuebook serve` create them.",
    )
    async def list(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        last: Annotated[
            int | None, Meta(ge=1, le=100_000, description=f"Return only the newest N turns. Default: {NEWEST}.")
        ] = None,
        all_attempts: Annotated[bool, Meta(description="List the failed calls that a client repeated, too.")] = False,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> Page[ListedTurn]:
        """List turns without prompts, oldest first: the newest, or with `limit` or `cursor` a page of all.

        A call that failed and was repeated is one entry with its number of attempts. Raises NotFound.
        """
        scope, store = Scope(user=user), self._services.store
        found, more = await store.conversation(scope, conversation), None
        if limit is None and cursor is None:
            turns = await self._newest(scope, found, last or NEWEST, all_attempts=all_attempts)
        else:
            check_alone("last", last)
            start = int(read_cursor(cursor, "turns", no=found.no)[0]) if cursor is not None else 0
            most = limit or LIMIT
            turns = await self._after(scope, found, start, most + 1, all_attempts=all_attempts)
            more = write_cursor("turns", turns[most - 1].n, no=found.no) if len(turns) > most else None
            turns = turns[:most]
        if is_guest(found, user):
            turns = [_for_guest(each) for each in turns]
        return Page(items=tuple(map(listed_turn, turns)), next=more)

    async def _newest(
        self, scope: Scope, conversation: StoredConversation, most: int, *, all_attempts: bool
    ) -> Sequence[Turn]:
        """Return the newest `most` turns, without failed ones that were repeated unless `all_attempts`."""
        count = most
        while True:
            turns = await self._services.store.turns(scope, conversation.id, last=count)
            turns = turns if all_attempts else last_attempts(turns)
            if len(turns) >= most or count >= conversation.turns:
                return turns[-most:]
            count *= 2

    async def _after(
        self, scope: Scope, conversation: StoredConversation, start: int, most: int, *, all_attempts: bool
    ) -> Sequence[Turn]:
        """Return the first `most` turns after number `start`, likewise."""
        turns: list[Turn] = []
        while True:
            listed = turns if all_attempts else last_attempts(turns)
            first = start + len(turns) + 1
            end = min(first + most - len(listed), conversation.turns + 1)
            if first >= end:
                return listed
            turns += [await self._services.store.turn(scope, conversation.id, n) for n in range(first, end)]

    async def find(self, conversation: str, name: str, *, user: str | None = None) -> int:
        """Return the number of a turn by a name: the number, `latest`, the ID of a response of /v1/responses, or the ID
        of a post that the turn asked or answered with. Raises NotFound.
        """
        scope, store = Scope(user=user), self._services.store
        found, id_ = await store.conversation(scope, conversation), name.removeprefix(POST)
        response = read_id(name)
        if response is not None and response.conversation == conversation:
            return response.number
        if name.isdecimal() and name.isascii():
            return int(name)
        if not found.turns:
            msg = f"Conversation {conversation!r} has no turns. Send a message through Cuebook first."
            raise NotFound(msg)
        if name == LATEST:
            return found.turns
        place = (await store.talks.places(scope, conversation, [id_])).get(id_)
        if place is None:
            names = f"a number, {LATEST!r}, or the ID of a post or response"
            msg = f"Unknown turn {name!r} of conversation {conversation!r}. Use {names}."
            raise NotFound(msg)
        [post] = await store.posts_in(scope, conversation, [(place.seq, place.seq)])
        turns = await store.talks.answering(scope, conversation, first=post.round, last=post.round)
        answering = [each for each in turns if place.seq in each.replies] or turns
        if not answering:
            msg = f"No turn of conversation {conversation!r} has post {id_!r}. Imported and appended posts have none."
            raise NotFound(msg)
        return answering[-1].turn

    @operation("GET /api/conversations/{conversation}/turns/{n}", role="viewer")
    async def show(
        self, conversation: Conversation, n: TurnNumber, *, step: StepNumber = None, user: User = None
    ) -> TurnDetail:
        """Return a turn: query, reply, and the blocks of its prompt with sources and tokens. Raises NotFound."""
        scope = Scope(user=user)
        turn = await self.get(conversation, n, user=user)
        shown = self._step(turn, step)
        replay = await self._render(scope, conversation, shown.manifest)
        seqs = [(seq, seq) for seq in (turn.query_seq, turn.reply_seq) if seq]
        posts = {post.seq: post for post in await self._services.store.posts_in(scope, conversation, seqs)}
        window = None
        if replay.window is not None:
            covered = await self._covered(scope, conversation, shown.manifest)
            window = window_entry(replay.window, cache=_cache(turn, shown), covered=covered)
        made = await self._services.store.reflections.of(scope, conversation, turn=n)
        return as_answer(
            TurnDetail,
            turn,
            **turn_fields(turn),
            query=_said(posts.get(turn.query_seq)),
            reply=_said(posts.get(turn.reply_seq)) or turn.partial,
            window=window,
            replay=replay.verdict,
            step=shown.n,
            observation=await observation_of(self._services, scope, conversation, turn),
            reflections=tuple(map(reflection_of, reversed(made))),
        )

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
        counterfactual = await ask_what_if(
            self._services, scope, conversation, n, with_prompt=with_prompt, as_of=as_of, without=without, ask=ask
        )
        return replace(found, counterfactual=counterfactual)

    @operation("GET /api/conversations/{conversation}/turns/{n}/replay", role="viewer")
    async def verify(
        self, conversation: Conversation, n: TurnNumber, *, user: User = None, step: StepNumber = None
    ) -> ReplayEntry:
        """Render a turn's window from stored data, and compare it with the digest of what was sent. Raises NotFound."""
        return replay_entry(await self.replay(conversation, n, step=step, user=user))

    @operation("POST /api/conversations/{conversation}/turns/{n}/replay", role="editor")
    async def what_if(
        self,
        conversation: Conversation,
        n: TurnNumber,
        *,
        with_prompt: Annotated[
            tuple[Text, ...],
            Meta(description="Use these prompt versions: `SLUG`, `SLUG@BRANCH` or `SLUG@BRANCH:NUMBER`."),
            Argument(flag="with", metavar="prompt=P"),
        ] = (),
        as_of: Annotated[
            str | int | None,
            Meta(description="Use the memory as of a time (ISO 8601, UTC without a zone) or a turn number."),
            Argument(metavar="WHEN"),
        ] = None,
        without: Annotated[
            tuple[Text, ...],
            Meta(description="Leave out these memory IDs, or other sources (`post:ID`, `experience:ID`)."),
            Argument(metavar="M"),
        ] = (),
        ask: Annotated[
            bool, Meta(description="Call the configured model with the result; the audit log records the call.")
        ] = False,
        user: User = None,
    ) -> ReplayEntry:
        """Return a turn's first prompt as it would be with other prompt versions, another memory state or fewer blocks.

        Raises InvalidInput, NotFound, and Denied for a guest of the conversation.
        """
        return replay_entry(
            await self.replay(
                conversation, n, user=user, with_prompt=with_prompt, as_of=as_of, without=without, ask=ask
            )
        )

    @operation("POST /api/conversations/{conversation}/turns/{n}/feedback", role="editor", stores=True)
    async def feedback(
        self,
        conversation: Conversation,
        n: TurnNumber,
        *,
        score: Annotated[float | None, Meta(ge=0, le=1, description="Score from 0 (bad) to 1 (good).")] = None,
        thumb: Annotated[Thumb | None, Meta(description="Up is a score of 1, down of 0."), Argument(flag="-")] = None,
        outcome: Annotated[TaskOutcome | None, Meta(description="Outcome of the task.")] = None,
        corrections: Annotated[int | None, Meta(ge=0, le=2**31, description="Number of corrections.")] = None,
        comment: Annotated[
            str,
            Meta(max_length=COMMENT, description="Comment, stored with the turn."),
            Argument(metavar="TEXT"),
        ] = "",
        user: User = None,
        idempotency_key: IdempotencyKey = None,
    ) -> TurnFeedback:
        """Store feedback on a turn. It overrides earlier feedback and what the next message implies.

        Pass a score or a thumb, an outcome, or corrections. The score of the observation is
        0.5 sentiment + 0.3 (1 - 0.1 corrections) + 0.2 success; missing values are neutral. The turn's prompts have
        learned from it when this returns. Raises InvalidInput, NotFound, and Conflict while the turn is being answered.
        """
        check_number(n)
        if score is not None and thumb is not None:
            msg = "score: not allowed with thumb. Pass one of the two."
            raise InvalidInput(msg, where="score")
        check_text(comment, "comment")
        sentiment = THUMBS[thumb] if thumb is not None else score
        task: TaskOutcome = outcome or "unknown"
        if sentiment is None and corrections is None and task == "unknown":
            msg = "score: missing. Pass a score (1 is good, 0 is bad), an outcome or corrections."
            raise InvalidInput(msg, where="score")
        services, scope = self._services, Scope(user=user)
        missing = services.config.learning.missing
        given = Outcome(
            by="feedback",
            at=services.clock.now(),
            user=user or (await services.store.conversation(scope, conversation)).user or "",
            score=score_of(NEUTRAL if sentiment is None else sentiment, corrections or 0, task, missing=missing),
            sentiment=None if sentiment is None else float(sentiment),
            corrections=corrections,
            task=task,
            comment=services.writer.clean(comment),
        )
        await services.store.outcomes.give(scope, conversation, n, given)
        await teach(services, scope, conversation, n)
        known = await services.store.outcomes.get(scope, conversation, n)
        if known is None:
            msg = f"Feedback on turn {n} of conversation {conversation!r} was deleted meanwhile."
            raise NotFound(msg)
        return turn_feedback(known)

    def _step(self, turn: Turn, step: int | None) -> Step:
        for each in turn.steps:
            if each.n == (step or turn.steps[-1].n):
                return each
        msg = f"Unknown step {step} of turn {turn.n}. Available: 1 to {len(turn.steps)}."
        raise NotFound(msg)

    async def _covered(self, scope: Scope, conversation: str, manifest: Manifest) -> Sequence[tuple[int, int]]:
        """Return the posts (inclusive ranges of seqs) that a window's summary covers, shown in it or not."""
        version = manifest.summary_version
        summary = await self._services.store.summary(scope, conversation, version=version) if version else None
        if summary is None:
            return []
        runs = await self._services.store.talks.runs(scope, conversation)
        spans, seq = [], summary.upto_seq
        while seq:
            run = next(each for each in reversed(runs) if each.first <= seq)
            spans.append((run.first, seq))
            seq = run.parent
        return spans[::-1]

    async def _render(self, scope: Scope, conversation: str, manifest: Manifest) -> Replay:
        found = await self._services.store.conversation(scope, conversation)
        if is_guest(found, scope.user) and any(text.source.startswith(_MEMORY) for text in manifest.volatile):
            reason = "contains memories of other conversations, visible only to the conversation's first user"
            return Replay(verdict="withheld", digest="", window=None, reason=reason)
        try:
            window = await render_again(self._services, scope, conversation, manifest, owner=found.user)
        except NotFound as erased:
            return Replay(verdict="erased", digest="", window=None, reason=str(erased))
        digest = messages_digest(window.raw_messages)
        window = replace(window, stable_prefix_ratio=manifest.stable_prefix_ratio, anchors=manifest.anchors)
        if digest == manifest.digest:
            return Replay(verdict="identical", digest=digest, window=window)
        if manifest.renderer != RENDERER:
            reason = f"rendered by version {manifest.renderer}, this is {RENDERER}"
            return Replay(verdict="renderer-changed", digest=digest, window=window, reason=reason)
        return Replay(verdict="altered", digest=digest, window=window, reason="the bytes differ from what was sent")


def check_number(n: int) -> None:
    """Check a turn's number. Raises NotFound if it is out of range."""
    if not 1 <= n <= HIGHEST:
        msg = f"Unknown turn {n}. Turns are numbered from 1."
        raise NotFound(msg)


def _for_guest(turn: Turn) -> Turn:
    """Return a turn without the names of memories, which contain their words."""
    return replace(turn, metadata={name: value for name, value in turn.metadata.items() if name != RECALLED})


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
