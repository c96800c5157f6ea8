"""The prompt book's public API: write, read, render, compare, choose, learn and roll back prompts.

A prompt is named by its slug; without a branch `main` is meant, without a version the branch's active one. A slug that
is not found as it stands is looked for under `default/`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cuebook.app.prompt_ancestors import check_ancestors
from cuebook.engine.desk import Desk
from cuebook.engine.drafts import check_text
from cuebook.engine.prompting import resolved_of, select_from
from cuebook.engine.receipts import receipt
from cuebook.engine.regress import learn
from cuebook.errors import InvalidInput, NotFound
from cuebook.ports.prompts import Event, Family, FamilyPage, Write
from cuebook.prompts.difference import Difference, bump, check_semver, difference, next_semver
from cuebook.prompts.digest import sealed
from cuebook.prompts.files import write_file
from cuebook.prompts.inherit import Merged, merge3, text_of
from cuebook.prompts.learn import score
from cuebook.prompts.names import candidates, check_branch, check_section, check_slug, parse_reference
from cuebook.prompts.params import coerce, read_params
from cuebook.prompts.select import EPSILON, Selection, context_fit
from cuebook.prompts.template import render
from cuebook.records.memory import Scope
from cuebook.records.prompt import (
    MAIN,
    Branch,
    Engine,
    Label,
    Observation,
    Param,
    Resolved,
    TaskOutcome,
    Version,
)

#: What is asked for as `inherits` of a new version where it stays what it was; no prompt has such a name.
KEEP: Literal["(keep)"] = "(keep)"


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


class Observed(Struct, frozen=True, kw_only=True):
    """What an observation came to. `rolled_back`: it completed the evidence against its branch's newest version."""

    score: float
    edge_weight: float
    rolled_back: bool = False


