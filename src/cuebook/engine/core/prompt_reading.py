"""Resolve prompts for turns and the public API: merge ancestors and select a variant among branches."""

import random
from collections.abc import Mapping

from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.interfaces.prompts import DEPTH, Family
from cuebook.prompts.inherit import resolve
from cuebook.prompts.names import candidates, parse_reference
from cuebook.prompts.select import Selection, epsilon_greedy, thompson, variant
from cuebook.records.memory import Scope
from cuebook.records.persona import Persona
from cuebook.records.prompt import MAIN, ResolvedVersion, Version
from cuebook.storage.store import Store

_OWN = Scope()


class Parents:
    """Loads ancestors: from the version being written, else their active version."""

    def __init__(self, families: Mapping[str, Family], fresh: Mapping[str, Version] | None = None) -> None:
        self._families = families
        self._fresh = fresh or {}

    def __call__(self, reference: str) -> Version | None:
        named = parse_reference(reference)
        if named.slug in self._fresh and named.branch in (None, MAIN) and named.number is None:
            return self._fresh[named.slug]
        family = self._families.get(named.slug)
        active = family.version(named.branch or MAIN) if family else None
        return active if active is not None and named.number in (None, active.number) else None


async def resolved_of(
    services: Services | Store, version: Version, families: Mapping[str, Family] | None = None, *, scope: Scope = _OWN
) -> ResolvedVersion:
    """Resolve a version. Pinned ancestors are loaded by number, within the scope's tenant."""
    known = dict(families or {})
    pinned: dict[str, Version] = {}
    pending: Version | None = version
    for _ in range(2 * DEPTH):
        if pending is None or pending.inherits is None:
            break
        named = parse_reference(pending.inherits)
        if named.slug not in known:
            known |= await services.prompts.families(scope, [named.slug])
        parent = Parents(known)(pending.inherits)
        if parent is None and named.number is not None:
            branch, numbers = named.branch or MAIN, [named.number]
            for found in await services.prompts.versions(scope, named.slug, branch=branch, numbers=numbers):
                parent = pinned[pending.inherits] = found
        pending = parent
    parents = Parents(known)
    return resolve(version, lambda reference: parents(reference) or pinned.get(reference))


def select_from(
    services: Services, family: Family, signals: Mapping[str, float], *, strategy: str, epsilon: float, seed: int | None
) -> Selection:
    """Select a variant of a family. Without a seed, use the project's random generator."""
    variants = [variant(version, branch) for version, branch in zip(family.active, family.branches, strict=True)]
    dice = random.Random(services.dice.new_id("seed") if seed is None else seed)  # noqa: S311  # a choice, no secret
    if strategy == "epsilon_greedy":
        return epsilon_greedy(variants, signals, epsilon=epsilon, roll=dice.random())
    if strategy != "thompson":
        msg = f"strategy: unknown value {strategy!r}. Available: epsilon_greedy, thompson."
        raise InvalidInput(msg, where="strategy")
    return thompson(variants, signals, family.evidence, dice)


def own_prompt(persona: Persona) -> str:
    """Return the id of the managed prompt for a persona's own text, if it exists."""
    return f"persona/{persona.id.lower()}"


def own_names(persona: Persona, project: str = "") -> tuple[str, ...]:
    """Return the possible prompt ids for a persona's own text, or none if its name cannot be part of an id."""
    try:
        return candidates(own_prompt(persona), project)
    except InvalidInput:
        return ()
