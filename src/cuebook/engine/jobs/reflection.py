"""Background job for reflections: run triggered metaprompts with a model, or by rules, and update the mood state
(docs/design/011).

A reflection is due until a process stores its result. The model is called outside any transaction, and the result is
stored by compare-and-set. If the model is unavailable, the rules decide. If its answer is invalid, the mood state stays
unchanged and the reflection stores the reason.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.audit_records import answered, receipt
from cuebook.engine.core.instructions import (
    background_answer,
    instruct,
    instruction_record,
    name_of,
    own_version,
    render_instruction,
)
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job
from cuebook.engine.turn.turn_signals import (
    BY_HAND,
    BY_MODEL,
    RESET,
    counters_on,
    judged_on,
    persona_in,
    reflection_tasks,
    signals_in,
    tracking_in,
)
from cuebook.errors import BackendError, CuebookError, InvalidInput
from cuebook.interfaces import Model, ModelRequest
from cuebook.interfaces.store import DueReflection, MetapromptTask, PathQuery, ReflectionInput, Scene
from cuebook.prompts.names import SYSTEM, project_of
from cuebook.records.answers import mended
from cuebook.records.audit import Record
from cuebook.records.conversation import TOOL, PathPost
from cuebook.records.erasure import GONE
from cuebook.records.memory import Scope
from cuebook.records.mind import NEUTRAL, Counters, MetapromptRun, MoodState, Reflection, Sentiment, TurnSignals
from cuebook.records.persona import Metaprompt, Persona, SentimentTracking
from cuebook.records.prompt import Version
from cuebook.signals.machine_text import failed
from cuebook.signals.message_signals import hear
from cuebook.signals.metaprompts import (
    RULES,
    SELF,
    SHIPPED,
    DueMetaprompt,
    by_rules,
    changes_of,
    metaprompts_of,
    read_answer,
    schema_of,
)
from cuebook.signals.sentiment import SCHEMA, asked, parse_reply
from cuebook.window.post_forms import parts_of

log = logging.getLogger("cuebook.reflect")

#: Name of reflections as recipients in the audit log.
REFLECTOR = "reflection"
#: Messages in a metaprompt, characters of each message, and errors.
RECENT = 10
CHARACTERS = 600
ERRORS = 5


async def _due(services: Services, query: DueQuery) -> list[DueWork[DueReflection]]:
    """Return the oldest due reflection of each conversation."""
    reflections = await services.store.reflections.due(limit=query.limit)
    return [DueWork(each.tenant, f"conversation {each.conversation}", each, each.count) for each in reflections]


async def reflect_on(services: Services, scope: Scope, conversation: str) -> None:
    """Run all due reflections of one conversation; skip those that other processes run. Raises NotFound."""
    before: DueReflection | None = None
    await services.store.conversation(scope, conversation)
    while due := await services.store.reflections.due(tenant=scope.tenant, conversation=conversation):
        if due[0] == before:
            return
        before = due[0]
        await reflect_once(services, scope, before)


async def reflect_once(services: Services, scope: Scope, due: DueReflection) -> bool:
    """Run one reflection. Return False if it was done or erased meanwhile."""
    reflecting = await services.store.reflections.read(scope, due)
    if reflecting is None:
        return False
    services.failpoint("reflect.read")
    path_query = PathQuery(
        conversation=due.conversation,
        parent=reflecting.turn.query_seq,
        full_tokens=RECENT * CHARACTERS,
        post_tokens=CHARACTERS,
        use_summary=False,
    )
    scene = await services.store.scene(scope, path_query)
    reflection, records = await _reflect(services, scope, reflecting, scene)
    services.failpoint("reflect.made")
    is_stored = await services.store.reflections.save(scope, reflecting, reflection, audit=records)
    services.notify_jobs()
    return is_stored


REFLECTION = Job(name="reflection", due=_due, run=reflect_once)


class _TurnInput(Struct, frozen=True, kw_only=True):
    """The input of one reflection: the turn, its path, persona and signals."""

    scope: Scope
    read: ReflectionInput
    scene: Scene
    persona: Persona
    signals: TurnSignals


#: The mood state after a metaprompt, its run, and the audit records of the instructions and the result.
_Decision = tuple[MoodState, MetapromptRun, list[Record]]


async def _reflect(
    services: Services, scope: Scope, read: ReflectionInput, scene: Scene
) -> tuple[Reflection, list[Record]]:
    """Run the requested metaprompts in order. Each sees the mood state after the one before."""
    persona, mode = persona_in(services, read.conversation, read.turn), read.turn.metadata.get("mode")
    tracking = tracking_in(services, scene, persona, mode if isinstance(mode, str) else None)
    first = signals_in(read.turn.metadata) or TurnSignals()
    judged, calls, records = judged_on(read.before, first), list(read.calls), list[Record]()
    mind, runs = read.before.mind if read.before else NEUTRAL, list[MetapromptRun]()
    if any(call.trigger == BY_MODEL for call in calls):
        judged, rendered, refused = await reheard(services, scope, read, scene, tracking)
        records += rendered
        runs += refused
        calls = [call for call in calls if call.trigger != BY_MODEL]
        new = reflection_tasks(persona, tracking, judged)  # triggered by the new sentiment
        calls = [*(each for each in new if each.trigger != BY_MODEL and each not in calls), *calls]
    turn = _TurnInput(scope=scope, read=read, scene=scene, persona=persona, signals=judged or first)
    metaprompts = {each.id: each for each in metaprompts_of(persona.metaprompts, tracking)}
    for call in calls:
        mind, run, made = await _decide(services, turn, call, metaprompts, mind)
        runs.append(run)
        records += made
    at = services.clock.now()
    return Reflection(turn=read.turn.n, at=at, mind=mind, runs=tuple(runs), heard=judged), records


async def _decide(
    services: Services, turn: _TurnInput, call: MetapromptTask, metaprompts: Mapping[str, Metaprompt], mind: MoodState
) -> _Decision:
    if call.trigger == RESET:
        run = MetapromptRun(metaprompt="", trigger=RESET, by="hand", outcome="unchanged")
        return NEUTRAL, _with_changes(run, mind, NEUTRAL), []
    by_hand = SHIPPED.get(call.metaprompt) if call.trigger == BY_HAND else None
    metaprompt = metaprompts.get(call.metaprompt) or by_hand
    if metaprompt is None:
        reason = f"Unknown metaprompt of persona {turn.persona.id!r}"
        run = MetapromptRun(metaprompt=call.metaprompt, trigger=call.trigger, by=RULES, outcome="failed", reason=reason)
        return mind, run, []
    due_metaprompt = (metaprompt, call.trigger)
    if services.work_model is None:
        return _by_rules(services, turn, due_metaprompt, mind)
    return await _by_model(services, services.work_model, turn, due_metaprompt, mind)


def _by_rules(
    services: Services, turn: _TurnInput, due_metaprompt: DueMetaprompt, mind: MoodState, *, because: str = ""
) -> _Decision:
    (metaprompt, trigger), builtin = due_metaprompt, services.settings.builtin
    moved, reason = by_rules(due_metaprompt, mind, turn.signals)
    reason = f"{reason}; {because}" if because else reason
    run = MetapromptRun(metaprompt=metaprompt.id, trigger=trigger, by=RULES, outcome="unchanged", reason=reason)
    run = _with_changes(run, mind, moved)
    shipped = builtin.get(SYSTEM + metaprompt.key) or builtin[SYSTEM + SELF]
    version = own_version(turn.persona, metaprompt) if metaprompt.template else shipped
    return moved, run, [_receipt(services, turn, version, run, reason)]


def _unavailable(
    services: Services, turn: _TurnInput, due_metaprompt: DueMetaprompt, mind: MoodState, error: CuebookError
) -> _Decision:
    """Return the rules' decision after an error of the model or of its prompt."""
    conversation, reason = turn.read.conversation.id, services.writer.clean(str(error))
    log.warning("Reflection on conversation %s uses the rules instead of the model: %s", conversation, reason)
    name = services.work_model.name if services.work_model else ""
    return _by_rules(services, turn, due_metaprompt, mind, because=f"Model {name} is unavailable: {reason}")


