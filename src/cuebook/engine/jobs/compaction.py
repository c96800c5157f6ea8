"""Background job that summarizes conversations (R1-R5): derive quotes, or ask a model with a response schema.

A conversation is due while enough posts follow its summary. After a failed pass it waits for a cool-down, doubled each
time. A second job applies manual corrections to summaries.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cuebook.engine.core.audit_records import answered, receipt
from cuebook.engine.core.conversation_items import line_of, named_id, own_senders, promoted
from cuebook.engine.core.instructions import (
    BROKEN,
    Instruction,
    background_answer,
    instruct,
    instruction_record,
    name_of,
)
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job, in_turn, of_conversations
from cuebook.engine.turn.scene import correct_summary
from cuebook.errors import BackendError, Conflict, CuebookError, InvalidInput, NotFound
from cuebook.interfaces import ModelRequest
from cuebook.interfaces.store import CompactionInput, CompactionResult, DueConversation
from cuebook.memory.claims import Action, act, items_of, offered
from cuebook.memory.compress import compress_batch
from cuebook.memory.corrections import corrected, untold
from cuebook.memory.quotes import own_words, quotes_of
from cuebook.memory.rolling import (
    LOOKAHEAD,
    STANDARD,
    CompactionProfile,
    backoff_s,
    between_steps,
    choose,
    covered,
    held_together,
    least_backlog,
)
from cuebook.memory.rolling import due as due_for
from cuebook.memory.schema import MEMORY_SCHEMA, MemoryAnswer, compact, parse_answer
from cuebook.memory.summary import write
from cuebook.memory.supersede import Merged, merge, unmarked
from cuebook.memory.tokenizer import day_of, normal
from cuebook.prompts.names import project_of
from cuebook.records.audit import Record
from cuebook.records.conversation import Post, chain
from cuebook.records.memory import CATEGORIES, Item, Line, Scope, Summary
from cuebook.window.budget import allot
from cuebook.window.post_forms import calls_among
from cuebook.window.tokens import Counter, cut

log = logging.getLogger("cuebook.compaction")

#: Name of the summarizer as a recipient in the audit log.
COMPACTOR = "compactor"
#: Variables that its instruction may use, with example values.
VALUES: Mapping[str, Any] = {
    "max_summary_tokens": 900,  # for both outputs together
    "new_turns_count": 12,
    "agent_name": "Assistant",
    "profile_id": "standard",
    "date": "2026-01-31",
}
#: After this many model failures in a row, quotes do the pass, so that memory keeps up.
FAILURES = 3
#: Largest summary as a share of the text that it covers: a summary must shrink its text.
SHRINK = 0.9
#: Result of a pass: a new summary, a summary that would not be smaller than its text, or nothing to do.
Outcome = Literal["stored", "refused", "nothing"]
#: Conversations loaded in one batch; most of them may not be due.
PAGE = 100
_EMPTY: dict[str, Any] = {category: [] for category in CATEGORIES} | {"tags": []}


class Pass(Struct, frozen=True, kw_only=True):
    """One pass: the loaded conversation, and the posts to summarize in at most `most` tokens."""

    source: CompactionInput
    posts: Sequence[Post]
    lines: Sequence[Line]
    profile: CompactionProfile
    most: int = 0
    zone: tzinfo


#: A new summary, and the conversation's items with those of the posts merged in.
Derived = tuple[Summary, Merged]


async def _due(services: Services, query: DueQuery) -> list[DueWork[DueConversation]]:
    """Return conversations with enough posts without a summary, from tenants in turn, most posts first."""
    refused = services.caches.refused_passes
    least = least_backlog(services.settings.compaction)
    results: list[DueWork[DueConversation]] = []
    last: DueConversation | None = None
    while True:  # read all pages: those of one tenant may fill many
        page = await services.store.due(limit=PAGE, least=least, after=last, conversation=query.conversation)
        results += [
            DueWork(each.tenant, f"conversation {each.conversation}", each)
            for each in page
            if refused.get((each.tenant, each.conversation)) != _state(each)
            and _is_due(services, each, hurry=query.hurry)
        ]
        if len(page) < PAGE:
            break
        last = page[-1]
    return in_turn(results)[: query.limit]


def _state(due: DueConversation) -> tuple[int, int, str]:
    return due.mark, due.backlog, due.mode


def _is_due(services: Services, due: DueConversation, *, hurry: bool) -> bool:
    settings, tunes = services.settings, services.config.optimizer.enabled
    window = services.of(due.tenant).caches.windows.get((due.tenant, due.conversation))
    reason = due_for(
        choose(settings.compaction, due.mode or None),
        backlog=due.backlog,
        backlog_tokens=due.backlog_tokens,
        room=(window.room if window else 0) or allot(settings.limits, front=0).posts,
        trigger_ratio=due.trigger if tunes and due.trigger else settings.limits.trigger,
        now=services.clock.now(),
        last_at=due.last_at,
        not_before=due.not_before,
        hurry=hurry,
    )
    return reason == "due"


async def _run(services: Services, scope: Scope, each: DueConversation) -> bool:
    """Run one pass. After an error or a refusal, the conversation waits for a cool-down."""
    profile = choose(services.settings.compaction, each.mode or None)
    until = services.clock.now() + backoff_s(each.failures, profile.cooldown_ms)
    try:
        await correct_summary(services, scope, each.conversation)
        outcome = await compact_once(services, scope, each.conversation, profile)
    except (CuebookError, *BROKEN):
        await services.store.postpone(scope, each.conversation, until=until, failed=True, mark=each.mark)
        raise
    if outcome == "refused":
        services.caches.refused_passes[each.tenant, each.conversation] = _state(each)
        await services.store.postpone(scope, each.conversation, until=until, failed=False, mark=each.mark)
    return outcome == "stored"


COMPACTION = Job(name="compaction", due=_due, run=_run)


async def _correction_due(services: Services, query: DueQuery) -> list[DueWork[str]]:
    return of_conversations(await services.store.due_pairs("corrections_due", limit=query.limit))


CORRECTION = Job(name="correction", due=_correction_due, run=correct_summary)


# ---- One pass -------------------------------------------------------------------------------------------------------


async def compact_once(services: Services, scope: Scope, conversation: str, profile: CompactionProfile) -> Outcome:
    """Run one pass. Raises the model's errors, and InvalidInput for an unusable answer."""
    source = await services.store.compaction(scope, conversation, limit=profile.most + profile.tail + LOOKAHEAD)
    if source is None or source.lags:
        return "nothing"
    services.failpoint("compact.read")
    summarized = next_pass(services, source, profile)
    if summarized is None:
        return "refused"
    posts = summarized.posts
    records: tuple[Record, ...] = ()
    if _asks_model(services, summarized):
        instruction, record = await _instruction(services, summarized)
        try:
            derived, records = await _by_model(services, summarized, instruction, record)
        except (InvalidInput, BackendError) as error:  # the model received it, even if its answer was unusable
            refusal = answered(services, [record], "", context={"outcome": "refused", "reason": str(error)})
            await services.audit.append(source.scope, (record, *refusal))
            raise
    else:
        derived = await services.offload.compute(by_quotes, summarized, services.count, services.clock.now())
    services.failpoint("compact.made")
    summary, (kept, new) = derived
    items = {item.id: item for item in source.items}
    promotions = await promoted(services, scope, conversation, posts, [*kept, *new])
    raised = [item for item in corrected(promotions, source.corrections, news=True) if item.id not in items]
    changed = [item for item in kept if item != items[item.id]]
    stored = _result(
        services, source, summary, items=(*changed, *new, *raised), audit=records, sinks=tuple(services.sinks)
    )
    return "stored" if await services.store.save_summary(scope, stored) else "nothing"


