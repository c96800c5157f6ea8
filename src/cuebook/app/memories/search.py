"""The memory of conversations: search, items, summary, compression and forgetting."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import partial
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.arguments import (
    OWNER,
    AsOf,
    CallerOf,
    Conversation,
    Cursor,
    Ended,
    MaybePageSize,
    OnlyConversation,
    Organization,
    Persona,
    Text,
    TimeZone,
    Tokens,
    User,
)
from cuebook.app.forgetting import Forgetting
from cuebook.app.memories.files import MemoryFiles
from cuebook.app.memories.personal import PersonalData
from cuebook.app.memories.reading import may_know
from cuebook.app.namespace import zone_of
from cuebook.app.paging import LIMIT, read_cursor, write_cursor
from cuebook.app.reports.memory_use import LOOKED_AT, MOST_TURNS, TURNS, Measure, MemoryUsefulness
from cuebook.app.reports.prices import load_prices
from cuebook.config import Config
from cuebook.engine.core.conversation_items import items_at_head, line_of
from cuebook.engine.core.recall import embed_query, memory_store
from cuebook.engine.core.recall_model import CANDIDATES, search_with_model
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.delivery import deliver
from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.interfaces.store import SearchLook
from cuebook.memory.compress import compress, compress_batch, without_accounts
from cuebook.memory.excerpt import pack
from cuebook.memory.query import dated, read_query
from cuebook.memory.quotes import LISTED
from cuebook.memory.recall_results import MIN_SHARE, rank_found
from cuebook.memory.scopes import SCOPES
from cuebook.operations import Argument, operation
from cuebook.records.answer import Answer, Page
from cuebook.records.erasure import Receipt
from cuebook.records.key import Caller
from cuebook.records.memory import Dense, Hit, Item, Scope
from cuebook.records.memory_answers import ItemEntry, StoredMemory, item_entry, stored_memory
from cuebook.validate import check_known, refuse

#: Number of posts after the last summary that are analyzed when items are listed: one pass.
UNREAD = 48
#: Maximum number of hits per search.
MOST_HITS = 200
#: Hits of a search for memories to forget, and memories that it returns.
MATCHES, FORGETTABLE = 20, 10
#: Maximum number of memories per `forget_known`.
MOST_IDS = 100
#: Longer texts, in characters, are compressed in a thread so that streams do not wait.
LARGE = 20_000


def in_order(memories: Sequence[Hit], posts: Sequence[Hit]) -> Sequence[Hit]:
    """Merge memories and posts, best first. A memory is placed before its post, which is among its versions, and an
    earlier version behind the memory before it, which is the newest.
    """
    at_post = {(post.conversation, each): at for at, post in reversed([*enumerate(posts)]) for each in post.sources}
    ordered = [(-post.score, at, 1, post) for at, post in enumerate(posts)]
    before = (-1.0, 0)
    for hit in memories:
        at = min((at_post[key] for each in hit.sources if (key := (hit.conversation, each)) in at_post), default=-1)
        place = (-hit.score if at < 0 else -posts[at].score, at)
        before = place if hit.newer is None else max(place, before)
        ordered.append((*before, 0, replace(hit, score=-before[0])))
    return [hit for *_, hit in sorted(ordered, key=lambda each: each[:3])]


class CompressedText(Answer, frozen=True, kw_only=True):
    """A shortened text, and its tokens before and after."""

    text: str
    tokens_before: int
    tokens_after: int

    def __str__(self) -> str:
        return self.text


class Memories(MemoryFiles, PersonalData, Forgetting):
    """The memory of a project: search, memories across conversations, knowledge, items and summaries, forgetting."""

    def __init__(self, services: Services, config: Config) -> None:
        super().__init__(services)
        self._config = config

    @operation(
        "POST /api/memories/search",
        role="viewer",
        cli="memory search",
        wrap="hits",
        examples=(
            'cuebook memory search "when does the lease end"',
            "cuebook memory search budget --user ann --scope user",
        ),
    )
    async def search(
        self,
        query: Annotated[str, Meta(description="Question or keywords.")],
        *,
        conversation: OnlyConversation = None,
        user: User = None,
        persona: Persona = None,
        organization: Organization = None,
        scopes: Annotated[
            Sequence[str] | None,
            Meta(description="Search only this scope: conversation, user, persona, organization; repeatable."),
            Argument(flag="scope", metavar="S"),
        ] = None,
        as_of: AsOf = None,
        limit: Annotated[int, Meta(ge=1, le=MOST_HITS, description="Show at most N results.")] = 10,
        min_share: Annotated[
            float,
            Meta(
                ge=0,
                le=1,
                description="Omit results under this share of the best score; 0 also shows matches by chance.",
            ),
        ] = MIN_SHARE,
        token_budget: Tokens = None,
        time_zone: TimeZone = None,
    ) -> Sequence[Hit]:
        """Search messages and memories, best match first. A token budget selects the most value per token.

        The search covers one conversation, or all of the user, and the valid memories of the user, their personas, the
        organization and the project. Memories that match the query by chance are omitted, unless `min_share` is 0. A
        time excludes later posts and memories that were not valid then. New posts are found at once.
        """
        refuse(check_known("scope", (("scopes", each) for each in scopes or ()), SCOPES))
        zone = await zone_of(self._services, conversation, user=user, time_zone=time_zone)
        most = limit if token_budget is None else MOST_HITS
        search = partial(
            self._found,
            conversation=conversation,
            user=user,
            persona=persona,
            organization=organization,
            scopes=scopes,
            as_of=as_of,
            limit=limit,
            most=most if self._services.recall_model is None else max(most, CANDIDATES),
            min_share=min_share,
            zone=zone,
        )
        services = self._services
        kind, owner = ("user", user) if user else ("conversation", conversation) if conversation else ("project", "")
        text, store = services.writer.clean(query), memory_store(services, kind, owner)
        with services.tracing.memory("search_memory", store=store, gen_ai__memory__query__text=text) as span:
            hits = await search_with_model(services, query, search, conversation=conversation or "")
            span.set(gen_ai__memory__record__count=len(hits))
        hits = [replace(hit, day=datetime.fromtimestamp(hit.timestamp, zone).date().isoformat()) for hit in hits]
        return hits[:limit] if token_budget is None else pack(hits, token_budget)[:limit]

    async def _found(
        self,
        query: str,
        *,
        conversation: str | None,
        user: str | None,
        persona: str | None,
        organization: str | None,
        scopes: Sequence[str] | None,
        as_of: float | None,
        limit: int,
        most: int,
        min_share: float,
        zone: tzinfo,
    ) -> Sequence[Hit]:
        """Return the memories and posts that match a query, best first, without a model."""
        dense = await embed_query(self._services, query)
        now = self._services.clock.now() if as_of is None else as_of
        known: Sequence[Hit] = ()
        if user is not None or organization is not None or conversation is None or scopes is None:
            known = await self._matching(
                read_query(query, now=now, zone=zone),
                dense,
                user=user,
                persona=persona,
                organization=organization,
                scopes=scopes,
                as_of=as_of,
                limit=limit,
                relevant=min_share > 0,
            )
        posts: Sequence[Hit] = ()
        place = conversation if scopes is None or "conversation" in scopes else None
        if place is not None or scopes is None or "user" in scopes:
            posts = await self._posts(
                query, dense, place, user=user, as_of=as_of, zone=zone, most=most, least=min_share
            )
        hits = in_order(known, posts)
        best = max((hit.score for hit in hits), default=0.0)
        return [hit for hit in hits if hit.score >= min_share * best]

    async def _posts(
        self,
        query: str,
        dense: Dense | None,
        conversation: str | None,
        *,
        user: str | None,
        as_of: float | None,
        zone: tzinfo,
        most: int,
        least: float,
    ) -> Sequence[Hit]:
        """Return the posts of a conversation, or of all of a user, that match a query, best first."""
        now = self._services.clock.now() if as_of is None else as_of
        text = dated(query, now=now, zone=zone)
        result = await self._services.store.search(
            Scope(user=user), SearchLook(text=text, dense=dense, until=as_of), conversation=conversation
        )
        if as_of is not None:
            result = replace(result, found=tuple(each for each in result.found if each.created_at <= as_of))
        speakers = {*result.speakers, *(each.sender for each in result.found)}
        read = read_query(text, speakers=sorted(speakers), now=now, zone=zone)
        hits = rank_found(result, read, limit=most, min_share=least, count=self._services.count)
        return hits if conversation is not None else [replace(hit, scope="user") for hit in hits]

    @operation("GET /api/conversations/{conversation}/items", role="viewer")
    async def items(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        ended: Ended = False,
        as_of: AsOf = None,
        limit: MaybePageSize = None,
        cursor: Cursor = None,
    ) -> Page[ItemEntry]:
        """Return a conversation's items at its head, oldest first; `ended` includes those that are no longer valid.

        Posts since the last pass are analyzed too (at most the newest 48), so that items need not wait for a pass.
        Returns all, or with `limit` or `cursor` a page.
        """
        scope = Scope(user=user)
        found = await self._services.store.conversation(scope, conversation)
        entries = await listed_items(self._services, scope, conversation, ended=ended, as_of=as_of)
        start = read_cursor(cursor, "items", no=found.no) if cursor is not None else (0, "")
        left = [each for each in entries if (each.seq, each.id) > start]
        most = len(left) if limit is None and cursor is None else limit or LIMIT
        items = left[:most]
        more = write_cursor("items", items[-1].seq, items[-1].id, no=found.no) if len(left) > most else None
        return Page(items=tuple(item_entry(each, conversation) for each in items), next=more)

    async def take_up(self, conversation: str, *, timeout: float = 2.0) -> None:
        """Store a conversation's new facts as long-term memories now, within `timeout` seconds.

        A background job does the rest, as it does without this call. No summary is written.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await deliver(self._services, Scope(), conversation)

    @operation(
        "POST /learning/memory/compress",
        role="viewer",
        cli="memory compress",
        examples=("cuebook memory compress < long.txt", "cuebook memory compress --json < long.txt"),
    )
    async def compress(
        self,
        text: Annotated[
            str,
            Meta(description="Text to shorten."),
            Argument(metavar="TEXT|-"),
        ],
    ) -> CompressedText:
        """Shorten a text to its first line, last line and facts. A text that cannot shrink is unchanged."""
        return await asyncio.to_thread(self._compressed, text) if len(text) > LARGE else self._compressed(text)

    def _compressed(self, text: str) -> CompressedText:
        count = self._services.count
        small = compress(text)
        shorter = small if small is not None and count(small) < count(text) else without_accounts(text)
        return CompressedText(text=shorter, tokens_before=count(text), tokens_after=count(shorter))

    @operation(
        "POST /learning/memory/digest",
        role="viewer",
        cli="memory digest",
        wrap="text",
        examples=("cuebook memory digest c1", "cuebook memory digest c1 --last 40"),
    )
    async def digest(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        last: Annotated[int, Meta(ge=1, le=1000, description="Number of posts.")] = 15,
    ) -> str:
        """Summarize the newest posts in BrowserOS's batch form: actions, results, key facts."""
        posts = await self._services.store.posts(Scope(user=user), conversation, last=last)
        lines = [line_of(post) for post in posts]
        large = sum(len(line.text) for line in lines) > LARGE
        return await asyncio.to_thread(compress_batch, lines) if large else compress_batch(lines)

    async def utility(
        self,
        conversations: Sequence[str] = (),
        *,
        user: str | None = None,
        turns: int = TURNS,
        budget: int = 0,
        estimate: bool = False,
        caller: Caller = OWNER,
    ) -> MemoryUsefulness:
        """Measure how useful each memory was in the turns that included it, in the given conversations or in all.

        Compares words with the answers; with a `budget` (model calls, at least 3) asks the model with and without each
        memory. Measures the last `turns` turns per conversation. Changes nothing. With `estimate` it only counts the
        calls and their maximum cost. Raises NotFound, InvalidInput.
        """
        prices = await asyncio.to_thread(load_prices, self._config) if estimate else None
        measure = Measure(self._services, Scope(user=user), budget, is_dry=estimate)
        await measure.take_all(conversations, turns)
        return await measure.report(partial(may_know, caller)) if prices is None else measure.estimate(prices)

    @operation("POST /api/memories/utility", role="editor", heavy="memory measurements")
    async def usefulness(
        self,
        *,
        conversation_ids: Annotated[
            tuple[Text, ...], Meta(max_length=LOOKED_AT, description="Use only these conversations.")
        ] = (),
        turns: Annotated[int, Meta(ge=1, le=MOST_TURNS, description="Last turns per conversation.")] = TURNS,
        budget: Annotated[
            int,
            Meta(
                ge=0,
                le=1_000_000,
                description="Maximum calls of the configured model, with and without each memory, up to "
                "`server.max_calls`. 0 calls no model and compares the words of recorded answers.",
            ),
        ] = 0,
        estimate: Annotated[bool, Meta(description="Return the cost without calls.")] = False,
        user: User = None,
        caller: CallerOf = OWNER,
    ) -> MemoryUsefulness:
        """Measure the usefulness of each memory, and propose which to forget. Changes nothing.

        `POST /api/memories/forget` with their ids deletes them. One measurement at a time: 429 if several wait. Raises
        InvalidInput, NotFound and Busy.
        """
        most = self._config.settings.server.max_calls
        if budget > most:
            msg = f"budget: {budget:,} calls exceed server.max_calls ({most:,}). Use fewer, or raise it."
            raise InvalidInput(msg, where="budget")
        return await self.utility(
            conversation_ids, user=user, turns=turns, budget=budget, estimate=estimate, caller=caller
        )

    async def forgettable(
        self, query: str, *, conversation: str | None = None, user: str | None = None
    ) -> Sequence[StoredMemory]:
        """Return the memories that match a query and that the caller may forget, best first.

        These are memories of the user and items of conversations; a matching post yields the items derived from it.
        """
        memories: dict[str, StoredMemory] = {}
        for hit in await self.search(query, conversation=conversation, user=user, limit=MATCHES):
            with suppress(NotFound):  # it was deleted meanwhile
                names = [hit.memory_id]
                if hit.kind == "post":
                    items = await self.items(hit.conversation or "", user=user)
                    names = [item.memory_id for item in items if set(item.sources) & set(hit.alone.sources)]
                for name in names:
                    with suppress(Denied):
                        memory = await self._own(name, user=user, organization=None)
                        memories.setdefault(memory.id, stored_memory(memory))
        return list(memories.values())[:FORGETTABLE]

    async def forget_known(self, ids: Sequence[str], *, user: str | None = None, reason: str = "") -> Receipt:
        """Delete memories by id, all or none, with everything derived from them. Return the receipt.

        Raises InvalidInput, NotFound naming the unknown id, Conflict naming a hold, and, if `user` is given, Denied for
        memories of the project or of another user.
        """
        if not 1 <= len(ids) <= MOST_IDS:
            msg = f"ids: {len(ids)} memories. Provide 1 to {MOST_IDS}."
            raise InvalidInput(msg, where="ids")
        memories = [await self._own(each, user=user, organization=None) for each in ids]
        return await self.forget(memories=[each.id for each in memories], reason=reason, by=user)

    async def prune(self, found: MemoryUsefulness, *, user: str | None = None) -> Receipt | None:
        """Delete the memories that `utility` proposes to drop. Return the receipt, None if there are none."""
        gone = [each.memory_id for each in found.items if each.prune]
        if not gone:
            return None
        reason = f"not useful in the turns that included it (leave one out, by {found.by})"
        receipt = await self.forget(memories=gone, reason=reason, by=user)
        if receipt.state == "pending":
            await self.finish_receipts()
            receipt = await self.receipt(receipt.id)
        return receipt


async def listed_items(
    services: Services, scope: Scope, conversation: str, *, ended: bool = False, as_of: float | None = None
) -> list[Item]:
    """Return the items of a conversation that lists show: the current ones, all, or those valid at a time."""
    entries = await items_at_head(services, scope, conversation)
    entries = [each for each in entries if each.weight >= LISTED]  # the others appear only in the summary
    if as_of is not None:
        return [each for each in entries if each.valid_from <= as_of < (each.valid_to or math.inf)]
    return [each for each in entries if ended or each.valid_to is None]
