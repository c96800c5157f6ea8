"""The OpenAI Conversations API on top of ordinary conversations: create, add items, list and delete."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from cuebook.app.namespace import Namespace, append
from cuebook.engine.core.drafts import dated
from cuebook.engine.jobs.erasure import forget
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import Batch
from cuebook.records.conversation import Conversation, Draft, Post
from cuebook.records.erasure import Target
from cuebook.records.memory import Scope
from cuebook.wire.chat_messages import read_message
from cuebook.wire.responses_answers import (
    ATTACHED,
    conversation_id,
    items_of,
    may_be_ours,
    read_attached,
    read_item_id,
)
from cuebook.wire.responses_items import read_items

Order = Literal["asc", "desc"]
#: Maximum items per request, and default page size (OpenAI's).
MOST_ITEMS: Final = 20
LIMIT: Final = 20
#: Seconds between items of one request, so that sorting by time keeps their order.
_TICK_S: Final = 0.001
_encode = msgspec.json.Encoder().encode


class OpenAIConversations(Namespace):
    """Conversations as OpenAI clients see them. `user` is the caller; None is the project's owner."""

    async def has(self, conversation: str, *, user: str | None = None) -> bool:
        """Return whether a conversation belongs to this project: it exists, or its id shows that it existed."""
        if may_be_ours(conversation):
            return True
        with suppress(NotFound):
            await self._services.store.conversation(Scope(user=user), conversation)
            return True
        return False

    async def create(
        self, items: Any = None, metadata: Any = None, *, user: str | None = None, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Create a conversation, with items if given. Raises InvalidInput naming the field, KeyReused."""
        attached = self._cleaned(metadata)
        drafts = self._drafts(items or [], user=user, owner=user)
        seed = f"{user}\x00{idempotency_key}" if idempotency_key else self._services.dice.new_id("conv")
        name = conversation_id(self._services.settings.request_digest(seed.encode()))
        batch = Batch(conversation=name, drafts=drafts, now=self._services.clock.now(), metadata={ATTACHED: attached})

        async def work() -> dict[str, Any]:
            await append(self._services, Scope(user=user), batch)
            return await self.get(name, user=user)

        return await self._run_once(idempotency_key, ["conversations", items, metadata], dict, work, user=user)

    async def get(self, conversation: str, *, user: str | None = None) -> dict[str, Any]:
        """Return a conversation with its client's metadata. Raises NotFound."""
        return _shape(await self._services.store.conversation(Scope(user=user), conversation))

    async def attach(self, conversation: str, metadata: Any, *, user: str | None = None) -> dict[str, Any]:
        """Replace the client's metadata. Raises InvalidInput naming the field, NotFound."""
        attached = self._cleaned(metadata)
        now, metadata = self._services.clock.now(), {ATTACHED: attached}
        batch = Batch(conversation=conversation, drafts=(), now=now, metadata=metadata, begins=False)
        await self._services.store.append(Scope(user=user), batch)
        return await self.get(conversation, user=user)

    async def add(
        self, conversation: str, items: Any, *, user: str | None = None, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Append items, and return them as stored.

        Items that repeat the newest turn are not stored twice: clients that manage items themselves also add the
        answers to their own calls.

        Raises InvalidInput naming the item, NotFound, KeyReused.
        """
        scope = Scope(user=user)
        stored = await self._services.store.conversation(scope, conversation)
        drafts = self._drafts(items, user=user, owner=stored.user)
        if not drafts:
            msg = "items: empty. Send at least one."
            raise InvalidInput(msg, where="items")

        async def work() -> dict[str, Any]:
            posts = await self._repeated_posts(scope, stored, drafts)
            new = dated(drafts[len(posts) :], self._services.settings.zone_of(None, stored))
            batch = Batch(conversation=conversation, drafts=new, now=self._services.clock.now(), begins=False)
            appended = await append(self._services, scope, batch)
            posts += await self._services.store.posts(
                scope, conversation, after=appended.last_seq - appended.stored, limit=appended.stored, path=False
            )
            return _page([item async for item in self._items(scope, stored, posts)], more=False)

        return await self._run_once(idempotency_key, ["items", conversation, items], dict, work, user=user)

    async def _repeated_posts(self, scope: Scope, conversation: Conversation, drafts: Sequence[Draft]) -> list[Post]:
        """Return the posts at the head that the first drafts repeat, starting with a turn's answer."""
        if not conversation.head:
            return []
        path = await self._services.store.posts(scope, conversation.id, last=len(drafts), head=conversation.head)
        for many in range(len(path), 0, -1):
            tail = path[-many:]
            if [post.digest for post in tail] == [draft.digest for draft in drafts[:many]]:
                answers = await self._services.store.talks.answers(scope, conversation.id, [tail[0].round])
                return tail if tail[0].seq in answers else []
        return []

    async def items(
        self,
        conversation: str,
        *,
        user: str | None = None,
        order: Order = "desc",
        after: str | None = None,
        limit: int = LIMIT,
    ) -> dict[str, Any]:
        """Return a page of the items on the head's path, newest first by default; `after` is an item's id.

        Raises NotFound, also for an unknown item.
        """
        scope = Scope(user=user)
        stored = await self._services.store.conversation(scope, conversation)
        return await self.page(scope, stored, stored.head, order=order, after=after, limit=limit)

    async def page(
        self, scope: Scope, stored: Conversation, head: int, *, order: Order, after: str | None, limit: int
    ) -> dict[str, Any]:
        """Return a page of the items on the path that ends at a post. Raises NotFound."""
        start = await self._seq(scope, stored, after) if after else 0
        listed: list[dict[str, Any]] = []
        behind = not after
        async for item in self._walk(scope, stored, head, start, order=order, many=limit + 1):
            if behind:
                listed.append(item)
            behind = behind or item["id"] == after
            if len(listed) > limit:
                break
        if after and not behind:
            raise no_item(after)
        return _page(listed[:limit], more=len(listed) > limit)

    async def item(self, conversation: str, item: str, *, user: str | None = None) -> dict[str, Any]:
        """Return an item by its id. Raises NotFound."""
        scope = Scope(user=user)
        stored = await self._services.store.conversation(scope, conversation)
        seq = await self._seq(scope, stored, item)
        posts = await self._services.store.posts(scope, conversation, after=seq - 1, limit=1, path=False)
        async for each in self._items(scope, stored, posts):
            if each["id"] == item:
                return each
        raise no_item(item)

    async def erase(self, conversation: str, item: str, *, user: str | None = None) -> dict[str, Any]:
        """Delete an item with its message and everything derived from it. Return the conversation as `get` does.

        A call is deleted with its outputs, an output with its call. Raises NotFound, Conflict naming a hold.
        """
        scope = Scope(user=user)
        stored = await self._services.store.conversation(scope, conversation)
        await self.item(conversation, item, user=user)
        posts = {conversation: (await self._seq(scope, stored, item),)}
        await forget(self._services, scope, Target("item", (item,)), posts=posts)
        return await self.get(conversation, user=user)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def _cleaned(self, metadata: Any) -> dict[str, str]:
        return {name: self._services.writer.clean(value) for name, value in read_attached(metadata).items()}

    def _drafts(self, items: Any, *, user: str | None, owner: str | None) -> tuple[Draft, ...]:
        if not isinstance(items, list) or len(items) > MOST_ITEMS:
            msg = f"items: expected a list of at most {MOST_ITEMS} items. Send more in another request."
            raise InvalidInput(msg, where="items")
        services, now = self._services, self._services.clock.now()
        return tuple(
            services.writer.message(
                raw := _encode(message), read_message(raw, index=number),
                id=services.dice.new_id("post"), user=user, now=now + number * _TICK_S, owner=owner,
            )
            for number, message in enumerate(read_items(items, "items"))
        )  # fmt: skip

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def _seq(self, scope: Scope, conversation: Conversation, item: str) -> int:
        """Return the seq of an item's post."""
        id_ = read_item_id(item)
        if id_ is not None and id_.conversation == conversation.id:
            if not id_.step:
                return id_.number
            with suppress(NotFound, IndexError):
                turn = await self._services.store.turn(scope, id_.conversation, id_.number)
                return turn.steps[id_.step - 1].reply_seq
        raise no_item(item)

    async def _walk(
        self, scope: Scope, conversation: Conversation, head: int, start: int, *, order: Order, many: int
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of a path from a post on, 0 for its end; load `many` posts at a time."""
        store, at = self._services.store, start
        while True:
            if order == "asc":
                posts = await store.posts(scope, conversation.id, after=max(at - 1, 0), limit=many, head=head)
                at = posts[-1].seq + 1 if posts else 0
            else:
                end = at or head
                posts = (await store.posts(scope, conversation.id, last=many, head=end))[::-1] if end else []
                at = posts[-1].parent if posts else 0
            async for item in self._items(scope, conversation, posts, newest_first=order == "desc"):
                yield item
            if len(posts) < many or not at:
                return

    async def _items(
        self, scope: Scope, conversation: Conversation, posts: Sequence[Post], *, newest_first: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        values = sorted({post.round for post in posts if post.role == "assistant"})
        answers: Mapping[int, tuple[int, int]] = (
            await self._services.store.talks.answers(scope, conversation.id, values) if values else {}
        )
        for post in posts:
            items = items_of(post, conversation=conversation.id, user=conversation.user, answer=answers.get(post.seq))
            for item in reversed(items) if newest_first else items:
                yield item


def no_item(item: str) -> NotFound:
    """Return the same error for an unknown item and for one of another conversation."""
    return NotFound(f"Unknown item {item!r} in this conversation.")


def _shape(conversation: Conversation) -> dict[str, Any]:
    attached = conversation.metadata.get(ATTACHED)
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": attached if isinstance(attached, dict) else {},
    }


def _page(items: list[dict[str, Any]], *, more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": more,
    }