def next_pass(services: Services, source: CompactionInput, profile: CompactionProfile) -> Pass | None:
    """Return the pass over the oldest posts after the mark, or None if no cut between them is allowed."""
    lines = _lines(source)
    end = covered(lines, profile, backlog=source.conversation.backlog, held=_within_calls(source.posts))
    if end == 0:
        return None
    posts = source.posts[:end]
    size = sum(post.tokens for post in posts) + (source.previous.tokens if source.previous else 0)
    most = min(profile.max_summary_tokens, int(size * SHRINK))
    zone = services.settings.zone_of(None, source.conversation)
    return Pass(source=source, posts=posts, lines=lines[:end], profile=profile, most=most, zone=zone)


def _lines(source: CompactionInput) -> list[Line]:
    own = own_senders(source.conversation, source.speakers)
    return [line_of(post, own) for post in source.posts]


def _result(services: Services, source: CompactionInput, summary: Summary, **more: Any) -> CompactionResult:
    return CompactionResult(
        conversation=source.conversation.id,
        previous_version=summary.version - 1,
        summary=summary,
        now=services.clock.now(),
        no=source.conversation.no,
        epoch=source.epoch,
        **more,
    )


def _summary(
    summarized: Pass, markdown: str, memory_json: Mapping[str, object], *, count: Counter, now: float, **more: Any
) -> Summary:
    source, posts = summarized.source, summarized.posts
    before = source.previous
    return Summary(
        version=(before.version if before else 0) + 1,
        upto_seq=posts[-1].seq,
        upto_at=posts[-1].created_at,
        path_digest=chain(before.path_digest if before else b"", (post.digest for post in posts)),
        markdown=markdown,
        memory_json=dict(memory_json),
        profile=summarized.profile.id,
        created_at=now,
        tokens=count(markdown) + count(compact(memory_json)),
        corrected=source.corrected,
        **more,
    )


