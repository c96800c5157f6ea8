"""Whether versions may be stored: each one's ancestors are there, those written with it among them, and in no ring."""

from collections.abc import Sequence

from cuebook.engine.core.desk import Desk
from cuebook.ports.prompts import DEPTH, Family
from cuebook.prompts.inherit import resolve
from cuebook.prompts.names import parse_reference
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Version


async def check_ancestors(desk: Desk, versions: Sequence[Version]) -> None:
    """Refuse versions whose ancestors are missing or inherit each other in a ring. Raises InvalidInput naming it.

    The last one given of a branch is what its children follow; one with a number is found by its number.
    """
    parents = _Parents(desk, versions)
    for each in versions:
        pending: Version | None = each
        for _ in range(DEPTH + 2):  # a ring has been all around by then
            if pending is None or pending.inherits is None:
                break
            pending = await parents.find(pending.inherits)
        resolve(each, parents.found.get)


class _Parents:
    """Ancestors by reference as it is written: what is being stored, else what is active, else what a number pins."""

    def __init__(self, desk: Desk, versions: Sequence[Version]) -> None:
        self.found: dict[str, Version] = {}
        self._desk = desk
        self._last = {(each.slug, each.branch): each for each in versions}
        self._numbered = {(each.slug, each.branch, each.number): each for each in versions if each.number}
        self._families: dict[str, Family] = {}

    async def find(self, reference: str) -> Version | None:
        if reference not in self.found:
            named = parse_reference(reference, where="inherits")
            branch = named.branch or MAIN
            version = await (
                self._newest(named.slug, branch)
                if named.number is None
                else self._pinned(named.slug, branch, named.number)
            )
            if version is not None:
                self.found[reference] = version
        return self.found.get(reference)

    async def _newest(self, slug: str, branch: str) -> Version | None:
        if (slug, branch) in self._last:
            return self._last[slug, branch]
        if slug not in self._families:
            self._families |= await self._desk.prompts.families(Scope(), [slug])
        family = self._families.get(slug)
        return family.version(branch) if family else None

    async def _pinned(self, slug: str, branch: str, number: int) -> Version | None:
        if (slug, branch, number) in self._numbered:
            return self._numbered[slug, branch, number]
        stored = await self._desk.prompts.versions(Scope(), slug, branch=branch, numbers=[number])
        return stored[0] if stored else None
