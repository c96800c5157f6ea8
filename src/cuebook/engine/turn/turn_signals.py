"""Detect signals in the answered message: sentiment, topic change, task type and events; and select the mood state.

Signals are stored in the turn's metadata. The input is the turn's newest user message. A regenerated answer reuses the
earlier signals, so that a message counts once. If the persona tracks sentiment, all signals are computed and events
fire. Otherwise only signals that select prompts, now or for the turn before, are computed, and no events fire.
"""

import logging
import math
from array import array
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cuebook.engine.core.instructions import BROKEN
from cuebook.engine.core.recall import embed_queries
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.interfaces.store import MetapromptTask, Scene
from cuebook.memory.scopes import SPOKEN_WITH
from cuebook.prompts.learn import score
from cuebook.prompts.select import ALIASES
from cuebook.records.conversation import TOOL, Conversation, Draft, PathPost
from cuebook.records.mind import NEUTRAL, Counters, MoodState, Reflection, Sentiment, TurnSignals
from cuebook.records.persona import Persona, SentimentTracking
from cuebook.records.prompt import Outcome
from cuebook.records.turn import Ask, Block, TurnOn
from cuebook.signals.context import drift_by_meaning, drift_by_words
from cuebook.signals.machine_text import failed
from cuebook.signals.message_signals import TRACE, hear
from cuebook.signals.metaprompts import SHIPPED, describe_mood, fires, metaprompts_of
from cuebook.signals.outcome import NEUTRAL as NO_SENTIMENT
from cuebook.signals.outcome import word_on
from cuebook.signals.profiles import tracking_of
from cuebook.signals.sentiment import FALLBACK
from cuebook.signals.tasks import nearest
from cuebook.window.post_forms import parts_of

log = logging.getLogger("cuebook.sentiment")

#: Default mode of a conversation, for rules and defaults that name a mode (A).
GENERAL: Final = "general"
#: Key of the signals in a turn's metadata (A).
SENTIMENT: Final = "sentiment"
#: Earlier user messages that the topic is compared with.
EARLIER: Final = 3
#: Posts of a path scanned for tool results, if no turn on it has signals.
LOOKED_BACK: Final = 200
#: Reasons of interrupted turns that are no errors: the caller disconnected or sent another request.
_LEFT: Final = ("", "the caller went away")
#: Marks attachments of executions in the JSON of a post's parts.
_MARKS: Final = (b'"code_error"', b'"execution_status"')


async def detect_signals(services: Services, scene: Scene, ask: Ask, drafts: Sequence[Draft]) -> TurnSignals | None:
    """Return the signals of the answered message, or None if nothing needs them."""
    persona, last = speaker_in(services, scene, ask), scene.last_turn
    tracking = tracking_in(services, scene, persona, ask.mode)
    if not (tracking.enabled or persona.metaprompts or _serves(services, scene)):
        return None
    before = signals_in(last.metadata) if last else None
    if last and before and _answers_again(scene, last, drafts):
        return before
    earlier = _earlier(scene, drafts)
    return hear(
        ask.text,
        before=counters_on(scene),
        sentiment=read_sentiment(services, tracking, ask.text),
        tracking=tracking,
        trace=trace_of(scene, last, drafts),
        now=services.clock.now(),
        drift=await _drift(services, ask.text, earlier),
        kind=await _kind(services, ask.text),
        fires=tracking.method in services.analyzers,
    )


def speaker_in(services: Services, scene: Scene, ask: Ask) -> Persona:
    """Return the active persona of a turn."""
    return services.settings.persona(ask.persona or scene.conversation.persona)


def persona_in(services: Services, conversation: Conversation, turn: TurnOn | None) -> Persona:
    """Return the persona of a turn, else of its conversation. A deleted persona has no metaprompts."""
    value = turn.metadata.get(SPOKEN_WITH) if turn else None
    name = value if isinstance(value, str) else conversation.persona or services.settings.default_persona
    return services.settings.personas.get(name) or Persona(id=name)


def tracking_in(services: Services, scene: Scene, persona: Persona, mode: str | None) -> SentimentTracking:
    """Return the sentiment tracking of a persona in a turn."""
    return tracking_of(persona, mode_of(scene, mode), services.settings.profiles)


