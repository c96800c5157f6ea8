"""Resolve prompts for turns and the public API: merge ancestors and select a variant among branches."""

import random
from collections.abc import Mapping, Sequence

from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.interfaces.prompts import Family
from cuebook.prompts.inherit import DEPTH, resolve
from cuebook.prompts.names import parse_reference
from cuebook.prompts.select import Selection, epsilon_greedy, thompson
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, ResolvedVersion, Version
from cuebook.storage.store import Store

_OWN = Scope()


async def resolved_of(
    services: Services | Store,
    version: Version,
    families: Mapping[str, Family] | None = None,
    *,
    fresh: Sequence[Version] = (),
    scope: Scope = _OWN,
) -> ResolvedVersion:
    """Resolve a version. Pinned ancestors are loaded by number, others are active, within the scope's tenant.

    `fresh` are versions that are about to be stored: each is its branch's active one, the last one if there are more.
    Raises InvalidInput for a missing ancestor or a cycle.
    """
    known = dict(families or {})
    ancestors: dict[str, Version | None] = {}
    pending: Version | None = version
    for _ in range(2 * DEPTH):
        if pending is None or pending.inherits is None:
            break
        named = parse_reference(pending.inherits, where="inherits")
        place = (named.slug, named.branch or MAIN)
        parent = next(
            (
                each
                for each in reversed(fresh)
                if (each.slug, each.branch) == place and named.number in (None, each.number)
            ),
            None,
        )
        if parent is None:
            if named.slug not in known:
                known |= await services.prompts.families(scope, [named.slug])
            active = known[named.slug].version(place[1]) if named.slug in known else None
            parent = active if active is not None and named.number in (None, active.number) else None
        if parent is None and named.number is not None:
            stored = await services.prompts.versions(scope, named.slug, branch=place[1], numbers=[named.number])
            parent = stored[0] if stored else None
        ancestors[pending.inherits] = parent
        pending = parent
    return resolve(version, ancestors.get)


def select_from(
    services: Services, family: Family, signals: Mapping[str, float], *, strategy: str, epsilon: float, seed: int | None
) -> Selection:
    """Select a variant of a family. Without a seed, use the project's random generator."""
    dice = random.Random(services.dice.new_id("seed") if seed is None else seed)  # noqa: S311  # a choice, no secret
    if strategy == "epsilon_greedy":
        return epsilon_greedy(family.variants, signals, epsilon=epsilon, roll=dice.random())
    if strategy != "thompson":
        msg = f"strategy: unknown value {strategy!r}. Available: epsilon_greedy, thompson."
        raise InvalidInput(msg, where="strategy")
    return thompson(family.variants, signals, family.evidence, uniform=dice.random, gauss=dice.gauss)