def _with_changes(run: MetapromptRun, before: MoodState, after: MoodState) -> MetapromptRun:
    changes = changes_of(before, after)
    return replace(run, outcome="moved" if changes else run.outcome, changes=changes)


async def _by_model(
    services: Services, model: Model, turn: _TurnInput, due_metaprompt: DueMetaprompt, mind: MoodState
) -> _Decision:
    """Ask the model. Conversation text goes in as data, never into a system text."""
    (metaprompt, trigger), conversation = due_metaprompt, turn.read.conversation
    values, key = _values(turn, trigger, mind), metaprompt.key or SELF
    project = project_of(None, conversation.metadata.get("project"), services.settings.project)
    try:
        if metaprompt.template:  # the persona's own text
            resolved = await resolved_of(services, own_version(turn.persona, metaprompt))
            instruction = render_instruction(resolved, values)
        else:
            instruction = await instruct(
                services, turn.scope, key, values, agent=REFLECTOR, project=project, otherwise=SELF
            )
        rendered = instruction_record(services, instruction, agent=REFLECTOR, conversation=conversation.id)
        request = ModelRequest(
            messages=(msgspec.json.encode({"role": "user", "content": instruction.text}),),
            purpose=REFLECTOR,
            schema=schema_of(metaprompt),
            max_tokens=metaprompt.max_output_tokens,
            temperature=metaprompt.temperature,
            model=metaprompt.model_id,
            conversation=conversation.id,
        )
    except InvalidInput as error:
        return _unavailable(services, turn, due_metaprompt, mind, error)
    moved, text = mind, ""
    outcome: Literal["unchanged", "refused"] = "unchanged"
    read = partial(read_answer, metaprompt=metaprompt, mind=mind, clean=services.writer.clean)
    try:
        answer = await background_answer(services, turn.scope, model, request, read)
        (moved, reason), text = answer.value, answer.text
    except BackendError as error:
        return _unavailable(services, turn, due_metaprompt, mind, error)
    except InvalidInput as error:
        reason = services.writer.clean(mended(f"{error.where}: {error}" if error.where else str(error)))
        outcome = "refused"
        log.warning("Model %s returned an invalid answer for metaprompt %s: %s", model.name, metaprompt.id, reason)
    version = instruction.version
    run = MetapromptRun(
        metaprompt=metaprompt.id,
        trigger=trigger,
        by=name_of(model, request),
        outcome=outcome,
        reason=reason,
        prompt=version.source,
    )
    run = _with_changes(run, mind, moved)
    return moved, run, [rendered, _receipt(services, turn, version, run, text)]