def _made(
    services: Services, summarized: Pass, markdown: str, memory_json: Mapping[str, object], **more: Any
) -> Summary:
    return _summary(summarized, markdown, memory_json, count=services.count, now=services.clock.now(), **more)


def _within_calls(posts: Sequence[Post]) -> frozenset[int]:
    """Return the positions between a call and its results."""
    return held_together({number: calls_among(post.role, post.parts) for number, post in enumerate(posts)})


# ---- By quotes ------------------------------------------------------------------------------------------------------


def by_quotes(summarized: Pass, count: Counter, now: float) -> Derived:
    """Return the summary of a pass in the words of its posts, and the conversation's items after it."""
    source, lines, most = summarized.source, summarized.lines, summarized.most
    merged = _with_quotes(summarized)
    previous = source.previous.markdown if source.previous else ""
    items = [*merged[0], *merged[1]]
    markdown, memory_json, tainted = write(items, previous=previous, max_tokens=most, count=count, zone=summarized.zone)
    markdown = markdown or _in_brief(untold(lines, source.corrections), most, count)
    terms: Any = {"count": count, "now": now, "tainted": tainted, "made_by": "quotes"}
    return _summary(summarized, markdown, memory_json, **terms), merged


def _with_quotes(summarized: Pass) -> Merged:
    """Return the conversation's items with the quotes of a pass."""
    source = summarized.source
    return _merged(source, quotes_of(summarized.lines, before=[line_of(source.before)] if source.before else ()))


def _merged(source: CompactionInput, entries: Sequence[Item]) -> Merged:
    return merge(unmarked(source.items), corrected(entries, source.corrections, news=True))


def _in_brief(lines: Sequence[Line], most: int, count: Counter) -> str:
    """Render posts without memorable content in T8's short form: their number and the user's words."""
    own = [msgspec.structs.replace(line, text=own_words(line.text)) for line in lines]
    text = compress_batch([line for line in own if line.role == "user" and line.own and line.text])
    _, _, content = text.partition("]")
    return cut(f"[Summary of {len(lines)} messages]{content}", most, count=count)


# ---- By a model -----------------------------------------------------------------------------------------------------


def _asks_model(services: Services, summarized: Pass) -> bool:
    """Return whether a model does the pass. It must not see text that was corrected."""
    source, lines = summarized.source, summarized.lines
    is_available = services.work_model is not None and source.failures < FAILURES
    return is_available and len(untold(lines, source.corrections)) == len(lines)


