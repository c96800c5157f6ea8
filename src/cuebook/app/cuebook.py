"""The public Python API: `Cuebook` opens a project, answers messages, builds prompts and stores conversations."""

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from functools import cache, partial
from inspect import isasyncgenfunction, iscoroutinefunction
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.check_arguments import (
    check_analyzers,
    check_ask,
    check_call,
    check_parts_of,
    check_settle,
    check_where,
)
from cuebook.app.conversations import Conversations
from cuebook.app.documents import Documents
from cuebook.app.experiences import Experiences
from cuebook.app.file_watch import FileWatch, known_prompts
from cuebook.app.keys import Keys
from cuebook.app.loop import at_exit, run_at_exit
from cuebook.app.memories.folder import memory_folder_of
from cuebook.app.memories.search import Memories
from cuebook.app.namespace import encode_request
from cuebook.app.organizations import Organizations
from cuebook.app.personas import Personas
from cuebook.app.prompts.files import ProjectPrompts, push_by_itself, pushes_by_itself
from cuebook.app.proxy.anthropic_messages import Messages, upstream_model
from cuebook.app.proxy.openai_conversations import OpenAIConversations
from cuebook.app.proxy.openai_responses import Responses
from cuebook.app.reports.audit import Audit
from cuebook.app.reports.prices import load_prices
from cuebook.app.reports.shadow import ShadowCalls
from cuebook.app.reports.usage import cost_of
from cuebook.app.setup.compose import compose, services_of, sinks_of
from cuebook.app.setup.project_files import check_instructions, load_config, load_presets
from cuebook.app.setup.prompt_logs import prompt_logs_of
from cuebook.app.sync.sync import PromptSync
from cuebook.app.transcript_views.live import Live, LiveReader
from cuebook.app.turns.mood import MindOf
from cuebook.app.turns.optimizer import Optimizer
from cuebook.app.turns.turns import Thumb, Turns
from cuebook.config import Config, build
from cuebook.engine.core.drafts import Posted, check_text
from cuebook.engine.core.services import Services
from cuebook.engine.core.token_limit import admit_key
from cuebook.engine.jobs.audit_mirror import keep_mirror
from cuebook.engine.jobs.embedding import load
from cuebook.engine.jobs.job import DueQuery
from cuebook.engine.jobs.worker import Worker
from cuebook.engine.proxy.relay import metered, pass_on, relay
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.responses_wire import ResponsesWire
from cuebook.engine.proxy.shadow import Shadow
from cuebook.engine.proxy.wire import ChatWire, Head
from cuebook.engine.turn.chat import ChatSpeaker, Chunk, preview, read_ask
from cuebook.engine.turn.prompt_logs import PromptLogs
from cuebook.engine.turn.turn import answer
from cuebook.errors import CuebookError, InvalidInput
from cuebook.interfaces import Analyzer, Clock, Dice, Embedder, Model, RelayRequest, Sink, Upstream
from cuebook.providers.model_list import ModelList
from cuebook.providers.openai import HttpUpstream
from cuebook.records.conversation import Appended
from cuebook.records.memory import DEFAULT_TENANT, NO_MODEL
from cuebook.records.prompt import TaskOutcome, TurnFeedback
from cuebook.records.turn import Ask, Window
from cuebook.storage.database.sqlite_files import MEMORY

__all__ = ["Ask", "Chunk", "Cuebook", "Head", "Posted", "RelayCall", "RelayRequest", "Reply"]


_UNOPENED = "This Cuebook is not open yet. Use `async with Cuebook.open(...) as cue:`, or await a method first."
_CLOSED = "This Cuebook is closed. Create another with Cuebook.open(...)."


class Reply(Struct, frozen=True, kw_only=True):
    """A model's answer: its text, the same text without markup, and the metadata of its turn."""

    text: str
    text_plain: str
    conversation: str
    turn: int
    metadata: dict[str, Any]
    window: Window | None


def _close_at_exit(cue: "ref[Cuebook]") -> None:
    """Close one that nobody closed. Its event loop has ended: what that loop still held is gone."""
    if (found := cue()) is not None:
        with suppress(RuntimeError):
            run_at_exit(found.aclose)


class _NotOpenError(CuebookError, AttributeError):
    """A namespace was used before its Cuebook was open: `Cuebook.__getattr__` returns another one."""


