"""Automatic rollback: deactivate new prompt versions that perform worse (G7, N8).

`prompts.rollback` selects the method: `guarded` compares with the concurrent control version (`trials`), `sigma` with
the past, `off` never rolls back. Decisions depend only on stored events and observations, so that any number of
processes may run and crash. The store accepts the first rollback and answers Conflict to the others. The event and the
audit record contain the evidence. They are stored in the transaction that activates the previous version.

Each observed prompt is checked at once, and again after its open conversations were idle.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.branch_trial import OBSERVATIONS, Contest, contest_of, look, spoken
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job, in_turn
from cuebook.errors import Conflict
from cuebook.prompts.rollback import (
    IDLE_S,
    ITSELF,
    SIGMA,
    UNAIDED,
    RollbackStatus,
    SigmaSettings,
    refusal,
    sigma,
    talks,
    units,
)
from cuebook.prompts.rollback_evidence import ConversationEvidence
from cuebook.prompts.select import checked
from cuebook.records.answer import Time
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.prompt import Branch, Observation, PromptEvent, Version

log = logging.getLogger("cuebook.regress")

#: Observations of a version above which only the background job loads them first: 10 ms per thousand.
EAGER = 2_000
Means = tuple[Sequence[float], Sequence[float]]


class PromptsToCheck(Struct):
    """Prompts to check, with the time when each is due, and the observations of each tenant already listed."""

    due_at: dict[tuple[str, str], float] = {}
    listed: dict[str, int] = {}


async def _due(services: Services, query: DueQuery) -> list[DueWork[str]]:
    """Return the prompts observed since their last check, and those to check again. The first scan lists all."""
    if services.config.prompts.rollback == "off":
        return []
    progress, now = services.caches.progress_of(PromptsToCheck), services.clock.now()
    for tenant in await services.prompts.tenants():
        prompts = services.of(tenant).prompts
        slugs, progress.listed[tenant] = await prompts.observed(Scope(), after=progress.listed.get(tenant, 0))
        progress.due_at |= dict.fromkeys([(tenant, slug) for slug in slugs], 0.0)
    # a clock may be set back
    due = [place for place, at in progress.due_at.items() if not now < at <= now + IDLE_S]
    return in_turn(DueWork(tenant, f"prompt {slug}", slug) for tenant, slug in due)[: query.limit]


async def _run(services: Services, scope: Scope, slug: str) -> bool:
    """Check a prompt. Check it again later if it was just observed, the check fails or the rollback is refused."""
    due_at, place = services.caches.progress_of(PromptsToCheck).due_at, (scope.tenant, slug)
    is_new = not due_at.get(place)
    due_at[place] = services.clock.now() + IDLE_S
    decisions = await review(services.of(scope.tenant), slug)
    if not is_new and all(each.decision != "refused" for each in decisions.values()):
        due_at.pop(place, None)
    return True


ROLLBACK = Job(name="rollback", due=_due, run=_run, remembers=True)


async def review(services: Services, slug: str, *, branch: str | None = None) -> dict[str, RollbackStatus]:
    """Judge the newest version of all branches or of one, and roll it back if needed. Return the status per branch."""
    family = (await services.prompts.families(Scope(), [slug], ancestors=False)).get(slug)
    stands = [each for each in family.branches if branch in (None, each.name)] if family else []
    return {each.name: await _review(services, slug, each) for each in stands}


async def status(services: Services, slug: str, branch: Branch) -> RollbackStatus:
    """Judge the newest version of a branch, without a rollback."""
    return (await _judge(services, slug, branch))[1]


async def _review(services: Services, slug: str, branch: Branch) -> RollbackStatus:
    contest, found = await _judge(services, slug, branch)
    if contest is None or found.decision != "rollback":
        return found
    try:
        await _take_back(services, contest, found)
    except Conflict:
        return RollbackStatus(decision="lost", reason="another process changed the branch first")
    finally:
        services.caches.trials.pop((slug, branch.name), None)
    await services.restore_file(slug)
    return found


async def _judge(services: Services, slug: str, branch: Branch) -> tuple[Contest | None, RollbackStatus]:
    """Return a branch's contest, None if it has none, and its status; `rollback` means that a rollback is allowed."""
    if services.config.prompts.rollback == "off":
        return None, RollbackStatus(decision="off", reason="prompts.rollback is off")
    contest = await contest_of(services, slug, branch)
    if services.config.prompts.rollback == "guarded":
        await look(services, branch, contest, slug=slug)
    if isinstance(contest, str):
        return None, RollbackStatus(decision="none", reason=contest)
    verdict = await _verdict(services, contest)
    if verdict.decision == "wait" and services.config.learning.observe == "off":
        reason = f"{verdict.reason}; learning.observe is off, so only reported feedback counts"
        verdict = structs.replace(verdict, reason=reason)
    if verdict.decision != "rollback":
        return contest, verdict
    refused = refusal(contest.rollbacks, services.clock.now(), number=contest.docket.new, target=contest.docket.control)
    if not refused:
        return contest, verdict
    log.info("Prompt %s@%s was not rolled back: %s, but %s", slug, branch.name, verdict.reason, refused)
    return contest, structs.replace(verdict, decision="refused", reason=f"{verdict.reason}, but {refused}")