async def _instruction(services: Services, summarized: Pass) -> tuple[Instruction, Record]:
    """Return the instructions for the model and their audit record.

    Conversation text is no variable of the instructions. It goes in as data, never into a system text.
    """
    conversation, profile = summarized.source.conversation, summarized.profile
    persona = services.settings.personas.get(conversation.persona or services.settings.default_persona)
    values = {
        "max_summary_tokens": summarized.most,
        "new_turns_count": sum(1 for line in summarized.lines if line.text),
        "agent_name": persona.name if persona else "",
        "profile_id": profile.id,
        "date": day_of(services.clock.now(), summarized.zone),
    }
    project = project_of(None, conversation.metadata.get("project"), services.settings.project)
    scope, key, otherwise = summarized.source.scope, profile.prompt_key, STANDARD.prompt_key
    instruction = await instruct(services, scope, key, values, agent=COMPACTOR, project=project, otherwise=otherwise)
    return instruction, instruction_record(services, instruction, agent=COMPACTOR, conversation=conversation.id)


async def _by_model(
    services: Services, summarized: Pass, instruction: Instruction, record: Record
) -> tuple[Derived, tuple[Record, ...]]:
    """Ask the model. Return the result and the audit records. Raises InvalidInput for no usable answer."""
    source, lines, model = summarized.source, summarized.lines, services.work_model
    if model is None:
        raise BackendError("No model for background jobs. Set `work.model`.")
    quoted = await services.offload.compute(_with_quotes, summarized)
    quotes = offered(*quoted)
    known = {*quotes, *(source_id for item in source.items for source_id in item.sources)}
    request = ModelRequest(
        messages=_messages(summarized, instruction.text, quotes),
        purpose="compaction",
        schema=MEMORY_SCHEMA,
        max_tokens=summarized.most * 2,
        model=summarized.profile.model_id,
        conversation=source.conversation.id,
    )
    posts = [line.id for line in lines if line.text]
    read = partial(parse_answer, posts=posts, known=known, max_tokens=summarized.most, count=services.count)
    answer = await background_answer(services, source.scope, model, request, read)
    made = {"made_by": name_of(model, request), "prompt": instruction.version.source}
    derived, actions, refused = await asyncio.to_thread(
        _from_answer, services, summarized, answer.value, (quoted, quotes), **made
    )
    dropped = (*answer.value.dropped, *refused)
    if dropped:
        why = services.writer.clean("; ".join(dropped))
        log.warning("Dropped %d items of model %s: %s", len(dropped), model.name, why)
    context = {
        "outcome": "repaired" if dropped or answer.value.cut else answer.outcome,
        "dropped": dropped,
        **({"summary": "cut at a sentence"} if answer.value.cut else {}),
    }
    answers = answered(services, [record], answer.text, context=context)
    return derived, (record, *answers, *_action_records(services, summarized, instruction, actions))


def _action_records(
    services: Services, summarized: Pass, instruction: Instruction, actions: Sequence[Action]
) -> Iterator[Record]:
    """Yield an audit record for each quote that the model ended or merged, with its reason."""
    conversation = summarized.source.conversation.id
    for each in actions:
        items = [named_id(conversation, id_) for id_ in each.items]
        context = {"items": items} | ({"into": named_id(conversation, each.into)} if each.into else {})
        yield receipt(
            services,
            instruction.version,
            each.event,
            agent=COMPACTOR,
            context=context,
            output=each.reason,
            conversation=conversation,
        )