def mode_of(scene: Scene, mode: str | None) -> str:
    """Return the effective mode: the request's, else the conversation's, else the default."""
    stored = scene.conversation.metadata.get("mode")
    return mode or (stored if isinstance(stored, str) else None) or GENERAL


def counters_on(scene: Scene) -> Counters:
    """Return the counters after a path's newest message, as judged by a model or else as detected."""
    turn_signals = signals_in(scene.last_turn.metadata) if scene.last_turn else None
    if turn_signals is None:
        return Counters()
    return (judged_on(scene.reflection, turn_signals) or turn_signals).counters


def judged_on(reflected: Reflection | None, turn_signals: TurnSignals) -> TurnSignals | None:
    """Return a model's judgement of this message, including one from an earlier answer or reflection, or None."""
    judged = reflected.heard if reflected else None
    counters = turn_signals.counters
    return judged if judged and (judged.counters.turns, judged.counters.at) == (counters.turns, counters.at) else None


def signals_for(ask: Ask, turn_signals: TurnSignals | None) -> dict[str, float]:
    """Return the signals for prompt selection: the caller's values, then detected ones, by name.

    Detected values of 0 are omitted: a missing signal is 0.
    """
    values = ask.signals or {}
    named = {*values, *(ALIASES[name] for name in values if name in ALIASES)}
    read = turn_signals.signals if turn_signals else {}
    return {name: value for name, value in read.items() if value and name not in named} | values


def read_sentiment(services: Services, tracking: SentimentTracking, text: str) -> Sentiment:
    """Return a text's sentiment by the persona's method, or by the lexicon if that runs in a background job or is
    missing.

    A method is user code: if it fails or returns no Sentiment, the turn goes on without sentiment.
    """
    analyzer = services.analyzers.get(tracking.method) or services.analyzers[FALLBACK]
    try:
        found = analyzer.read(text)
        sentiment = msgspec.convert(msgspec.to_builtins(found), Sentiment)
    except BROKEN as error:  # its message may contain the text, which must not be logged
        log.warning("Sentiment method %s failed: %s", tracking.method, type(error).__name__)
        return Sentiment(method=analyzer.name)
    if not (-1.0 <= sentiment.score <= 1.0 and 0.0 <= sentiment.intensity <= 1.0):
        log.warning(
            "Sentiment method %s returned score %r with confidence %r, outside -1..1 and 0..1",
            tracking.method,
            sentiment.score,
            sentiment.intensity,
        )
        return Sentiment(method=analyzer.name)
    return sentiment


def trace_of(scene: Scene, last: TurnOn | None, drafts: Sequence[Draft]) -> tuple[bool, ...]:
    """Return for the results and the reply since the previous message whether each failed, oldest first."""
    posts = scene.path[-LOOKED_BACK:]
    if last is not None:
        posts = tuple(post for post in posts if post.seq > last.query_seq)
    results = [post for post in posts if _is_result(post)][-TRACE:]
    matches = [failed(_given(post), parts_of(post)) for post in results]
    if last is not None and last.state != "running":
        matches.append(last.state == "failed" or (last.state == "interrupted" and last.error not in _LEFT))
    matches += [failed(each.message, each.parts) for each in drafts if each.role == TOOL]
    return tuple(matches[-TRACE:])


#: The fields of `metadata.sentiment`, in order: AgentOS's, the reasons, and the state for the next turn.
_FIELDS: Final = (
    "score", "intensity", "polarity", "method", "events", "reasons", "keywords", "negatives", "corrections", "task",
    "signals", "counters",
)  # fmt: skip


def signals_to_wire(turn_signals: TurnSignals) -> dict[str, Any]:
    """Return signals as `metadata.sentiment`, as JSON returns them: lists, no tuples."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(turn_signals))
    fields |= fields.pop("sentiment")
    fields["reasons"] = {event.pop("name"): event for event in fields["events"]}
    fields["events"] = [event.name for event in turn_signals.events]
    return {name: fields[name] for name in _FIELDS}


def signals_in(metadata: Mapping[str, Any]) -> TurnSignals | None:
    """Parse a turn's signals from its metadata. Return None if there are none or they are invalid."""
    value = metadata.get(SENTIMENT)
    if not isinstance(value, dict):
        return None
    try:
        reasons = msgspec.convert(value.get("reasons", {}), dict[str, dict[str, str]])
        events = [
            {"name": name, **reasons.get(name, {})} for name in msgspec.convert(value.get("events", []), list[str])
        ]
        return msgspec.convert(value | {"sentiment": value, "events": events}, TurnSignals)
    except msgspec.ValidationError:
        return None