def _values(turn: _TurnInput, trigger: str, mind: MoodState) -> dict[str, str]:
    """Return all variables that a metaprompt's text may use."""
    signals, counters, path = turn.signals, turn.signals.counters, turn.scene.path
    events = [f"{event.name} ({event.severity}): {event.reason}" for event in signals.events]
    return {
        "current_mood": mind.mood,
        "user_skill": mind.user_skill,
        "task_complexity": mind.task_complexity,
        "current_sentiment": signals.sentiment.polarity,
        "recent_conversation": _recent(path),
        "recent_errors": _errors(path, turn.read.turn.error),
        "evidence": "; ".join(events) or trigger,
        "sentiment_score": f"{signals.sentiment.score:.2f}",
        "consecutive_frustration": str(counters.frustration),
        "consecutive_confusion": str(counters.confusion),
        "consecutive_satisfaction": str(counters.satisfaction),
        "confusion_keywords": ", ".join(signals.keywords),
        "consecutive_neutral": str(counters.neutral),
    }


def _receipt(services: Services, turn: _TurnInput, version: Version, run: MetapromptRun, output: str) -> Record:
    """Return the audit record of a metaprompt run by a model or by rules."""
    fields = {name: getattr(run, name) for name in ("metaprompt", "trigger", "by", "outcome")}
    context = fields | {"changes": json.dumps(run.changes, ensure_ascii=False)}
    conversation = turn.read.conversation.id
    record = receipt(
        services, version, "reflect", agent=REFLECTOR, context=context, output=output, conversation=conversation
    )
    return replace(record, turn=turn.read.turn.n)


def _recent(path: Sequence[PathPost]) -> str:
    """Render the last messages as JSON lines, each shortened. None can close the surrounding tag."""
    path_posts = [post for post in path if post.role != "system" and post.message and post.state != GONE]
    values = [{"role": post.role, "text": _short(post.message or "")} for post in path_posts[-RECENT:]]
    return _tagless("\n".join(json.dumps(each, ensure_ascii=False) for each in values))