async def _take_back(services: Services, contest: Contest, found: RollbackStatus) -> None:
    """Activate the previous version and store the evidence."""
    numbers = [contest.docket.new]
    [version] = await services.prompts.versions(Scope(), contest.slug, branch=contest.branch, numbers=numbers)
    evidence = msgspec.to_builtins(found.evidence) | {"since": contest.docket.since}
    event = PromptEvent(
        kind="rollback",
        branch=contest.branch,
        number=contest.docket.new,
        to=contest.docket.control,
        by=ITSELF,
        reason=found.reason,
        at=Time(services.clock.now()),
        evidence=evidence,
    )
    context = {"to": contest.docket.control, "reason": found.reason, "evidence": evidence}
    record = receipt(services, version, "rollback", agent=ITSELF, context=context)
    await services.prompts.activate(Scope(), contest.slug, event, audit=record)


async def _verdict(services: Services, contest: Contest) -> RollbackStatus:
    if services.config.prompts.rollback == "sigma":
        return await _by_the_past(services, contest)
    docket = contest.docket
    if docket.by_lot:
        return docket.verdict()
    verdict = await _unaided(services, contest)
    if verdict.decision != "wait":
        return verdict
    reason = "no control group yet" if docket.watched else f"no control group: {docket.baseline}"
    return structs.replace(verdict, reason=f"{reason}; compared with the past: {verdict.reason}")


# ---- Sigma ----------------------------------------------------------------------------------------------------------


async def _by_the_past(services: Services, contest: Contest) -> RollbackStatus:
    """Judge by earlier conversations. Load other prompts only if the verdict is a rollback.

    A cleared version that is not in use is judged when it is active again.
    """
    docket = contest.docket
    before, recent = [each.score for each in docket.before], [each.score for each in docket.now if contest.speaks]
    verdict = sigma(before, recent, SIGMA)
    if verdict.decision != "rollback":
        return verdict
    others = await _others(services, contest, (docket.since, list(docket.now)[-SIGMA.window :][0].at), SIGMA)
    return sigma(before, recent, SIGMA, others=others)


async def _unaided(services: Services, contest: Contest) -> RollbackStatus:
    """Judge without a control version: by the previous version, or by the version's own first conversations."""
    docket = contest.docket
    before = _ones(docket.control_before)
    first, now = _ones(docket.new_first), _ones(docket.new_later)
    before, now = (first, now) if len(before) < UNAIDED.baseline else (before, [*first, *now])
    means, recent = [each.score for each in before], [each.score for each in now] if contest.speaks else []
    verdict = sigma(means, recent, UNAIDED)
    if verdict.decision != "rollback":
        return verdict
    until, began = now[0].at, now[-UNAIDED.window :][0].at
    beside = [each.score for each in _ones(docket.control_beside) if each.at >= began]
    others = [(means, beside), *await _others(services, contest, (until, began), UNAIDED)]
    return sigma(means, recent, UNAIDED, others=others)


def _ones(conversation_evidences: Iterable[ConversationEvidence]) -> list[ConversationEvidence]:
    """Exclude conversations in which both versions were used."""
    return [each for each in conversation_evidences if each.is_one]


async def _others(
    services: Services, contest: Contest, times: tuple[float, float], settings: SigmaSettings
) -> list[Means]:
    """Return the means of other prompts and branches in conversations without this one.

    `times` are the end of its baseline and the start of its window.
    """
    until, began = times
    place = (contest.slug, contest.branch)
    observations = await services.prompts.observations(Scope(), contest.slug, branch=contest.branch, limit=OBSERVATIONS)
    ours = {each.conversation for each in observations} - {""}
    results: list[Means] = []
    for family in (await services.prompts.every(Scope())).values():
        seen = await services.prompts.observations(Scope(), family.slug)
        apart = [each for each in seen if each.conversation not in ours]
        for branch in family.branches:
            if (family.slug, branch.name) == place:
                continue
            heard = [each for each in apart if each.branch == branch.name]
            said = talks(heard) if settings is UNAIDED else units(heard, services.clock.now())
            before = [each.score for each in said if each.at < until]
            results.append((before[-settings.baseline :], [each.score for each in said if each.at >= began]))
    return results


# ---- Observations ---------------------------------------------------------------------------------------------------


async def learn(
    services: Services,
    observation: Observation,
    version: Version,
    *,
    named: bool,
    placed: bool = True,
) -> tuple[Branch, RollbackStatus]:
    """Store an observation. Return its branch, and whether the branch's newest version was rolled back or why not.

    Unless the caller `named` the version or `placed` it on a branch, it is the version used in the conversation.
    """
    observation = structs.replace(observation, signals=checked(observation.signals))
    observation, version = await spoken(services, observation, version, named=named, placed=placed)
    record = observation_record(services, observation, version)
    stands = await services.prompts.observe(Scope(), observation, audit=record)
    if stands.observations > EAGER and (observation.slug, observation.branch) not in services.caches.evidence:
        reason = f"{stands.observations:,} observations: the background job judges them"
        return stands, RollbackStatus(decision="wait", reason=reason)
    return stands, await _review(services, observation.slug, stands)


def observation_record(services: Services, observation: Observation, version: Version, **more: Any) -> Record:
    """Return the audit record of an observation, with `more` context."""
    context = {name: getattr(observation, name) for name in ("score", "sentiment", "corrections")} | more
    context["outcome"] = observation.outcome or ""
    if observation.user:
        context["userId"] = observation.user  # in a text field, which can be erased
    return receipt(services, version, "observe", context=context, conversation=observation.conversation)