def _serves(services: Services, scene: Scene) -> bool:
    """Return whether prompts need signals: several variants are to select from, or a message is the outcome of one."""
    if any(len(family.variants) > 1 for family in scene.families.values()):
        return True
    data = scene.last_turn.metadata if scene.last_turn else {}
    return services.config.learning.observe != "off" and bool(
        scene.families or "promptVariants" in data or "promptVariant" in data
    )


def _answers_again(scene: Scene, last: TurnOn, drafts: Sequence[Draft]) -> bool:
    """Return whether the message was already answered, by the newest turn or one it continues."""
    if any(each.role == "user" for each in drafts):
        return False
    newest = next((post.seq for post in reversed(scene.path) if post.role == "user"), 0)
    return last.query_seq >= newest > 0


def _earlier(scene: Scene, drafts: Sequence[Draft]) -> list[str]:
    """Return the user's messages before this one, oldest first."""
    lines = [post.message or post.small or "" for post in scene.path if post.role == "user"]
    new = [each.message for each in drafts if each.role == "user"]
    before = lines + new[:-1] if new else lines[:-1]
    return [text for text in before if text.strip()][-EARLIER:]


def _is_result(post: PathPost) -> bool:
    """Return whether a post is a tool result, or has attachments with the result of an execution."""
    return post.role == TOOL or (post.parts is not None and any(mark in post.parts for mark in _MARKS))


def _given(post: PathPost) -> str:
    """Return a tool's result. Of other posts, return only the attachments, which contain the status."""
    return (post.message or post.small or "") if post.role == TOOL else ""


async def _kind(services: Services, text: str) -> str:
    """Return the task type closest to a message's meaning, "" without an embedder or before its examples are embedded.

    They are embedded once, in the background, when first needed.
    """
    sensed, kinds = await embed_queries(services, [text]), services.caches.task_means
    if not sensed:
        return ""
    dense = sensed[0]
    if kinds.space != dense.model:
        kinds.wanted = True
        return ""
    own = array("f", dense.vector)
    return nearest({task: sum(map(mul, own, mean)) for task, mean in kinds.means.items()}, akin=dense.akin)


async def _drift(services: Services, text: str, earlier: Sequence[str]) -> float | None:
    """Return the distance of a message's topic from the earlier messages', by meaning or else by words."""
    if not earlier:
        return 0.0
    sensed = await embed_queries(services, [text, *earlier])
    if sensed is None:
        return drift_by_words(text, earlier)
    own, *others = (array("f", each.vector) for each in sensed)
    mean = [sum(column) / len(others) for column in zip(*others, strict=True)]
    cosine = float(sum(map(mul, own, mean))) / (math.hypot(*mean) or 1.0)
    return drift_by_meaning(text, cosine, akin=sensed[0].akin)


def feedback_on_previous_turn(
    services: Services, scene: Scene, ask: Ask, drafts: Sequence[Draft], turn_signals: TurnSignals | None
) -> tuple[int, Outcome] | None:
    """Return a new message's feedback on the turn before it, with that turn's number, or None.

    Only a user's message counts, and only for a turn whose answer is on its path.
    """
    last = scene.last_turn
    if (
        services.config.learning.observe == "off"
        or turn_signals is None
        or last is None
        or last.state != "finished"
        or not last.reply_seq
    ):
        return None
    if not any(each.role == "user" for each in drafts):
        return None
    if not any(post.seq == last.reply_seq for post in reversed(scene.path)):
        return None
    path_posts = [post for post in scene.path if last.query_seq < post.seq < last.reply_seq and post.role == TOOL]
    results = [failed(post.message or post.small or "", parts_of(post)) for post in path_posts]
    word = word_on(turn_signals, ask.text, results=results)
    if word is None:
        return None
    sentiment = NO_SENTIMENT if word.sentiment is None else word.sentiment
    return last.n, replace(
        word,
        at=services.clock.now(),
        score=score(sentiment, word.corrections or 0, word.task, missing=services.config.learning.missing),
        reasons=tuple(map(services.writer.clean, word.reasons)),
        user=ask.user or scene.conversation.user or "",
    )