class Prompts:
    """The prompts of a book."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # reading

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

    # writing

    async def save(  # a version's fields
        self,
        slug: str,
        sections: Mapping[str, str],
        *,
        branch: str = MAIN,
        type: str | None = None,  # noqa: A002  # the wire's name
        override_sections: Mapping[str, str] | None = None,
        params: Any = None,
        engine: Engine | None = None,
        inherits: str | None = KEEP,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        author: str = "",
        description: str | None = None,
        semver: str | None = None,
        sync: bool | None = None,
        base: int | None = None,
    ) -> Version:
        """Write a new version of a prompt, or a prompt that is new; what is not given stays what it was.

        `base` is the version its writer saw: Conflict where the head has moved on. The semantic version is suggested by
        what changed unless given. Raises InvalidInput.
        """
        check_slug(slug)
        check_branch(branch)
        family = (await self._desk.prompts.families(Scope(), [slug], ancestors=False)).get(slug)
        before = await self._head(family, branch)
        was = before or Version(slug=slug)
        version = Version(
            slug=slug,
            branch=branch,
            type=was.type if type is None else type,
            sections=_sections(sections, "sections"),
            override_sections=was.override_sections
            if override_sections is None
            else _sections(override_sections, "overrideSections"),
            params=was.params if params is None else _params(params),
            engine=was.engine if engine is None else engine,
            inherits=was.inherits if inherits == KEEP else inherits,
            metadata=was.metadata if metadata is None else dict(metadata),
            tags=was.tags if tags is None else tuple(tags),
            author=author,
            description=was.description if description is None else description,
            sync=was.sync if sync is None else sync,
        )
        return (await self.store([_numbered(version, before, semver)], base=base, by=author))[0]

    async def store(
        self, versions: Sequence[Version], *, base: int | None = None, if_changed: bool = False, by: str = ""
    ) -> list[Version]:
        """Store whole versions, all or none, each on its branch's head. Raises InvalidInput, Conflict, NotFound."""
        await self.check(versions)
        ready = [sealed(each) for each in versions]
        writes = [
            Write(version=each, base=base, if_changed=if_changed, audit=receipt(self._desk, each, "write", agent=by))
            for each in ready
        ]
        return await self._desk.prompts.save(Scope(), writes, by=by, now=self._desk.clock.now())

    async def check(self, versions: Sequence[Version]) -> None:
        """Refuse versions that could not be stored, alone or with each other. Raises InvalidInput."""
        for each in versions:
            self._check(each)
        await check_ancestors(self._desk, versions)

    async def fork(
        self, slug: str, name: str, *, branch: str = MAIN, version: int | None = None, by: str = ""
    ) -> Version:
        """Begin a branch with a copy of a version; nothing is shared afterwards. Raises Conflict where there is one."""
        check_branch(name)
        origin = await self.get(slug, branch=branch, version=version)
        copy = msgspec.structs.replace(origin, branch=name, number=0)
        told = receipt(self._desk, copy, "branch", agent=by)
        write = Write(version=copy, begins=(origin.branch, origin.number), audit=told)
        return (await self._desk.prompts.save(Scope(), [write], by=by, now=self._desk.clock.now()))[0]

    async def merge(self, slug: str, branch: str, *, into: str = MAIN, by: str = "") -> tuple[Version | None, Merged]:
        """Merge a branch's sections into another, against the version it was forked from.

        With conflicts nothing is written: they are answered, each with both texts. Raises NotFound, InvalidInput.
        """
        theirs, ours = await self.get(slug, branch=branch), await self.get(slug, branch=into)
        first = (await self._desk.prompts.versions(Scope(), theirs.slug, branch=branch))[0]
        origin, _, number = first.branched_from.rpartition(":")
        if not origin:
            msg = f"branch {branch!r} of prompt {theirs.slug!r} was forked from none; there is nothing to merge against"
            raise InvalidInput(msg, where="branch")
        base = await self.get(theirs.slug, branch=origin, version=int(number))
        merged = merge3(base.sections, ours.sections, theirs.sections)
        over = merge3(base.override_sections, ours.override_sections, theirs.override_sections)
        if merged.conflicts or over.conflicts:
            return None, msgspec.structs.replace(merged, conflicts=(*merged.conflicts, *over.conflicts))
        version = msgspec.structs.replace(
            ours, sections=merged.sections, override_sections=over.sections, digest="", author=""
        )
        stored = await self.store([_numbered(version, ours, None)], base=None, by=by)
        return stored[0], merged

    async def label(
        self, slug: str, name: str, *, branch: str = MAIN, version: int | None = None, by: str = ""
    ) -> Label:
        """Point a label such as `production` at a version, the active one unless named."""
        check_branch(name, where="label")
        found = await self.get(slug, branch=branch, version=version)
        label = Label(name=name, branch=found.branch, number=found.number, moved_by=by, moved_at=self._desk.clock.now())
        told = receipt(self._desk, found, "label", agent=by, context={"label": name})
        await self._desk.prompts.move_label(Scope(), found.slug, label, audit=told)
        return label

    # choosing and learning

    async def select(
        self,
        slug: str,
        signals: Mapping[str, float] | None = None,
        *,
        strategy: str | None = None,
        epsilon: float = EPSILON,
        seed: int | None = None,
    ) -> Selection:
        """Choose among a prompt's variants, the active versions of its branches. The same seed chooses the same."""
        family = await self.family(slug)
        return select_from(
            self._desk, family, signals or {}, strategy=strategy or "epsilon_greedy", epsilon=epsilon, seed=seed
        )

    async def observe(
        self,
        slug: str,
        *,
        sentiment: float,
        corrections: int = 0,
        outcome: TaskOutcome | None = None,
        branch: str = MAIN,
        version: int | None = None,
        signals: Mapping[str, float] | None = None,
        propensity: float = 1.0,
        conversation: str = "",
        user: str = "",
    ) -> Observed:
        """Keep a round's word on a version: named, its conversation's, or the active one. Raises InvalidInput."""
        found = await self.get(slug, branch=branch, version=version)
        seen = Observation(
            slug=found.slug,
            branch=found.branch,
            number=found.number,
            score=score(sentiment, corrections, outcome),
            sentiment=sentiment,
            corrections=corrections,
            outcome=outcome,
            signals=dict(signals or {}),
            propensity=propensity,
            conversation=conversation,
            user=user,
            at=self._desk.clock.now(),
        )
        stands, taken_back = await learn(self._desk, seen, found, named=version is not None)
        return Observed(score=seen.score, edge_weight=stands.weight, rolled_back=taken_back)

    async def roll_back(
        self, slug: str, *, branch: str = MAIN, to: int | None = None, reason: str, by: str = ""
    ) -> Branch:
        """Make an earlier version active again; the one before is not explored until it is cleared.

        `to` is the version before the active one unless named. Raises InvalidInput where there is none.
        """
        active = await self.get(slug, branch=branch)
        target = active.number - 1 if to is None else to
        if target < 1 or target == active.number:
            what = f"version {active.number} of {active.slug!r} is active on {branch!r}"
            msg = f"{what}: there is no version {target} to go back to"
            raise InvalidInput(msg, where="to")
        event = Event(
            kind="rollback",
            branch=branch,
            number=active.number,
            to=target,
            by=by,
            reason=reason,
            at=self._desk.clock.now(),
        )
        told = receipt(self._desk, active, "rollback", agent=by, context={"to": target, "reason": reason})
        return await self._desk.prompts.activate(Scope(), active.slug, event, audit=told)

    async def clear(self, slug: str, version: int, *, branch: str = MAIN, by: str = "", reason: str = "") -> Branch:
        """Let a version that was rolled back be explored again."""
        found = await self.get(slug, branch=branch, version=version)
        event = Event(kind="clear", branch=branch, number=found.number, by=by, reason=reason, at=self._desk.clock.now())
        told = receipt(self._desk, found, "clear", agent=by, context={"reason": reason})
        return await self._desk.prompts.activate(Scope(), found.slug, event, audit=told)

    # inside

    async def _head(self, family: Family | None, branch: str) -> Version | None:
        """Give a branch's newest version."""
        found = family.branch(branch) if family else None
        if family is None or found is None:
            return None
        active = family.version(branch)
        if active is not None and active.number == found.head:
            return active
        versions = await self._desk.prompts.versions(Scope(), family.slug, branch=branch, numbers=[found.head])
        return versions[0]

    def _check(self, version: Version) -> None:
        check_slug(version.slug)
        check_branch(version.branch)
        check_semver(version.semver)
        if version.inherits is not None and parse_reference(version.inherits, where="inherits").slug == version.slug:
            msg = f"inherits: prompt {version.slug!r} cannot inherit from itself"
            raise InvalidInput(msg, where="inherits")
        context_fit(version.context_weights, {})  # a weight that is no number stops all choosing
        for place, texts in (("sections", version.sections), ("overrideSections", version.override_sections)):
            for name, text in texts.items():
                check_section(name, where=place)
                check_text(text, f"{place}.{name}")
        write_file(version)  # what no file can hold is refused


def _numbered(version: Version, before: Version | None, semver: str | None) -> Version:
    """Give a version with its semantic version: the given one, else what the change asks for."""
    if semver is not None:
        return msgspec.structs.replace(version, semver=semver)
    if before is None:
        return version
    return msgspec.structs.replace(version, semver=next_semver(before.semver, bump(difference(before, version))))


def _sections(given: Mapping[str, Any], where: str) -> dict[str, str]:
    for name, text in given.items():
        check_section(name, where=where)
        if not isinstance(text, str):
            msg = f"{where}.{name}: expected a text, got {type(text).__name__}"
            raise InvalidInput(msg, where=f"{where}.{name}")
    return dict(given)


def _params(given: Any) -> tuple[Param, ...]:
    ready = isinstance(given, tuple) and all(isinstance(each, Param) for each in given)
    return given if ready else read_params(given)
