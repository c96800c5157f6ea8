"""Background job for reflections: run triggered metaprompts with a model, or by rules, and update the mood state
(docs/design/011).

A reflection is due until a process stores its result. The model is called outside any transaction, and the result is
stored by compare-and-set. If the model is unavailable, the rules decide. If its answer is invalid, the mood state stays
unchanged and the reflection stores the reason.
"""

import json
import logging
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.instructions import (
    Instruction,
    Work,
    instruct,
    instruction_record,
    own_version,
    render_instruction,
)
from cuebook.engine.core.model_call import said_by
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job
from cuebook.engine.turn.message_signals import counters_on, heard_of, judged_on, persona_in, tracking_in
from cuebook.engine.turn.mood import BY_HAND, BY_MODEL, RESET, calls_of
from cuebook.errors import BackendError, InvalidInput
from cuebook.interfaces.model import Model, ModelRequest
from cuebook.interfaces.reflections import DueReflection, MetapromptTask, ReflectionInput
from cuebook.interfaces.store import PathQuery, Scene
from cuebook.prompts.names import SYSTEM, project_of
from cuebook.records.answers import mended
from cuebook.records.audit import Record
from cuebook.records.conversation import TOOL, PathPost
from cuebook.records.erasure import GONE
from cuebook.records.memory import Scope
from cuebook.records.mind import NEUTRAL, Counters, MetapromptRun, MoodState, Reflection, Sentiment, TurnSignals
from cuebook.records.persona import Metaprompt, SentimentTracking
from cuebook.records.prompt import Version
from cuebook.signals.message_signals import hear
from cuebook.signals.metaprompts import (
    SELF,
    SHIPPED,
    DueMetaprompt,
    changes_of,
    metaprompts_of,
    read_answer,
    schema_of,
)
from cuebook.signals.model_sentiment import SCHEMA, asked, parse_reply
from cuebook.signals.mood_rules import RULES, by_rules
from cuebook.signals.tool_errors import failed
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


async def _run(services: Services, due: DueWork[DueReflection]) -> bool:
    return await reflect_once(services, due.work)


REFLECTION = Job(name="reflection", due=_due, run=_run)


async def reflect_on(services: Services, scope: Scope, conversation: str) -> None:
    """Run all due reflections of one conversation; skip those that other processes run. Raises NotFound."""
    before: DueReflection | None = None
    while due_reflections := await services.store.reflections.due_in(scope, conversation, limit=1):
        if due_reflections[0] == before:
            return
        before = due_reflections[0]
        await reflect_once(services, before)


async def reflect_once(services: Services, due: DueReflection) -> bool:
    """Run one reflection. Return False if it was done or erased meanwhile."""
    scope = Scope(due.tenant)
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
    reflection, records = await _RunningReflection(services, scope, reflecting, scene).made()
    services.failpoint("reflect.made")
    kept = await services.store.reflections.save(scope, reflecting, reflection, audit=records)
    services.notify_jobs()
    return kept


class _Decision(Struct, frozen=True, kw_only=True):
    """The decision about one metaprompt."""

    mind: MoodState
    run: MetapromptRun
    records: tuple[Record, ...]