# ---- Mood state -----------------------------------------------------------------------------------------------------


#: Reason of a reflection that asks a model for a message's sentiment.
BY_MODEL = "llm"
#: Reason of a reflection that resets the mood state to neutral.
RESET = "reset"
#: Reason of a reflection requested by a user.
BY_HAND = "manual"
#: Turns that show advice for an event: the interval of retrospectives (`gmi_self_trait_adjustment`).
LASTS = 5
#: Metadata key of the mood state that a turn was answered with.
MIND = "mind"


def mood_tasks(
    services: Services, scene: Scene, ask: Ask, signals: TurnSignals | None
) -> tuple[MetapromptTask, ...] | None:
    """Return the tasks of a turn's reflection, or None for a turn without a mood state.

    It has one if its persona tracks sentiment or has metaprompts, or after a manual change of the mood. A regenerated
    answer requests no second reflection.
    """
    persona = speaker_in(services, scene, ask)
    tracking = tracking_in(services, scene, persona, ask.mode)
    set_by_hand = scene.reflection is not None and any(run.trigger == BY_HAND for run in scene.reflection.runs)
    if not (persona.metaprompts or tracking.enabled or set_by_hand):
        return None
    before = signals_in(scene.last_turn.metadata) if scene.last_turn else None
    if signals is None or (before is not None and before.counters.turns == signals.counters.turns):
        return ()
    return reflection_tasks(persona, tracking, signals)


def mood_of(scene: Scene) -> MoodState:
    """Return the mood state of the loaded path."""
    return scene.reflection.mind if scene.reflection else NEUTRAL


def mood_text(scene: Scene) -> Block | None:
    """Return the path's mood state, or None if it is neutral.

    Advice for an event is shown in the next answers. Then the event ends, unless a retrospective kept it.
    """
    reflection = scene.reflection
    if reflection is None:
        return None
    over = scene.conversation.turns + 1 - reflection.turn > LASTS and all(
        run.trigger.startswith("event:") for run in reflection.runs
    )
    text = describe_mood(replace(reflection.mind, strategy="") if over else reflection.mind)
    return Block(kind="mind", source=f"mind:{reflection.turn}", text=text, role="user") if text else None


def reflection_tasks(
    persona: Persona, tracking: SentimentTracking, turn_signals: TurnSignals
) -> tuple[MetapromptTask, ...]:
    """Return a reflection's tasks: the metaprompts to run, and whether to ask a model for the sentiment.

    If a model is asked, metaprompts for events are triggered by its answer.
    """
    due_metaprompts = fires(
        metaprompts_of(persona.metaprompts, tracking), events=turn_signals.events, turns=turn_signals.counters.turns
    )
    calls = tuple(MetapromptTask(metaprompt.id, trigger) for metaprompt, trigger in due_metaprompts)
    return (MetapromptTask("", BY_MODEL), *calls) if tracking.enabled and tracking.method == BY_MODEL else calls


def may_run(services: Services, conversation: Conversation, scene: Scene, metaprompt: str) -> None:
    """Check that a metaprompt may run on a path: the last speaker's persona or a shipped one has it. Raises
    InvalidInput.
    """
    persona = persona_in(services, conversation, scene.last_turn)
    known = sorted({*(each.id for each in persona.metaprompts), *SHIPPED})
    if metaprompt not in known:
        msg = f"Unknown metaprompt {metaprompt!r} of persona {persona.id!r}. Available: {', '.join(known)}."
        raise InvalidInput(msg, where="metaprompt")


def mood_to_wire(mind: MoodState) -> dict[str, Any]:
    """Return a mood state as a reply's `metadata.mind`."""
    return {"mood": mind.mood, "userSkill": mind.user_skill, "taskComplexity": mind.task_complexity}
