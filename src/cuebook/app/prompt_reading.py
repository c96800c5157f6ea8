"""Prompts as they are read: by name, branch and version, with their ancestors, rendered and compared."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from cuebook.engine.desk import Desk
from cuebook.engine.prompting import resolved_of
from cuebook.errors import InvalidInput, NotFound
from cuebook.ports.prompts import Event, Family, FamilyPage
from cuebook.prompts.difference import Difference, difference
from cuebook.prompts.inherit import text_of
from cuebook.prompts.names import candidates, check_slug
from cuebook.prompts.params import coerce
from cuebook.prompts.template import render
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Resolved, Version


class Rendered(Struct, frozen=True, kw_only=True):
    """A rendered prompt and what it was rendered from. `timestamp` is ISO 8601 UTC."""

    text: str
    slug: str
    branch: str
    version: int
    semver: str
    digest: str
    timestamp: str
    lineage: tuple[str, ...] = ()


class Reading:
    """Prompts as they are read."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def page(self, *, prefix: str = "", limit: int = 50, after: str = "") -> FamilyPage:
        """List prompts by name."""
        if not 1 <= limit <= 200:
            msg = f"limit: {limit} is not between 1 and 200"
            raise InvalidInput(msg, where="limit")
        return await self._desk.prompts.page(Scope(), prefix=prefix, limit=limit, after=after)

    async def family(self, slug: str) -> Family:
        """Give a prompt as it stands: branches, active versions, labels. Raises NotFound."""
        names = candidates(check_slug(slug))
        found = await self._desk.prompts.families(Scope(), names, ancestors=False)
        for name in names:
            if name in found:
                return found[name]
        msg = f"no prompt {slug!r}; `cuebook prompt list` names those there are"
        raise NotFound(msg)

    async def get(self, slug: str, *, branch: str | None = None, version: int | None = None) -> Version:
        """Give a version: the active one of a branch unless named. Raises NotFound."""
        family = await self.family(slug)
        name = branch or MAIN
        active = family.version(name)
        if active is None:
            known = ", ".join(each.name for each in family.branches)
            msg = f"prompt {family.slug!r} has no branch {name!r}; it has {known}"
            raise NotFound(msg)
        if version is None or version == active.number:
            return active
        found = await self._desk.prompts.versions(Scope(), family.slug, branch=name, numbers=[version])
        if not found:
            stands = family.branch(name)
            newest = stands.head if stands else 0
            msg = f"prompt {family.slug!r} has no version {version} on {name!r}; it has 1 to {newest}"
            raise NotFound(msg)
        return found[0]

    async def versions(self, slug: str, *, branch: str | None = None) -> list[Version]:
        """Give all versions of a prompt, of one branch or of all, oldest first."""
        family = await self.family(slug)
        return await self._desk.prompts.versions(Scope(), family.slug, branch=branch)

    async def events(self, slug: str, *, limit: int = 100) -> list[Event]:
        """Give what was done to a prompt, the newest first."""
        return await self._desk.prompts.events(Scope(), (await self.family(slug)).slug, limit=limit)

    async def resolve(self, slug: str, *, branch: str | None = None, version: int | None = None) -> Resolved:
        """Give a version with its ancestors merged in. Raises NotFound, InvalidInput."""
        return await resolved_of(self._desk, await self.get(slug, branch=branch, version=version))

    async def render(
        self,
        slug: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        version: int | None = None,
    ) -> Rendered:
        """Render a prompt. Raises NotFound, and InvalidInput naming the parameter that is missing or unknown."""
        found = await self.resolve(slug, branch=branch, version=version)
        given = coerce(found.params, params or {})
        text = render(text_of(found), given, engine=found.engine, declared=set(given))
        own = found.version
        now = datetime.fromtimestamp(self._desk.clock.now(), UTC)
        return Rendered(
            text=text,
            slug=own.slug,
            branch=own.branch,
            version=own.number,
            semver=own.semver,
            digest=own.digest,
            timestamp=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            lineage=found.lineage,
        )

    async def diff(self, slug: str, a: int, b: int | None = None, *, branch: str | None = None) -> Difference:
        """Give what is other in version `b` (the active one unless named) than in `a`."""
        return difference(
            await self.get(slug, branch=branch, version=a), await self.get(slug, branch=branch, version=b)
        )