class _RunningReflection:
    """One running reflection: its input and its metaprompts in order."""

    def __init__(self, services: Services, scope: Scope, read: ReflectionInput, scene: Scene) -> None:
        self._services = services
        self._scope = scope
        self._read = read
        self._scene = scene
        self._persona = persona_in(services, read.conversation, read.turn)
        mode = read.turn.metadata.get("mode")
        self._tracking = tracking_in(services, scene, self._persona, mode if isinstance(mode, str) else None)
        first = heard_of(read.turn.metadata) or TurnSignals()
        self._judged = judged_on(read.before, first)
        self._heard = self._judged or first

    async def made(self) -> tuple[Reflection, list[Record]]:
        """Run the requested metaprompts in order. Each sees the mood state after the one before."""
        mind = self._read.before.mind if self._read.before else NEUTRAL
        runs: list[MetapromptRun] = []
        records: list[Record] = []
        calls = list(self._read.calls)
        if any(call.trigger == BY_MODEL for call in calls):
            self._heard, told = await reheard(self._services, self._scope, self._read, self._scene, self._tracking)
            self._judged = self._heard
            records += told
            calls = [call for call in calls if call.trigger != BY_MODEL]
            calls = [*_newly(calls_of(self._persona, self._tracking, self._heard), calls), *calls]
        metaprompts = {each.id: each for each in metaprompts_of(self._persona.metaprompts, self._tracking)}
        for call in calls:
            if call.trigger == RESET:
                run = MetapromptRun(metaprompt="", trigger=RESET, by="hand", outcome="unchanged")
                runs.append(_with_changes(run, mind, NEUTRAL, ""))
                mind = NEUTRAL
                continue
            metaprompt = metaprompts.get(call.metaprompt) or (
                SHIPPED.get(call.metaprompt) if call.trigger == BY_HAND else None
            )
            if metaprompt is None:
                reason = f"Unknown metaprompt of persona {self._persona.id!r}"
                run = MetapromptRun(
                    metaprompt=call.metaprompt, trigger=call.trigger, by=RULES, outcome="failed", reason=reason
                )
                runs.append(run)
                continue
            answer = await self._answer(DueMetaprompt(metaprompt=metaprompt, trigger=call.trigger), mind)
            mind = answer.mind
            runs.append(answer.run)
            records += answer.records
        at = self._services.clock.now()
        return Reflection(turn=self._read.turn.n, at=at, mind=mind, runs=tuple(runs), heard=self._judged), records

    async def _answer(self, due_metaprompt: DueMetaprompt, mind: MoodState) -> _Decision:
        model = self._services.work_model
        if model is None:
            return self._by_rules(due_metaprompt, mind)
        work = self._work(due_metaprompt, mind)
        try:
            instruction = await self._instruction(due_metaprompt, work)
            rendered = instruction_record(self._services, instruction, work, conversation=self._read.conversation.id)
            text = await self._asked(model, due_metaprompt.metaprompt, instruction)
        except (BackendError, InvalidInput) as error:
            reason = self._services.writer.clean(str(error))
            log.warning(
                "Reflection on conversation %s uses the rules instead of the model: %s",
                self._read.conversation.id,
                reason,
            )
            return self._by_rules(due_metaprompt, mind, because=f"Model {model.name} is unavailable: {reason}")
        version = instruction.version
        run = MetapromptRun(
            metaprompt=due_metaprompt.metaprompt.id,
            trigger=due_metaprompt.trigger,
            by=model.name,
            outcome="unchanged",
            prompt=version.source,
        )
        try:
            moved, reason = read_answer(text, due_metaprompt.metaprompt, mind, clean=self._services.writer.clean)
        except InvalidInput as error:
            reason = mended(f"{error.where}: {error}" if error.where else str(error))
            moved, reason = mind, self._services.writer.clean(reason)
            run = replace(run, outcome="refused")
            log.warning(
                "Model %s returned an invalid answer for metaprompt %s: %s",
                model.name,
                due_metaprompt.metaprompt.id,
                reason,
            )
        run = _with_changes(run, mind, moved, reason)
        return _Decision(mind=moved, run=run, records=(rendered, self._receipt(version, run, text)))

    def _by_rules(self, due_metaprompt: DueMetaprompt, mind: MoodState, *, because: str = "") -> _Decision:
        moved, reason = by_rules(due_metaprompt, mind, self._heard)
        reason = f"{reason}; {because}" if because else reason
        run = MetapromptRun(
            metaprompt=due_metaprompt.metaprompt.id, trigger=due_metaprompt.trigger, by=RULES, outcome="unchanged"
        )
        run = _with_changes(run, mind, moved, reason)
        return _Decision(
            mind=moved, run=run, records=(self._receipt(self._version(due_metaprompt.metaprompt), run, reason),)
        )

    # ---- Model instructions ----------------------------------------------------------------------------------------

    def _work(self, due_metaprompt: DueMetaprompt, mind: MoodState) -> Work:
        kept = self._read.conversation.metadata.get("project")
        return Work(
            agent=REFLECTOR,
            key=due_metaprompt.metaprompt.key or SELF,
            otherwise=SELF,
            values=self._values(due_metaprompt, mind),
            project=project_of(None, kept, self._services.settings.project),
        )

    async def _instruction(self, due_metaprompt: DueMetaprompt, work: Work) -> Instruction:
        """Return a metaprompt's instructions: the persona's own text, or else the managed prompt of its key."""
        if not due_metaprompt.metaprompt.template:
            return await instruct(self._services, self._scope, work)
        version = own_version(self._persona, due_metaprompt.metaprompt)
        return render_instruction(await resolved_of(self._services, version), work.values)

    def _version(self, metaprompt: Metaprompt) -> Version:
        """Return the version for the audit record: the shipped prompt's, or that of the persona's own text."""
        if metaprompt.template:
            return own_version(self._persona, metaprompt)
        return (
            self._services.settings.builtin.get(SYSTEM + metaprompt.key)
            or self._services.settings.builtin[SYSTEM + SELF]
        )

    async def _asked(self, model: Model, metaprompt: Metaprompt, instruction: Instruction) -> str:
        """Ask the model. Conversation text goes in as data, never into a system text."""
        request = ModelRequest(
            messages=(msgspec.json.encode({"role": "user", "content": instruction.text}),),
            purpose=REFLECTOR,
            schema=schema_of(metaprompt),
            max_tokens=metaprompt.max_output_tokens,
            temperature=metaprompt.temperature,
            model=metaprompt.model_id,
        )
        return await said_by(self._services, model, request)

    def _values(self, due_metaprompt: DueMetaprompt, mind: MoodState) -> dict[str, str]:
        """Return all variables that a metaprompt's text may use."""
        turn_signals, counters = self._heard, self._heard.counters
        noticed = [f"{event.name} ({event.severity}): {event.reason}" for event in turn_signals.events]
        return {
            "current_mood": mind.mood,
            "user_skill": mind.user_skill,
            "task_complexity": mind.task_complexity,
            "current_sentiment": turn_signals.sentiment.polarity,
            "recent_conversation": _recent(self._scene.path),
            "recent_errors": _errors(self._scene.path, self._read.turn.error),
            "evidence": "; ".join(noticed) or due_metaprompt.trigger,
            "sentiment_score": f"{turn_signals.sentiment.score:.2f}",
            "consecutive_frustration": str(counters.frustration),
            "consecutive_confusion": str(counters.confusion),
            "consecutive_satisfaction": str(counters.satisfaction),
            "confusion_keywords": ", ".join(turn_signals.keywords),
            "consecutive_neutral": str(counters.neutral),
        }

    def _receipt(self, version: Version, run: MetapromptRun, output: str) -> Record:
        """Return the audit record of a metaprompt run by a model or by rules."""
        context = {
            "metaprompt": run.metaprompt,
            "trigger": run.trigger,
            "by": run.by,
            "outcome": run.outcome,
            "changes": json.dumps(run.changes, ensure_ascii=False),
        }
        record = receipt(
            self._services,
            version,
            "reflect",
            agent=REFLECTOR,
            context=context,
            output=output,
            conversation=self._read.conversation.id,
        )
        return replace(record, turn=self._read.turn.n)


