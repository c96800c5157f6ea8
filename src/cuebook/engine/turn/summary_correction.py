"""Apply manual memory corrections to a conversation: replace its summary and items.

No model is called; the next summarization pass uses the corrected text.
"""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.errors import NotFound
from cuebook.interfaces.memories import CorrectionInput
from cuebook.memory.corrections import corrected, says, unquoted
from cuebook.memory.rolling import choose
from cuebook.memory.schema import compact
from cuebook.memory.summary import write
from cuebook.memory.supersede import unmarked
from cuebook.records.memory import Item, Scope, Summary

#: Retries after a concurrent summarization pass.
RETRIES = 20


async def correct_summary(services: Services, scope: Scope, conversation: str, *, upto: int | None = None) -> bool:
    """Apply all corrections to the summary that ends at a post, by default the current one.

    Return whether a corrected summary was stored.
    """
    store = services.store.memories.corrections
    for _ in range(RETRIES):
        try:
            correcting = await store.read(scope, conversation, upto=upto)
        except NotFound:
            return False  # erased
        if correcting is None:
            return False
        services.failpoint("correct.read")
        summary, items = await asyncio.to_thread(_made, services, correcting)
        if await store.save(scope, correcting, summary, items, sinks=tuple(services.sinks)):
            services.notify_jobs()
            return True
    return False


def _made(services: Services, correcting: CorrectionInput) -> tuple[Summary, list[Item]]:
    """Return the corrected summary and the changed items. A correct one stays unchanged and is marked as checked."""
    before, now = correcting.summary, services.clock.now()
    fresh = [each for each in correcting.corrections if each.no > before.corrected]
    items = unmarked(corrected(correcting.items, correcting.corrections, since=before.corrected))
    stays = {each.id for each in items}
    entries = [each for each in correcting.items if each.id not in stays]
    added = [each for each in items if each not in correcting.items]
    summary = replace(before, corrected=correcting.corrections[-1].no, created_at=now)
    lines = f"{before.markdown}\n{before.tainted}\n{compact(before.memory_json)}".split("\n")
    if added or entries or any(says(line, each) for line in lines for each in fresh):
        summary = _written(services, correcting, items, summary)
    gone = [replace(each, text="", subject="", name="", valid_to=each.valid_to or now) for each in entries]
    return summary, [*gone, *added]


def _written(services: Services, correcting: CorrectionInput, items: Sequence[Item], summary: Summary) -> Summary:
    previous = unquoted(summary.markdown, correcting.corrections)
    digest = write(
        items,
        previous="",
        max_tokens=choose(services.settings.compaction, summary.profile).max_summary_tokens,
        count=services.count,
        zone=services.settings.zone_of(None, correcting.conversation),
    )
    markdown = digest.markdown or previous
    tokens = services.count(markdown) + services.count(compact(digest.memory_json))
    made = replace(summary, markdown=markdown, memory_json=digest.memory_json, tainted=digest.tainted, tokens=tokens)
    return replace(made, made_by="quotes", prompt="")