def _from_answer(
    services: Services,
    summarized: Pass,
    answer: MemoryAnswer,
    known: tuple[Merged, Mapping[str, Item]],
    **more: str,
) -> tuple[Derived, list[Action], list[str]]:
    """Merge a model's items with the quotes, the `known` ones by the ids that the model saw.

    Secrets are redacted: a model may join separate parts, or know secrets of its own. Its summary may repeat words of
    the assistant, of tools, or of text that the user pasted, so it goes into the fenced block only. The system prompt
    gets the user's quotes, and items in their own words.
    """
    source, lines, (quoted, quotes) = summarized.source, summarized.lines, known
    text, memory = services.writer.clean(answer.summary), services.writer.clean_json(msgspec.json.encode(answer.memory))
    memory_json, held = msgspec.json.decode(memory), [*quoted[0], *quoted[1]]
    entries = items_of(memory_json, when=lines[-1].when, lines=lines, held=held, quotes=quotes)
    kept, new = merge(held, corrected(entries, source.corrections, news=True))
    stored, restored = {each.id for each in source.items}, {normal(each.text) for each in source.corrections}
    items, actions, refused = act([*kept, *new], answer, quotes=quotes, lines=lines, restored=restored)
    markdown, _, others = write(
        [each for each in items if each.trust in ("user", "participant")],  # the rest is in the model's summary
        previous=source.previous.markdown if source.previous else "",
        max_tokens=max(summarized.most // 2, summarized.most - services.count(text)),
        count=services.count,
        zone=summarized.zone,
    )
    tainted = "\n".join(filter(None, (others, text)))
    derived = [each for each in items if each.id in stored], [each for each in items if each.id not in stored]
    return (_made(services, summarized, markdown, memory_json, tainted=tainted, **more), derived), actions, refused


def _messages(summarized: Pass, instruction: str, quotes: Mapping[str, Item]) -> tuple[bytes, ...]:
    previous, zone = summarized.source.previous, summarized.zone
    document = {
        "previous": {
            "summary_markdown": previous.markdown if previous else "",
            "memory_json": previous.memory_json if previous else {},
        },
        "quotes": [
            {
                "id": id_,
                "date": day_of(each.valid_from, zone),
                "name": each.speaker,
                "text": each.text,
                "sources": each.sources,
            }
            for id_, each in quotes.items()
        ],
        "new_turns": [
            {
                "id": line.id,
                "date": day_of(line.when, zone),
                "role": line.role,
                "name": line.speaker,
                "content": line.text,
            }
            for line in summarized.lines
            if line.text
        ],
    }
    text = f"Update rolling memory.\n\nINPUT_JSON:\n{json.dumps(document, ensure_ascii=False)}"
    return (
        msgspec.json.encode({"role": "system", "content": instruction}),
        msgspec.json.encode({"role": "user", "content": text}),
    )


# ---- By hand --------------------------------------------------------------------------------------------------------


async def compress_by_hand(
    services: Services,
    scope: Scope,
    conversation: str,
    *,
    older_than: str,
    text: str,
) -> bool:
    """Store a caller's own summary of everything before a post. The same summary again changes nothing.

    Raises NotFound, InvalidInput, and Conflict while a turn runs.
    """
    found = await services.store.conversation(scope, conversation)
    source = await services.store.compaction(scope, conversation, limit=max(1, found.backlog))
    if source is None or source.lags:
        raise Conflict(f"A turn is running in conversation {conversation!r}. Summarize it after the turn has ended.")
    lines = _lines(source)
    end = next((n for n, post in enumerate(source.posts) if post.id == older_than), -1)
    if end < 0:
        raise NotFound(f"Unknown post {older_than!r} after the last summary of conversation {conversation!r}.")
    before, markdown = source.previous, services.writer.clean(text)
    if end == 0 and before and before.made_by == "caller" and before.markdown == markdown:
        return True
    if end == 0 or not between_steps(lines, end) or end in _within_calls(source.posts):
        msg = (
            f"older_than: {older_than!r} separates a tool call from its result, or leaves nothing. Choose another post."
        )
        raise InvalidInput(msg, where="olderThan")
    profile, zone = choose(services.settings.compaction, None), services.settings.zone
    summarized = Pass(source=source, posts=source.posts[:end], lines=lines[:end], profile=profile, zone=zone)
    more = {"tainted": before.tainted if before else "", "made_by": "caller"}
    summary = _made(services, summarized, markdown, before.memory_json if before else _EMPTY, **more)
    return await services.store.save_summary(scope, _result(services, source, summary))
