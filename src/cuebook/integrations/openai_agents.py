"""OpenAI Agents SDK: a session is a conversation, so that its items are summarized, searched and remembered."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agents.items import TResponseInputItem
from agents.memory.session import OpenAIResponsesCompactionArgs, SessionABC
from agents.memory.session_settings import SessionSettings, resolve_session_limit

from cuebook.app.cuebook import Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.errors import NotFound
from cuebook.integrations.connection import Connection, Where, conversation_id, posts_of, readable
from cuebook.records.conversation import Part, Role
from cuebook.records.conversation_answers import PostEntry, SummaryState

#: The part of a post that has an item as the SDK stored it.
_ITEM = "openai_item"
#: The role of a post by the role or the type of its item; other items are the assistant's.
_ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "system", "function_call_output": "tool"}


class CuebookSession(Connection, SessionABC):
    """A session of the SDK: `Runner.run(agent, text, session=CuebookSession("trip", "my-project"))`.

    `where` is a project (see `Connection`); `user` owns the conversation, and is part of its id. Secrets in items are
    redacted.
    """

    def __init__(
        self,
        session_id: str,
        where: Where = None,
        *,
        user: str | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        super().__init__(where)
        self.session_id, self._user = session_id, user
        self._conversation = conversation_id("openai_agents", user or "", session_id)
        self.session_settings = session_settings or SessionSettings()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        most = resolve_session_limit(limit, self.session_settings)
        if most == 0:
            return []
        posts = await self._await(lambda cue: self._posts(cue, last=most if most is None or most > 0 else None))
        return [_item(post) for post in posts]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        if items:
            posts = [_posted(each) for each in items]
            await self._await(lambda cue: cue.append(self._conversation, posts, user=self._user))

    async def pop_item(self) -> TResponseInputItem | None:
        """Return the last item. It stays stored on a side branch of the conversation, unless it is the only one."""
        return await asyncio.shield(self._await(self._pop))

    async def clear_session(self) -> None:
        await self._await(self._clear)

    async def _posts(self, cue: Cuebook, *, last: int | None = None) -> Sequence[PostEntry]:
        return await posts_of(cue, self._conversation, user=self._user, last=last)

    async def _pop(self, cue: Cuebook) -> TResponseInputItem | None:
        posts = await self._posts(cue, last=2)
        if not posts:
            return None
        if len(posts) == 1:
            await self._clear(cue)
        else:
            await cue.conversations.move_head(self._conversation, posts[0].id, user=self._user)
        return _item(posts[-1])

    async def _clear(self, cue: Cuebook) -> None:
        try:
            await cue.conversations.delete(self._conversation, user=self._user)
        except NotFound:
            return


class CuebookCompactingSession(CuebookSession):
    """A session whose older items a rolling summary replaces. The items themselves stay stored and searchable."""

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:  # noqa: ARG002
        """Summarize older items, if enough have come since the last time. The SDK calls it after each run."""
        await self._await(lambda cue: cue.settle(conversation=self._conversation))

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        summary = await self._await(self._summary)
        if summary is None:
            return await super().get_items(limit)
        posts = await self._await(self._posts)
        first: Any = {"role": "developer", "content": summary.markdown}
        items = [first, *(_item(post) for post in posts if post.seq > summary.upto_seq)]
        most = resolve_session_limit(limit, self.session_settings)
        return items if most is None or most < 0 else items[len(items) - most :]

    async def _summary(self, cue: Cuebook) -> SummaryState | None:
        try:
            return await cue.conversations.summary(self._conversation, user=self._user)
        except NotFound:
            return None


def _posted(item: Any) -> Posted:
    """Return an item as a post: its role, its text, and the item itself as a part."""
    role: Role = _ROLES.get(item.get("role") or item.get("type"), "assistant")
    content = item.get("content", item.get("output", ""))
    if isinstance(content, list):
        content = "\n".join(each["text"] for each in content if isinstance(each, dict) and each.get("text"))
    text = content if isinstance(content, str) else json.dumps(content)
    return Posted(sender=role, role=role, message=readable(text), parts=(Part(type=_ITEM, content=json.dumps(item)),))


def _item(post: PostEntry) -> TResponseInputItem:
    """Return the item of a post; other programs' posts have none."""
    stored = next((part.content for part in post.parts if part.type == _ITEM), None)
    item: Any = json.loads(stored) if stored else {"role": post.role, "content": post.message}
    return item
