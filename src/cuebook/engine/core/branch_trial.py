"""A/B trial of a branch's new version against the one before it: select a version per conversation (N8).

With `rollback = "guarded"` the newest version of a branch is on trial. The previously active version, its control,
keeps a share of the conversations: half, then a tenth, as the verdict decides. A hash of the conversation's name
selects the version. The turn's metadata store it with its probability, so that a conversation keeps its version when
the share changes. All state is derived from events and observations, so that a crash loses none. A version is not on
trial

- if its predecessor was observed in fewer than 20 conversations: without a baseline, an edit applies to all;

- if it was rolled back, until it is cleared: then it gets its share again, judged by new evidence only;

- as an ancestor: children use the active version of what they inherit from.

If no turn selects versions, because a program renders the prompt itself, a version is compared with the past, and only
rolled back for a large drop (`rollback.UNAIDED`).

Each process loads an observation once (`prompts.docket`): a turn and a judgement load only what is new. The first load,
and the first after a correction, reads the newest 50,000 observations of the two versions.
"""

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from cuebook.engine.core.services import OnTrial, Services, TrialCacheEntry
from cuebook.errors import NotFound
from cuebook.interfaces.prompts import Family
from cuebook.prompts.rollback import share_of
from cuebook.prompts.rollback_evidence import Docket
from cuebook.prompts.trial import GuardSettings
from cuebook.records.memory import Scope
from cuebook.records.prompt import Branch, Observation, PromptEvent, Version

GUARD = GuardSettings()
EVENTS = 1_000
OBSERVATIONS = 50_000
#: Seconds that a turn uses a cached share; the background job refreshes it.
FRESH_S = 60.0


class Contest(Struct, frozen=True, kw_only=True):
    """The data about a branch's newest version and the one before it."""

    slug: str
    branch: str
    docket: Docket
    rollbacks: tuple[PromptEvent, ...]
    speaks: bool  # whether the new version is active


#: The selected version, its probability, and the name of its trial.
Lot = tuple[Version, float, str]


async def contest_of(services: Services, slug: str, branch: Branch) -> Contest | str:
    """Load a branch's contest, or return the reason why no earlier version can be activated."""
    if branch.head == 1:
        return "version 1 is the first of its branch"
    if branch.head in branch.rolled_back:
        return f"version {branch.head} was rolled back, version {branch.active} is active"
    events = (await services.prompts.events(Scope(), slug, branch=branch.name, limit=EVENTS))[::-1]
    control, since = _before(events, branch)
    if not control:
        return f"no version was active before version {branch.head}"
    if control in branch.rolled_back:
        return f"version {control}, active before version {branch.head}, was itself rolled back"
    return Contest(
        slug=slug,
        branch=branch.name,
        docket=await _docket(services, (slug, branch.name), new=branch.head, control=control, since=since),
        rollbacks=tuple(each for each in events if each.kind == "rollback"),
        speaks=branch.active == branch.head,
    )


async def _docket(services: Services, place: tuple[str, str], *, new: int, control: int, since: float) -> Docket:
    """Return a contest's evidence, including observations since the last load."""
    name = f"{new}:{control}:{since}"  # trial name in turns; a restarted trial gets a new name
    while True:
        docket = services.caches.evidence.get(place)
        if docket is None or docket.name != name:
            fresh = Docket(name, new, control, since, settings=GUARD)
            observations, mark, revised = await services.prompts.observations_since(
                Scope(), *place, (new, control), after=0, limit=OBSERVATIONS
            )
            fresh.revised = revised
            cut = len(observations) == OBSERVATIONS
            await asyncio.to_thread(fresh.add, observations, mark, services.clock.now(), cut=cut)  # there may be many
            services.caches.evidence[place] = fresh
            return fresh
        before = docket.mark
        observations, mark, revised = await services.prompts.observations_since(
            Scope(), *place, (new, control), after=before, limit=OBSERVATIONS
        )
        if docket.revised != revised:  # a cached observation changed
            services.caches.evidence.pop(place, None)
        elif docket.mark == before:  # no other task was faster
            docket.add(observations, mark, services.clock.now())
            return docket