def _errors(path: Sequence[PathPost], error: str) -> str:
    """Return the last errors of the path, one per line."""
    results = [post for post in path if post.role == TOOL and failed(post.message or "", parts_of(post))]
    matches = [_short(post.message or "") for post in results]
    return _tagless("\n".join([*matches, *([_short(error)] if error else [])][-ERRORS:]))


def _tagless(text: str) -> str:
    """Escape data so that it cannot close a tag. The JSON value stays the same."""
    return text.replace("</", "<\\/")


def _short(text: str) -> str:
    """Return a text as one line. Shorten a long one to its beginning and its end, where errors usually are."""
    text, half = " ".join(text.split()), CHARACTERS // 2
    return text if len(text) <= CHARACTERS else f"{text[:half]} … {text[-half:]}"


# ---- Sentiment by a model -------------------------------------------------------------------------------------------


#: Key of the prompt that judges a message, and its recipient name in the audit log.
KEY = "sentiment_llm"
LISTENER = "sentiment"
#: Token limit of an answer, which is one short object.
ANSWER = 200


#: A model's judgement, its audit records, and a run with the reason of a refusal.
_Judgement = tuple[TurnSignals, tuple[Record, ...], tuple[MetapromptRun, ...]]


async def reheard(
    services: Services, scope: Scope, reflecting: ReflectionInput, scene: Scene, tracking: SentimentTracking
) -> _Judgement:
    """Return a turn's signals as judged by a model. `scene` ends with its message."""
    first = signals_in(reflecting.turn.metadata) or TurnSignals()
    text = (scene.path[-1].message or "") if scene.path else ""
    sentiment, records, refused = await _judged(services, scope, reflecting, tracking, text)
    before = await _before(services, scope, reflecting, scene)
    news = first.counters.news
    trace = first.counters.trace[-news:] if news else ()
    turn_signals = hear(
        text,
        before=before,
        sentiment=sentiment or first.sentiment,
        tracking=tracking,
        trace=trace,
        now=first.counters.at,
        drift=first.signals.get("topic_shift_high"),
        kind=first.task,
    )
    return turn_signals, records, refused


async def _judged(
    services: Services, scope: Scope, reflecting: ReflectionInput, tracking: SentimentTracking, text: str
) -> tuple[Sentiment | None, tuple[Record, ...], tuple[MetapromptRun, ...]]:
    """Ask the model. Without a judgement, return None and a run with the reason."""
    model = services.work_model
    if model is None or not text.strip():
        return None, (), ()
    project = project_of(None, reflecting.conversation.metadata.get("project"), services.settings.project)
    instruction = await instruct(services, scope, KEY, {}, agent=LISTENER, project=project)
    conversation = reflecting.conversation.id
    records = (instruction_record(services, instruction, agent=LISTENER, conversation=conversation),)
    request = ModelRequest(
        messages=(
            msgspec.json.encode({"role": "system", "content": instruction.text}),
            msgspec.json.encode({"role": "user", "content": asked(text)}),
        ),
        purpose=LISTENER,
        schema=SCHEMA,
        max_tokens=ANSWER,
        temperature=0.0,
        model=tracking.model_id,
        conversation=conversation,
    )
    try:
        answer = await background_answer(services, scope, model, request, parse_reply)
    except (BackendError, InvalidInput) as error:
        reason = services.writer.clean(mended(str(error)))
        log.warning(
            "Sentiment by the model failed for conversation %s; the lexicon's result stays: %s", conversation, reason
        )
        outcome: Literal["refused", "failed"] = "refused" if isinstance(error, InvalidInput) else "failed"
        run = MetapromptRun(
            metaprompt=KEY, trigger=BY_MODEL, by=name_of(model, request), outcome=outcome, reason=reason
        )
        return (
            None,
            (*records, *answered(services, records, "", context={"outcome": outcome, "reason": reason})),
            (run,),
        )
    return answer.value, (*records, *answered(services, records, answer.text, context={"outcome": answer.outcome})), ()


async def _before(services: Services, scope: Scope, reflecting: ReflectionInput, scene: Scene) -> Counters:
    """Return the signals of earlier messages, as judged by a model if it judged them."""
    parent = scene.path[-2].seq if len(scene.path) > 1 else 0
    if not parent:
        return Counters()
    path_query = PathQuery(conversation=reflecting.conversation.id, parent=parent, full_tokens=1, use_summary=False)
    return counters_on(await services.store.scene(scope, path_query))
