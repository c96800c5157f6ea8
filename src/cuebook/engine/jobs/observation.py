"""Background job that records feedback signals: one observation per turn and managed prompt used in it (N5).

When a turn opens, its transaction stores what the message says about the previous turn of its path, as a due outcome.
This job turns each outcome into observations, one per managed prompt of that turn. An observation has the signals and
the probability by which the variant was selected. Storing observations and clearing the outcome share one transaction,
so that each turn counts once, even after a crash. Of several messages that continue one turn (an edit, a regenerate,
another branch), the first counts. Feedback replaces the detected signals and corrects earlier observations.

Every prompt of the turn learns, so that an edit is on trial against the version before it (`branch_trial`).
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job
from cuebook.engine.jobs.rollback import observation_record, review
from cuebook.errors import NotFound
from cuebook.prompts.names import Reference, parse_reference
from cuebook.records.memory import Scope
from cuebook.records.prompt import Observation, Outcome, Version
from cuebook.records.turn import SHADOW, Turn
from cuebook.signals.outcome import NEUTRAL
from cuebook.storage.outcomes import Lesson

#: Retries after an outcome changed during processing.
RETRIES: Final = 5
#: Source name of texts from managed prompts.
_PROMPT: Final = "prompt:"


# ---- Background job -------------------------------------------------------------------------------------------------


async def _due(services: Services, query: DueQuery) -> list[DueWork[tuple[str, int]]]:
    """Return turns whose outcome is not yet recorded for their prompts."""
    outcomes = await services.store.outcomes.due(limit=query.limit)
    return [DueWork(tenant, f"turn {n} of conversation {name}", (name, n)) for tenant, name, n in outcomes]


async def _run(services: Services, scope: Scope, turn: tuple[str, int]) -> bool:
    with suppress(NotFound):  # the conversation was erased meanwhile, with its outcomes
        await teach(services.of(scope.tenant), Scope(), *turn)
    return True


OBSERVATION = Job(name="observation", due=_due, run=_run)


async def teach(services: Services, scope: Scope, conversation: str, n: int) -> None:
    """Record an outcome for the prompts of a turn."""
    store = services.store.outcomes
    for _ in range(RETRIES):
        stored_outcome = await store.get(scope, conversation, n)
        if stored_outcome is None or not stored_outcome.due:
            return
        turn = await services.store.turn(scope, conversation, n)
        lessons = await lessons_of(services, turn, stored_outcome.outcome, conversation=conversation)
        if await store.fold(scope, conversation, n, stored_outcome, lessons=lessons) is not None:
            break
    else:
        return
    if services.config.prompts.rollback != "off":
        for each in stored_outcome.taught:  # judge existing observations again; the rollback job handles new ones
            await review(services, each.slug, branch=each.branch)


async def lessons_of(services: Services, turn: Turn, outcome: Outcome, *, conversation: str) -> list[Lesson]:
    """Return an observation for each prompt of a turn. Return none for a turn without an answer."""
    if not turn.reply_seq or not turn.steps:
        return []
    data = _mapping(turn.metadata.get("promptVariants"))
    own = _mapping(_mapping(turn.metadata.get("promptVariant")).get("signals"))
    lessons: list[Lesson] = []
    for reference in spoke_in(turn):
        choice = _mapping(data.get(reference.slug))
        chosen = (choice.get("branch"), choice.get("version")) == (reference.branch, reference.number)
        numbers = [reference.number or 0]
        versions = await services.prompts.versions(Scope(), reference.slug, branch=reference.branch, numbers=numbers)
        if versions:
            observation = _observation(versions[0], outcome, choice if chosen else {}, own)
            observation = replace(observation, conversation=conversation, turn=turn.n)
            record = observation_record(services, observation, versions[0], turn=turn.n, by=outcome.by)
            lessons.append((observation, record))
    return lessons


def spoke_in(turn: Turn) -> list[Reference]:
    """Return the managed prompt versions used in a turn, each once. A shadow turn has none."""
    if not turn.steps or SHADOW in turn.metadata:
        return []
    sources = [text.source for text in turn.steps[0].manifest.front if text.source.startswith(_PROMPT)]
    return [parse_reference(each.removeprefix(_PROMPT), where="prompt") for each in dict.fromkeys(sources)]


def _observation(
    version: Version, outcome: Outcome, choice: Mapping[str, Any], signals: Mapping[str, Any]
) -> Observation:
    """Return the observation of a version, with its selection probability if it had alternatives."""
    lot = {"share": choice["share"]} if "share" in choice else {}
    return Observation(
        slug=version.slug,
        branch=version.branch,
        number=version.number,
        score=outcome.score,
        sentiment=NEUTRAL if outcome.sentiment is None else outcome.sentiment,
        corrections=outcome.corrections or 0,
        outcome=None if outcome.task == "unknown" else outcome.task,
        signals=dict(_mapping(choice.get("signals", signals))),
        propensity=choice.get("propensity", 1.0),
        user=outcome.user,
        at=outcome.at,
        **lot,
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