def _before(events: Sequence[PromptEvent], branch: Branch) -> tuple[int, float]:
    """Return the version active before the newest (0 for none), and the time since which the newest counts."""
    active = before = 0
    since = math.inf
    for each in events:
        if each.kind in ("write", "branch"):
            if each.number == branch.head:
                before, since = active, each.at
            active = each.number
        elif each.kind == "rollback":
            active = each.to or 0
        elif each.kind == "clear" and each.number == branch.head:
            since = each.at
    return (before if branch.active == branch.head else branch.active), since


# ---- Selection in a turn --------------------------------------------------------------------------------------------


async def on_trial(services: Services, slug: str, branch: Branch) -> OnTrial | None:
    """Return a branch's trial from the cache, for up to a minute unless its versions changed."""
    if services.config.prompts.rollback != "guarded" or branch.head == 1 or branch.head in branch.rolled_back:
        return None
    trial_cache_entry, now = services.caches.trials.get((slug, branch.name)), services.clock.now()
    if trial_cache_entry and trial_cache_entry.key == _key(branch) and 0.0 <= now - trial_cache_entry.at < FRESH_S:
        return trial_cache_entry.trial
    return await look(services, branch, await contest_of(services, slug, branch), slug=slug)


async def look(services: Services, branch: Branch, contest: Contest | str, *, slug: str) -> OnTrial | None:
    """Load a trial and cache it for turns."""
    trial = None
    if isinstance(contest, Contest) and contest.docket.watched:
        new, control = contest.docket.new, contest.docket.control
        versions = await services.prompts.versions(Scope(), slug, branch=branch.name, numbers=(new, control))
        pair = {each.number: each for each in versions}
        trial = OnTrial(
            new=pair[new],
            control=pair[control],
            share=share_of(contest.docket.verdict(), GUARD),
            name=contest.docket.name,
        )
    services.caches.trials[slug, branch.name] = TrialCacheEntry(key=_key(branch), at=services.clock.now(), trial=trial)
    return trial


async def drawn(services: Services, family: Family, branch: str, *, conversation: str, told: object) -> Lot | None:
    """Return the version for a branch on trial: the conversation's earlier one, or the one selected by hash."""
    stands = family.branch(branch)
    trial = await on_trial(services, family.slug, stands) if stands else None
    if trial is None:
        return None
    remaining: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    share = remaining.get("share")
    if remaining.get("trial") == trial.name and remaining.get("branch") == branch and isinstance(share, float):
        for version in (trial.new, trial.control):
            if remaining.get("version") == version.number:
                return version, share, trial.name
    name = f"{conversation}\x00{family.slug}\x00{branch}\x00{trial.name}".encode("utf-8", "surrogatepass")
    roll = int.from_bytes(hashlib.blake2b(name, key=services.settings.key[:64], digest_size=6).digest(), "big") / (
        1 << 48
    )
    if roll < trial.share:
        return trial.new, trial.share, trial.name
    return trial.control, 1.0 - trial.share, trial.name


def _key(branch: Branch) -> tuple[int, int, tuple[int, ...]]:
    return branch.head, branch.active, branch.rolled_back


# ---- Observations ---------------------------------------------------------------------------------------------------


async def spoken(
    services: Services, observation: Observation, version: Version, *, named: bool, placed: bool = True
) -> tuple[Observation, Version]:
    """Return the version and probability that an observation is about, by its conversation's newest turn.

    Values from the caller take precedence: the version if `named`, the branch if `placed`, a propensity below 1. An
    unknown conversation changes nothing.
    """
    if not observation.conversation or observation.propensity < 1.0:
        return observation, version
    try:
        turns = await services.store.turns(Scope(user=observation.user or None), observation.conversation, last=1)
    except NotFound:
        return observation, version
    variants = turns[-1].metadata.get("promptVariants") if turns else None
    value = variants.get(version.slug) if isinstance(variants, Mapping) else None
    if not isinstance(value, Mapping):
        return observation, version
    branch, number = value["branch"], value["version"]
    if (placed and branch != version.branch) or (named and number != version.number):
        return observation, version
    if (branch, number) != (version.branch, version.number):
        versions = await services.prompts.versions(Scope(), version.slug, branch=branch, numbers=[number])
        if not versions:
            return observation, version
        version = versions[0]
    lot = {"propensity": value["propensity"], "share": value["share"]} if "share" in value else {}
    return structs.replace(observation, branch=branch, number=number, **lot), version