def _newly(calls: Sequence[MetapromptTask], metaprompt_tasks: Sequence[MetapromptTask]) -> list[MetapromptTask]:
    """Return tasks triggered by the new sentiment, without those already requested."""
    return [call for call in calls if call.trigger != BY_MODEL and call not in metaprompt_tasks]


def _with_changes(run: MetapromptRun, before: MoodState, after: MoodState, reason: str) -> MetapromptRun:
    changes = changes_of(before, after)
    return replace(run, outcome="moved" if changes else run.outcome, reason=reason, changes=changes)


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


async def reheard(
    services: Services, scope: Scope, reflecting: ReflectionInput, scene: Scene, tracking: SentimentTracking
) -> tuple[TurnSignals, tuple[Record, ...]]:
    """Return a turn's signals as judged by a model, with the audit records. `scene` ends with its message."""
    first = heard_of(reflecting.turn.metadata) or TurnSignals()
    text = (scene.path[-1].message or "") if scene.path else ""
    sentiment, records = await _judged(services, scope, reflecting, tracking, text)
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
    return turn_signals, records


async def _judged(
    services: Services, scope: Scope, reflecting: ReflectionInput, tracking: SentimentTracking, text: str
) -> tuple[Sentiment | None, tuple[Record, ...]]:
    """Ask the model. Return None if it gives no judgement."""
    model = services.work_model
    if model is None or not text.strip():
        return None, ()
    project = project_of(None, reflecting.conversation.metadata.get("project"), services.settings.project)
    work = Work(agent=LISTENER, key=KEY, otherwise=KEY, values={}, project=project)
    instruction = await instruct(services, scope, work)
    records = (instruction_record(services, instruction, work, conversation=reflecting.conversation.id),)
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
    )
    try:
        return parse_reply(await said_by(services, model, request)), records
    except (BackendError, InvalidInput) as error:
        log.warning(
            "Sentiment by the model failed for conversation %s; the lexicon's result stays: %s",
            reflecting.conversation.id,
            services.writer.clean(str(error)),
        )
        return None, records


async def _before(services: Services, scope: Scope, reflecting: ReflectionInput, scene: Scene) -> Counters:
    """Return the signals of earlier messages, as judged by a model if it judged them."""
    parent = scene.path[-2].seq if len(scene.path) > 1 else 0
    if not parent:
        return Counters()
    path_query = PathQuery(conversation=reflecting.conversation.id, parent=parent, full_tokens=1, use_summary=False)
    return counters_on(await services.store.scene(scope, path_query))
