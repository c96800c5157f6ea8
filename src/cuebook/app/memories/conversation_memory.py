"""The memory of conversations: search, items, summary, compression and forgetting."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import tzinfo

import msgspec
from msgspec import Struct

from cuebook.app.check_arguments import MOST_HITS, check_search
from cuebook.app.forgetting import Receipts, forget, target_of, would_forget
from cuebook.app.memories import Memories
from cuebook.app.paging import LIMIT, ItemsAt, Paged, check_limit, read_cursor, write_cursor
from cuebook.app.reports.memory_use import TURNS, MeasureCost, Utilities, cost_of, leave_one_out, reason_of
from cuebook.app.reports.prices import load_prices
from cuebook.app.turns.analysis import MemoryAnalysis
from cuebook.config import Config
from cuebook.engine.core.conversation_items import items_at_head, line_of
from cuebook.engine.core.query_vector import sense
from cuebook.engine.core.recall import rank_found
from cuebook.engine.core.services import Services
from cuebook.engine.core.time_zones import zone_of
from cuebook.engine.jobs.delivery import deliver
from cuebook.errors import NotFound
from cuebook.interfaces.store import SearchLook
from cuebook.memory.compress import compress, compress_batch
from cuebook.memory.excerpt import excerpt, pack
from cuebook.memory.quotes import LISTED
from cuebook.memory.recall import Query, read_query
from cuebook.records.erasure import Receipt, WouldForget
from cuebook.records.memory import Hit, Item, Scope, Summary

#: A longer post is shown as its best excerpt (on assistant chats: 77 -> 91 % of evidence within 1000 tokens).
QUOTE_TOKENS = 120
#: Number of posts after the last summary that are analyzed when items are listed: one pass.
UNREAD = 48
#: Longer texts, in characters, are compressed in a thread so that streams do not wait.
LARGE = 20_000


class CompressedText(Struct, frozen=True, kw_only=True):
    """A shortened text and the tokens it saved."""

    text: str
    tokens_before: int
    tokens_after: int


class ConversationMemory(MemoryAnalysis):
    """The memory of a project's conversations."""

    def __init__(self, services: Services, config: Config) -> None:
        self._services = services
        self._config = config

    async def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        user: str | None = None,
        persona: str | None = None,
        organization: str | None = None,
        scopes: Sequence[str] | None = None,
        as_of: float | None = None,
        limit: int = 10,
        token_budget: int | None = None,
        time_zone: str | None = None,
    ) -> list[Hit]:
        """Search posts and memories, and return the hits, best first.

        Posts are those of `conversation`, else of all the user's. Memories are the valid ones of the user,
        their personas and `organization`. With `as_of` (Unix seconds), memories are those valid then, and later posts
        are excluded. With `token_budget` (tokens), hits are packed by value per token. New posts are found at once.
        "Yesterday" and the like are days of `time_zone` (an IANA name), else of the conversation's zone.
        """
        check_search(query, limit, token_budget, scopes)
        zone = await self.zone(conversation=conversation, user=user, time_zone=time_zone)
        dense = await sense(self._services, query)
        known: list[Hit] = []
        if user is not None or organization is not None:
            known = await Memories(self._services).answer(
                read_query(query, now=self._services.clock.now(), zone=zone),
                dense,
                user=user,
                persona=persona,
                organization=organization,
                scopes=scopes,
                as_of=as_of,
                limit=limit,
            )
        place = conversation if scopes is None or "conversation" in scopes else None
        if place is None and scopes is not None and "user" not in scopes:
            return known
        search_look = SearchLook(text=query, dense=dense)
        search_result = await self._services.store.search(Scope(user=user), search_look, conversation=place)
        if as_of is not None:
            post_matches = tuple(each for each in search_result.found if each.created_at <= as_of)
            search_result = msgspec.structs.replace(search_result, found=post_matches)
        speakers = {each.sender for each in search_result.found}
        read = read_query(query, speakers=sorted(speakers), now=self._services.clock.now(), zone=zone)
        most = limit if token_budget is None else MOST_HITS
        hits = rank_found(search_result, read, limit=most)
        hits = [self._quoted(hit, read) for hit in hits]
        if place is None:
            hits = [msgspec.structs.replace(hit, scope="user") for hit in hits]
        if known:  # a memory derived from a post ranks before the post
            hits = sorted([*known, *hits], key=lambda each: -each.score)
        return hits[:limit] if token_budget is None else pack(hits, token_budget)[:limit]

    async def zone(
        self, *, conversation: str | None = None, user: str | None = None, time_zone: str | None = None
    ) -> tzinfo:
        """Return the time zone: the given one, else the conversation's, else the project's."""
        known = None
        if time_zone is None and conversation is not None:
            with suppress(NotFound):
                known = await self._services.store.conversation(Scope(user=user), conversation)
        return zone_of(time_zone, known, self._services.settings.zone)

    def _quoted(self, hit: Hit, query: Query) -> Hit:
        """Replace a long post's text with its best excerpt."""
        if hit.tokens <= QUOTE_TOKENS:
            return hit
        text = excerpt(hit.text, query, QUOTE_TOKENS, self._services.count)
        return msgspec.structs.replace(hit, text=text, tokens=self._services.count(text)) if text else hit

    async def items(
        self, conversation: str, *, user: str | None = None, ended: bool = False, as_of: float | None = None
    ) -> list[Item]:
        """Return a conversation's items at its head; with `ended`, also those that are no longer valid.

        With `as_of` (Unix seconds), those valid at that time, as known now. Posts since the last pass are analyzed too
        (at most the newest UNREAD), so that items need not wait for a pass.
        """
        entries = await items_at_head(self._services, Scope(user=user), conversation)
        entries = [each for each in entries if each.weight >= LISTED]  # the others appear only in the summary
        if as_of is not None:
            return [each for each in entries if each.valid_from <= as_of < (each.valid_to or math.inf)]
        return [item for item in entries if ended or item.valid_to is None]

    async def items_page(
        self,
        conversation: str,
        *,
        user: str | None = None,
        ended: bool = False,
        as_of: float | None = None,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Paged[Item]:
        """Return a page of the items."""
        found = await self._services.store.conversation(Scope(user=user), conversation)
        start = read_cursor(cursor, ItemsAt, no=found.no) if cursor is not None else None
        check_limit(limit)
        items = await self.items(conversation, user=user, ended=ended, as_of=as_of)
        left = [each for each in items if start is None or (each.seq, each.id) > (start.seq, start.id)]
        entries = tuple(left[:limit])
        more = write_cursor(ItemsAt(found.no, entries[-1].seq, entries[-1].id)) if len(left) > limit else None
        return Paged(entries, more)

    async def take_up(self, conversation: str, *, timeout: float = 2.0) -> None:
        """Store a conversation's new facts as long-term memories now, within `timeout` seconds.

        A background job does the rest, as it does without this call. No summary is written.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await deliver(self._services, Scope(), conversation)

    def compress(self, text: str) -> CompressedText:
        """Shorten a text as a full window does: keep the first line, the last line and every fact.

        Return the text unchanged if that is not shorter.
        """
        count = self._services.count
        small = compress(text)
        shorter = small if small is not None and count(small) < count(text) else text
        return CompressedText(text=shorter, tokens_before=count(text), tokens_after=count(shorter))

    async def digest(self, conversation: str, *, user: str | None = None, last: int = 15) -> str:
        """Return a digest of the newest `last` posts in BrowserOS's batch form: actions, results, key facts."""
        posts = await self._services.store.posts(Scope(user=user), conversation, last=last)
        lines = [line_of(post) for post in posts]
        large = sum(len(line.text) for line in lines) > LARGE
        return await asyncio.to_thread(compress_batch, lines) if large else compress_batch(lines)

    async def summary(
        self, conversation: str, *, user: str | None = None, version: int | None = None
    ) -> Summary | None:
        """Return the rolling summary of the head's path, or the given version of it. None if there is none."""
        return await self._services.store.summary(Scope(user=user), conversation, version=version)

    async def forget(
        self,
        *,
        user: str | None = None,
        conversation: str | Sequence[str] | None = None,
        persona: str | None = None,
        organization: str | None = None,
        memories: Sequence[str] = (),
        reason: str = "",
        by: str | None = None,
    ) -> Receipt:
        """Delete one of these with everything derived from it, a user's transcripts included. Return the receipt.

        The receipt is `pending` while another process reads the database file; a background job signs it later. An id
        that is unknown, or not of user `by`, counts as 0. Raises InvalidInput, and Conflict naming a hold.
        """
        target = target_of(
            user=user, conversation=conversation, persona=persona, organization=organization, memories=memories
        )
        return await forget(self._services, target, by=by, reason=reason)

    async def would_forget(
        self,
        *,
        user: str | None = None,
        conversation: str | Sequence[str] | None = None,
        persona: str | None = None,
        organization: str | None = None,
        memories: Sequence[str] = (),
        by: str | None = None,
    ) -> WouldForget:
        """Return what `forget` would delete now, and what would stay.

        Changes nothing, but blocks writes as long as `forget` does. Raises InvalidInput.
        """
        target = target_of(
            user=user, conversation=conversation, persona=persona, organization=organization, memories=memories
        )
        return await would_forget(self._services, target, by=by)

    async def utility(
        self, conversations: Sequence[str] = (), *, user: str | None = None, turns: int = TURNS, budget: int = 0
    ) -> Utilities:
        """Measure how useful each memory was in the turns that included it, in the given conversations or in all.

        Compares words with the answers; with a `budget` (model calls, at least 3) asks the model with and without each
        memory. Measures the last `turns` turns per conversation. Changes nothing. Raises NotFound, InvalidInput.
        """
        return await leave_one_out(self._services, conversations, user=user, turns=turns, budget=budget)

    async def utility_cost(
        self, conversations: Sequence[str] = (), *, user: str | None = None, turns: int = TURNS, budget: int = 0
    ) -> MeasureCost:
        """Return how many model calls `utility` would make with this budget, and their maximum cost; make none.

        Raises NotFound, and InvalidInput, also for an unreadable price file of the project.
        """
        prices = await asyncio.to_thread(load_prices, self._config)
        return await cost_of(self._services, prices, conversations, user=user, turns=turns, budget=budget)

    async def prune(self, found: Utilities, *, user: str | None = None) -> Receipt | None:
        """Delete the memories that `utility` proposes to drop. Return the receipt, None if there are none."""
        gone = [each.memory.id for each in found.items if each.prunes]
        if not gone:
            return None
        receipt = await self.forget(memories=gone, reason=reason_of(found), by=user)
        if receipt.state == "pending":
            receipts = Receipts(self._services)
            await receipts.finish()
            receipt = await receipts.get(receipt.id)
        return receipt