class _Unopened:
    """A namespace of a Cuebook that is not open yet: its asynchronous methods open the Cuebook first."""

    def __init__(self, opened: Callable[[], Awaitable["Cuebook"]], path: str) -> None:
        self._opened, self._path = opened, path

    def __getattr__(self, name: str) -> Callable[..., Any]:
        opened, path = self._opened, attrgetter(f"{self._path}.{name}")
        method = getattr(getattr(Cuebook, self._path).fget.__annotations__["return"], name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await path(await opened())(*arguments, **options)

        async def iterate(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
            async for each in path(await opened())(*arguments, **options):
                yield each

        if iscoroutinefunction(method):
            return call
        if isasyncgenfunction(method):
            return iterate
        raise CuebookError(_UNOPENED)


class Cuebook:
    """A project. `async with Cuebook.open("cuebook.toml") as cue:` opens it, runs its background jobs and closes it.

    Without `async with`, the first call opens it, and it is open until `aclose` or the end of the process.
    """

    def __init__(
        self,
        where: str | Path | Config | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        model: Model | None = None,
        clock: Clock | None = None,
        dice: Dice | None = None,
        upstream: Upstream | None = None,
        embedder: Embedder | None = None,
        sinks: Sequence[Sink] = (),
        analyzers: Sequence[Analyzer] = (),
        worker: bool = True,
    ) -> None:
        """See `open`."""
        check_where(where, arguments)
        if where is None:
            config = build(arguments={"store.url": MEMORY, **(arguments or {})})
        elif isinstance(where, Config):
            config = where
        else:
            config = load_config(where, arguments=arguments)
        value: Any = {"model": model, "clock": clock, "dice": dice, "upstream": upstream, "embedder": embedder}
        check_parts_of(config, **value)
        self.config = config
        self._given = value | {"analyzers": check_analyzers(analyzers)}
        self._sinks = sinks_of(config, sinks)
        self._works = worker
        self._services: Services | None = None
        self._project: Services | None = None  # those of the project itself, also in the view of a tenant
        self._upstream: Upstream | None = None
        self._worker: Worker | None = None
        self._logs: PromptLogs | None = None
        self._shadow: Shadow | None = None
        self._models: ModelList | None = None
        self._tenant = DEFAULT_TENANT
        self._tenants: dict[str, Services] = {}
        self._live_readers: dict[int, LiveReader] = {}
        self._opening: asyncio.Future[Any] | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        where: str | Path | Config | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        model: Model | None = None,
        clock: Clock | None = None,
        dice: Dice | None = None,
        upstream: Upstream | None = None,
        embedder: Embedder | None = None,
        sinks: Sequence[Sink] = (),
        analyzers: Sequence[Analyzer] = (),
        worker: bool = True,
    ) -> Self:
        """Return the Cuebook of a cuebook.toml, its folder or a Config; without `where`, one in memory until it closes.

        `arguments` override settings, such as {"store.url": "chats.db"}. `model` and `embedder` replace the configured
        ones. Each of `sinks` gets every finished summarization pass once. `analyzers` compute the sentiment of posts.
        With `worker=False` no background job runs until `settle` or `work`. Raises InvalidInput.
        """
        data: dict[str, Any] = {"model": model, "clock": clock, "dice": dice, "upstream": upstream}
        data |= {"embedder": embedder, "sinks": sinks, "analyzers": analyzers, "worker": worker}
        return cls(where, arguments=arguments, **data)

    async def _opened(self) -> Self:
        """Open it, unless it is open. Raises CuebookError after `aclose`."""
        if self._closed:
            raise CuebookError(_CLOSED)
        if self._services is None and self._opening is None:
            self._opening = asyncio.ensure_future(self.__aenter__())
            at_exit(partial(_close_at_exit, ref(self)))
        if self._opening is not None:
            try:
                await asyncio.shield(self._opening)
            except Exception:
                self._opening, self._closed = None, False
                raise
        return self

    async def __aenter__(self) -> Self:
        if self._services is not None:
            msg = "Cannot open: this Cuebook is already open. Create another with Cuebook.open(...)."
            raise CuebookError(msg)
        self._closed = False
        services, self._upstream = await asyncio.to_thread(compose, self.config, **self._given, sinks=self._sinks)
        services.cost_of = partial(cost_of, cache(partial(load_prices, self.config)))
        services.other_tenant = lambda tenant: self.of(tenant).services
        if isinstance(self._upstream, HttpUpstream) and not services.settings.sets_context:
            self._models = ModelList(self._upstream)
        self._services = self._project = services
        self._worker = Worker(services, interval_s=self.config.settings.work.interval_s)
        known = partial(known_prompts, services.prompts, self.config)
        watch = FileWatch(self.config, lambda: (services, *self._tenants.values()), known)
        try:
            if pushes_by_itself(self.config):
                await push_by_itself(self.prompts)
                services.restore_file = self.prompts.restore
            await watch.begin()
            ids = await known()
            services.settings = replace(services.settings, presets=load_presets(self.config, ids))
            check_instructions(self.config, services.settings.compaction, ids | services.settings.builtin.keys())
            self._logs = await asyncio.to_thread(prompt_logs_of, self.config, services)
            services.memory_folder = await memory_folder_of(self.memory, services, self.config)
        except BaseException:
            await self.aclose()
            raise
        services.catch_up = watch.look
        if self._upstream is not None and self.config.settings.upstream.shadow:
            self._shadow = Shadow(self._upstream)
            self._shadow.start()
        if self._works:
            self._worker.start(local_only=self.config.settings.work.where == "workers")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the background jobs, then close the store and all connections, even if one of them fails."""
        self._closed, self._opening = True, None
        services, self._services = self._services, None
        self._tenants.clear()
        if services is None or self._worker is None:
            return
        async with AsyncExitStack() as closing:
            closing.push_async_callback(services.store.aclose)
            closing.push_async_callback(asyncio.to_thread, services.tracing.close)
            if self._logs is not None:
                closing.push_async_callback(self._logs.drain)
            closing.push_async_callback(keep_mirror, services, closing=True)
            for each in (
                self._upstream, services.embedder, services.experience_model, services.recall_model,
                services.work_model, self._models, services.model,
            ):  # fmt: skip
                if each is not None:
                    closing.push_async_callback(each.aclose)
            closing.push_async_callback(self._worker.stop)
            if self._shadow is not None:
                closing.push_async_callback(self._shadow.aclose)

    @property
    def services(self) -> Services:
        """The engine's dependencies; internal to this package."""
        if self._services is None:
            raise _NotOpenError(_CLOSED if self._closed else _UNOPENED)
        return self._services

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> _Unopened:
            """Return a namespace of an unopened Cuebook; its property has raised `_NotOpenError`."""
            if not hasattr(Cuebook, name):  # also while it is copied
                msg = f"Cuebook has no attribute {name!r}"
                raise AttributeError(msg)
            if name == "services" or self._closed:
                raise _NotOpenError(_CLOSED if self._closed else _UNOPENED)
            return _Unopened(self._opened, name)

    def of(self, tenant: str) -> "Cuebook":
        """Return this Cuebook limited to one tenant's data, usable while this one is open.

        A conversation without an owner belongs to no user there. Only the default tenant has prompt files and the audit
        mirror.
        """
        if tenant not in self._tenants:
            check_text(tenant, "tenant")
            self._tenants[tenant] = services_of(self.services, tenant)
        cuebook = copy.copy(self)
        cuebook._services, cuebook._tenant = self._tenants[tenant], tenant  # noqa: SLF001  # an instance of this class
        return cuebook

    @property
    def conversations(self) -> Conversations:
        """Conversations: list, read, move the head, export, delete."""
        return Conversations(self.services)

    @property
    def turns(self) -> Turns:
        """Turns: show every block of a prompt and its source, replay it, give feedback."""
        return Turns(self.services)

    @property
    def responses(self) -> Responses:
        """Stored answers of the OpenAI Responses API, by id."""
        return Responses(self.services, self._upstream, most=self.config.settings.server.max_v1_body)

    @property
    def openai_conversations(self) -> OpenAIConversations:
        """Conversations of the OpenAI Conversations API: create, add items, read."""
        return OpenAIConversations(self.services)

    @property
    def persona(self) -> Personas:
        """Personas: list and show them as their files currently define them."""
        return Personas(self.services)

    @property
    def experiences(self) -> Experiences:
        """Handwritten experiences (few-shot examples): list them, and show the selection for a query."""
        return Experiences(self.services)

    @property
    def prompts(self) -> ProjectPrompts:
        """Managed prompts: write, read, render, compare, select, learn and roll back versions."""
        return ProjectPrompts(self.services, self.config)

    @property
    def prompt_sync(self) -> PromptSync:
        """Prompt sync: exchange prompts with other projects, bundle them, and host the prompts of others."""
        return PromptSync(self.services, self.config, self._tenant)

    @property
    def audit(self) -> Audit:
        """The audit log: what was sent to the model and why, integrity checks, and replays of each prompt."""
        return Audit(self.services)

    @property
    def keys(self) -> Keys:
        """API keys of the server: create, list, revoke, authenticate."""
        return Keys(self.services, self._tenant)

    @property
    def organizations(self) -> Organizations:
        """Organizations: what each allows in its long-term memory."""
        return Organizations(self.services)

    @property
    def documents(self) -> Documents:
        """Documents of programs: JSON values by place and key, such as an agent's checkpoints and files."""
        return Documents(self.services)

    @property
    def memory(self) -> Memories:
        """The memory of a project: search, add, list, correct and forget memories; knowledge, items and summaries."""
        return Memories(self.services, self.config)

    @property
    def live(self) -> Live:
        """Live view: the newest turns, and a stream of their changes."""
        return Live(self.services, self.config, self._live_readers)

    @property
    def mind(self) -> MindOf:
        """The mood state of conversations: show what changed it, run a metaprompt, reset."""
        return MindOf(self.services)

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, which tunes how much of a conversation is kept verbatim: run it, show its history."""
        return Optimizer(self.services)

    @property
    def shadow(self) -> ShadowCalls:
        """Figures of each summarization profile on own traffic, and the records of shadow mode."""
        own = self._project if self._tenant == DEFAULT_TENANT else None
        peers = [each for each in (own, self._tenants.get(self._tenant)) if each is not None]
        return ShadowCalls(self.services, self.config, self._shadow, self.memory.search, peers=peers)

    async def ask(self, ask: Ask) -> Reply:
        """Return the model's answer. The query is durable before the model call, the answer before this returns."""
        last: Chunk | None = None
        async for chunk in self.stream(ask):
            last = chunk
        if last is None or last.type != "final_response":
            msg = "The turn ended without an answer."
            raise CuebookError(msg)
        return Reply(
            text=last.text,
            text_plain=last.plain,
            conversation=ask.conversation,
            turn=last.turn,
            metadata=last.metadata,
            window=last.window,
        )

    async def stream(self, ask: Ask) -> AsyncIterator[Chunk]:
        """Yield the answer in chunks: METADATA_UPDATE, text_delta…, final_response. An early stop keeps its text."""
        check_ask(ask)
        await self._opened()
        digest = b""
        if ask.idempotency_key:
            digest = self.services.settings.request_digest(
                encode_request(replace(ask, idempotency_key=None), "attachments")
            )
        await self.services.catch_up()
        request = read_ask(self.services, ask, digest=digest)
        chunks = answer(self.services, request, ChatSpeaker(self.services))
        async with aclosing(chunks):  # on an early stop, close the turn before returning
            async for chunk in chunks:
                yield chunk

    async def assemble(self, ask: Ask) -> Window:
        """Return the prompt that `ask` would send, without storing anything."""
        return (await self.assemble_with_metadata(ask))[0]

    async def assemble_with_metadata(self, ask: Ask) -> tuple[Window, dict[str, Any]]:
        """Return the prompt that `ask` would send, and the `metadata` that its reply would have."""
        check_ask(ask)
        await self._opened()
        await self.services.catch_up()
        return await preview(self.services, ask)

    async def append(
        self,
        conversation: str,
        posts: Sequence[Posted | Mapping[str, Any]],
        *,
        user: str | None = None,
        persona: str | None = None,
        parent: str | None = None,
        idempotency_key: str | None = None,
        time_zone: str | None = None,
    ) -> Appended:
        """Store posts from elsewhere, all or none: Posted records, or OpenAI chat messages as mappings.
        `parent` is the post they follow (default: the head; "": none); `time_zone` (IANA) sets their calendar days.
        """
        return await self.conversations.append(
            conversation, posts, user=user, persona=persona, parent=parent,
            idempotency_key=idempotency_key, time_zone=time_zone,
        )  # fmt: skip

    async def feedback(
        self,
        conversation: str,
        n: int,
        *,
        score: float | None = None,
        thumb: Thumb | None = None,
        outcome: TaskOutcome | None = None,
        corrections: int | None = None,
        comment: str = "",
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> TurnFeedback:
        """Store feedback on a turn; it overrides what the user's next message implies. See `turns.feedback`."""
        data: dict[str, Any] = {"score": score, "thumb": thumb, "outcome": outcome, "corrections": corrections}
        data |= {"comment": comment, "user": user, "idempotency_key": idempotency_key}
        return await self.turns.feedback(conversation, n, **data)

    async def settle(self, *, conversation: str | None = None, timeout: float = 60.0) -> dict[str, int]:
        """Run pending background jobs and wait until none is left. Return the pending count by kind, empty when done.

        Kinds: `compaction` (conversations), `observation` (turns to learn from), `rollback` (prompts to judge),
        `correction` (summaries), `reflection` (turns to reflect on), `delivery` (conversations with new memories),
        `sink` (summaries), `optimizer` (conversations to tune), `retention` (expired data), `forget` (unsigned
        receipts), `audit` (records not yet mirrored), `files` (a changed memory folder), `embedding` (texts), `kinds`
        (examples of the task classifier).
        `timeout` is in seconds.
        """
        check_settle(conversation, timeout)
        if self._worker is None:
            return {}
        if self._shadow is not None:
            await self._shadow.settle(timeout)
        if self._logs is not None:
            await self._logs.settle(timeout)
        return await self._worker.settle(timeout_s=timeout, conversation=conversation)

    async def backlog(self) -> dict[str, int]:
        """Return the pending background work by kind, up to 1,000 pieces of each."""
        return {} if self._worker is None else await self._worker.backlog(DueQuery(limit=1_000))

    async def work(self) -> int:
        """Run the background jobs that are due now, once, as the worker would. Return how many ran."""
        return await self._worker.work() if self._worker else 0

    def relay(self, call: RelayCall) -> AsyncGenerator[Head | bytes, None]:
        """Answer an OpenAI chat-completions request. Yield the response head, then the body's bytes."""
        return self._relay(ChatWire, call)

    def respond(self, call: RelayCall, *, compacts: bool = False) -> AsyncGenerator[Head | bytes, None]:
        """Answer an OpenAI Responses request, or one to compact. Yield the response head, then the body's bytes."""
        return self._relay(partial(ResponsesWire, compacts=compacts), call)

    async def _relay(self, kind: Callable[..., ChatWire], call: RelayCall) -> AsyncGenerator[Head | bytes, None]:
        await self._prepare(call)
        wire = kind(self.services, self._upstream, call)
        model = upstream_model(self.services, self.config, wire.model) if self._upstream is not None else None
        async with aclosing(relay(wire, model=model)) as pieces:
            async for piece in pieces:
                yield piece

    async def message(self, call: RelayCall) -> AsyncIterator[Head | bytes]:
        """Answer an Anthropic messages request: yield the head, then the body's bytes. Do not store unparsable ones."""
        await self._prepare(call)
        async with aclosing(self.messages.answer(call, partial(self.pass_through, key=call.key))) as pieces:
            async for piece in pieces:
                yield piece

    async def _prepare(self, call: RelayCall) -> None:
        """Check a call, reload changed files, and ask the upstream for its models in the background, once."""
        check_call(call)
        await self.services.catch_up()
        if self._models is not None:
            self._models.ask(call.headers, self.services.caches.listed_contexts)

    @property
    def messages(self) -> Messages:
        """The Anthropic Messages API: which model answers, and token counts of requests."""
        return Messages(self.services, self.config, self._upstream)

    async def pass_through(
        self, request: RelayRequest, call: RelayCall | None = None, *, key: str = ""
    ) -> AsyncIterator[Head | bytes]:
        """Forward any other request to the upstream without storing it. Yield the response head, then the body's bytes.

        In shadow mode the request, and `call` if it asks a model, is stored after the answer. `key` is the id of the
        caller's API key. Raises UpstreamError, and Busy if the key has no tokens left.
        """
        if self._upstream is None:
            msg = f"Cannot forward {request.path}: no upstream configured. Start with `cuebook serve --upstream URL`."
            raise InvalidInput(msg, where="path")
        await admit_key(self.services, key if request.method == "POST" else "")
        if self._shadow is not None:
            if call is not None and self._models is not None:
                self._models.ask(call.headers, self.services.caches.listed_contexts)
            pieces = self._shadow.pass_on(self.services, request, call)
        else:
            pieces = pass_on(self._upstream, request)
        if call is None and key:  # else the stored turn counts
            pieces = metered(self.services, pieces, request, key)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    @property
    def upstream_url(self) -> str | None:
        """The upstream's base URL, None if none is configured."""
        return self._upstream.base_url if self._upstream else None

    @property
    def shadows(self) -> bool:
        """Return whether shadow mode is on: requests go on unchanged, and Cuebook's prompts are only recorded."""
        return self._shadow is not None

    @property
    def personas(self) -> list[str]:
        """Return the ids of the personas."""
        return sorted(self.services.settings.personas)

    async def warm_up(self) -> None:
        """Load the embedder now, so that no query waits for it. `check` reports a failure."""
        await load(self.services)

    async def check(self) -> dict[str, Any]:
        """Return whether the store and the model are ready, and which ones they are."""
        store = await self.services.store.check()
        return {
            "store": store,
            "model": self.services.model.name,
            "embedder": self.services.embedder.name if self.services.embedder else None,
            "embedderError": self.services.caches.failures.get("embedder") or None,
            "hasModel": self.services.model.name != NO_MODEL or self._upstream is not None,
            "upstream": self.upstream_url,
            "personas": self.personas,
        }
