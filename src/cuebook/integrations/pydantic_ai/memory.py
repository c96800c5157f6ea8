"""Recall and summarize for a Pydantic AI agent, as a capability. Each run is stored as posts of a conversation."""

import secrets
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Final, Self

from msgspec import Struct
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext

from cuebook.app.cuebook import Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.errors import NotFound
from cuebook.integrations.connection import Connection, Where, conversation_id, fenced, readable, recall
from cuebook.records.conversation import Part, Role
from cuebook.records.conversation_answers import PostEntry

#: The part of a post that has the id of its run.
_RUN: Final = "pydantic_ai_run"
#: The owner of an agent's memory: a user, or a function of a run's context.
Owner = str | Callable[[RunContext[Any]], str | None] | None


class _Context(Struct, frozen=True):
    """The text that the model gets besides the run's messages: recalled text, and a summary instead of earlier runs."""

    recalled: str = ""
    summary: str = ""
    covered: frozenset[str] = frozenset()


class CuebookMemory(Connection, AbstractCapability[AgentDepsT]):
    """An agent's memory: `Agent(model, capabilities=[CuebookMemory("my-project", user="ann")])`.

    Each run is stored as posts of a conversation, whose id has the user and the run's `conversation_id`. The model gets
    earlier messages and memories of the user that match the prompt, and the conversation's rolling summary instead of
    the runs that it covers. Both are in the requests only, not in the run's message history. `recalls` limits the
    recalled results, 0 for none. `user` is the owner, or a function of the run's context.
    """

    def __init__(self, where: Where = None, *, user: Owner = None, recalls: int = 10) -> None:
        super().__init__(where)
        self._user, self._recalls = user, recalls
        self._context = _Context()

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> Self:
        memory = copy(self)
        memory._context = await self._await(lambda cue: self._read(cue, ctx))  # noqa: SLF001  # of this class
        return memory

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        messages = _with_summary(request_context.messages, self._context)
        return replace(request_context, messages=_with_recalled(messages, self._context.recalled, ctx.run_id))

    async def after_run(self, ctx: RunContext[AgentDepsT], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        posts = [post for message in result.new_messages() if (post := _post(message, ctx.run_id or "")) is not None]
        if posts:
            name, user = self._place(ctx)
            await self._await(lambda cue: cue.append(name, posts, user=user))
        return result

    def _place(self, ctx: RunContext[AgentDepsT]) -> tuple[str, str | None]:
        """Return the conversation and the owner of a run."""
        user = self._user(ctx) if callable(self._user) else self._user
        return conversation_id("pydantic_ai", user or "", ctx.conversation_id or ""), user

    async def _read(self, cue: Cuebook, ctx: RunContext[AgentDepsT]) -> _Context:
        """Return the context of a run."""
        (name, user), fence = self._place(ctx), secrets.token_hex(8)
        lines: list[str] = []
        if self._recalls:
            lines = await recall(cue, _text(ctx.prompt), user=user, limit=self._recalls, without=name)
        recalled = fenced("\n".join(lines), fence) if lines else ""
        try:
            summary = await cue.conversations.summary(name, user=user)
            posts = (await cue.conversations.posts(name, user=user)).items
        except NotFound:
            return _Context(recalled)
        if summary is None:
            return _Context(recalled)
        runs = [{_run_of(post) for post in posts if (post.seq <= summary.upto_seq) is old} for old in (True, False)]
        return _Context(recalled, fenced(summary.markdown, fence), frozenset(runs[0] - runs[1] - {""}))


def _with_summary(messages: Sequence[ModelMessage], context: _Context) -> list[ModelMessage]:
    """Return messages with a summary instead of the runs that it covers. The agent's system prompts stay."""
    left_out = [each for each in messages if each.run_id in context.covered]
    if not left_out:
        return [*messages]
    system = [part for each in left_out for part in each.parts if isinstance(part, SystemPromptPart)]
    first = ModelRequest(parts=[*system, UserPromptPart(context.summary)])
    return [first, *(each for each in messages if each.run_id not in context.covered)]


def _with_recalled(messages: Sequence[ModelMessage], recalled: str, run: str | None) -> list[ModelMessage]:
    """Return messages with the recalled text after the prompt of a run."""
    prompts = [
        at
        for at, each in enumerate(messages)
        if each.run_id in (run, None) and any(isinstance(part, UserPromptPart) for part in each.parts)
    ]
    changed = [*messages]
    if recalled and prompts:
        prompt = changed[prompts[-1]]
        changed[prompts[-1]] = replace(prompt, parts=[*prompt.parts, UserPromptPart(recalled)])
    return changed


def _text(content: object) -> str:
    """Return the text of a prompt or of a part's content."""
    if isinstance(content, str) or content is None:
        return content or ""
    parts = content if isinstance(content, list | tuple) else [content]
    texts = (each if isinstance(each, str) else getattr(each, "content", "") for each in parts)
    return "\n".join(each for each in texts if each)


def _post(message: ModelMessage, run: str) -> Posted | None:
    """Return a message of a run as a post: the text of a prompt or an answer, or tools' results. None for no text."""
    if message.kind == "response":
        role: Role = "assistant"
        texts = [part.content for part in message.parts if part.part_kind == "text"]
    else:
        prompts = [_text(part.content) for part in message.parts if isinstance(part, UserPromptPart)]
        results = [part.model_response_str() for part in message.parts if part.part_kind == "tool-return"]
        role, texts = ("user", prompts) if prompts else ("tool", results)
    text = readable("\n".join(texts))
    return Posted(sender=role, role=role, message=text, parts=(Part(type=_RUN, content=run),)) if text.strip() else None


def _run_of(post: PostEntry) -> str:
    return next((part.content for part in post.parts if part.type == _RUN), "")
