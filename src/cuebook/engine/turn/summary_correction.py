"""Background job that applies manual memory corrections to a conversation: replace its summary and items.

A conversation is due while a correction is newer than its current summary. No model is called; the next summarization
pass uses the corrected text.
"""

import asyncio
import logging
from collections.abc import Sequence

from msgspec.structs import replace

from cuebook.engine.core.desk import Desk
from cuebook.engine.core.time_zones import zone_of
from cuebook.errors import CuebookError, NotFound
from cuebook.interfaces.memories import Corrected, Correcting
from cuebook.memory.corrections import corrected, says, unquoted
from cuebook.memory.profiles import choose
from cuebook.memory.schema import compact
from cuebook.memory.summary import write
from cuebook.memory.supersede import unmarked
from cuebook.records.memory import Item, Scope, Summary

log = logging.getLogger("cuebook.correct")

#: Retries after a concurrent summarization pass.
RETRIES = 20


async def correct_due(desk: Desk) -> None:
    """Apply due corrections. A failed conversation is retried next time and does not block the others."""
    for tenant, conversation in await desk.store.memories.corrections.due():
        try:
            await correct_summary(desk, Scope(tenant), conversation)
        except CuebookError as error:
            log.warning(
                "Correcting the summary failed for conversation %s: %s", conversation, desk.writer.clean(str(error))
            )


async def due(desk: Desk) -> int:
    """Count conversations with a summary to correct."""
    return len(await desk.store.memories.corrections.due())


async def correct_summary(desk: Desk, scope: Scope, conversation: str, *, upto: int | None = None) -> None:
    """Apply all corrections to the summary that ends at a post, by default the current one."""
    store = desk.store.memories.corrections
    for _ in range(RETRIES):
        try:
            read = await store.read(scope, conversation, upto=upto)
        except NotFound:
            return  # erased
        if read is None:
            return
        desk.failpoint("correct.read")
        if await store.save(scope, await asyncio.to_thread(_made, desk, read)):
            desk.stirred()
            return


def _made(desk: Desk, read: Correcting) -> Corrected:
    """Return the corrected summary. A correct one stays unchanged and is marked as checked."""
    before, now = read.summary, desk.clock.now()
    fresh = [each for each in read.corrections if each.no > before.corrected]
    items = unmarked(corrected(read.items, read.corrections, since=before.corrected))
    stays = {each.id for each in items}
    gone = [each for each in read.items if each.id not in stays]
    added = tuple(each for each in items if each not in read.items)
    summary = replace(before, corrected=read.corrections[-1].no, created_at=now)
    lines = f"{before.markdown}\n{before.tainted}\n{compact(before.memory_json)}".split("\n")
    if added or gone or any(says(line, each) for line in lines for each in fresh):
        summary = _written(desk, read, items, summary)
    return Corrected(
        read=read,
        summary=summary,
        added=added,
        gone=tuple(replace(each, text="", subject="", name="", valid_to=each.valid_to or now) for each in gone),
        now=now,
        sinks=desk.sinks,
    )


def _written(desk: Desk, read: Correcting, items: Sequence[Item], summary: Summary) -> Summary:
    previous = unquoted(summary.markdown, read.corrections)
    digest = write(
        items,
        previous="",
        max_tokens=choose(desk.compaction, summary.profile).max_summary_tokens,
        count=desk.count,
        zone=zone_of(None, read.conversation, desk.zone),
    )
    markdown = digest.markdown or previous
    tokens = desk.count(markdown) + desk.count(compact(digest.memory_json))
    made = replace(summary, markdown=markdown, memory_json=digest.memory_json, tainted=digest.tainted, tokens=tokens)
    return replace(made, made_by="quotes", prompt="")
