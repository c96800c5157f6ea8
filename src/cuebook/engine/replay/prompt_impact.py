"""Prompt impact: build a recorded window with each of two prompt versions and compare the windows.

A version replaces both versions of its branch wherever one was used, and in prompts that inherit from it. The other
system texts stay as recorded.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import Services
from cuebook.engine.replay.recorded_turn import RecordedTurn, plan_again
from cuebook.engine.turn.compare import prefix_ratio
from cuebook.engine.turn.front import own_prompt, spoken, values_of
from cuebook.engine.turn.plan import Planned
from cuebook.errors import CuebookError, InvalidInput
from cuebook.interfaces.prompts import Family
from cuebook.prompts.names import DEFAULT, Reference, parse_reference
from cuebook.records.memory import Scope
from cuebook.records.persona import Persona
from cuebook.records.prompt import ResolvedVersion, Version
from cuebook.records.turn import Manifest
from cuebook.window.post_forms import PostInForm
from cuebook.window.window import Text

#: A block in only one of two windows: its kind and its tokens.
Gone = tuple[str, int]

_PROMPT = "prompt:"


class VersionFront(Struct, frozen=True, kw_only=True):
    """A turn's system texts with a version in place. `unsaid` is the reason if it could not be rendered."""

    front: tuple[Text, ...]
    tokens: int  # of the texts that contain the version
    unsaid: str = ""


class Shift(Struct, frozen=True, kw_only=True):
    """Differences between a window with the new version and one with the old version, in tokens.

    `refused`: the required parts did not fit, and the turn would have failed.
    """

    prompt: tuple[int, int]
    window: tuple[int, int] = (0, 0)
    left_out: tuple[Gone, ...] = ()
    let_in: tuple[Gone, ...] = ()
    shortened: int = 0  # posts that were whole, and are now compressed or cut
    prefix: float = 1.0  # bytes of the common prefix over the bytes of the window after
    reproduced: bool = False  # the recorded system prompt rebuilt the recorded window, byte for byte
    refused: bool = False
    unsaid: str = ""


class Versions:
    """Two versions of one prompt, as candidates for a turn's system prompt."""

    def __init__(self, services: Services, before: Version, after: Version) -> None:
        self._services = services
        self._sides = {"before": before, "after": after}
        self._branches = {before.branch, after.branch}
        self._slug = after.slug
        self._resolved: dict[tuple[str, str], ResolvedVersion | CuebookError | None] = {}

    async def concern(self, manifest: Manifest) -> bool:
        """Return whether a window used one of them, or a prompt that inherits from them."""
        return any([await self._find(text.source, "after") is not None for text in manifest.front])

    async def front_with(self, recorded: RecordedTurn, side: Literal["before", "after"]) -> VersionFront:
        """Return a turn's system texts with one of them in place."""
        persona = _persona_of(self._services, recorded)
        mode = recorded.turn.metadata.get("mode")
        values = values_of(
            persona,
            user=recorded.conversation.user,
            mode=mode if isinstance(mode, str) else None,
            now=recorded.turn.created_at,
            zone=recorded.wish.zone,
        )
        front: list[Text] = []
        tokens, unsaid = 0, ""
        for text in recorded.wish.front:
            result = await self._find(text.source, side)
            if result is None:
                front.append(text)
                continue
            try:
                rendered = _speak(result, values)
            except CuebookError as error:
                unsaid = str(error)
                continue
            if rendered.strip():
                tokens += self._services.count(rendered)
                front.append(replace(text, text=rendered, tokens=0))
        return VersionFront(front=tuple(front), tokens=tokens, unsaid=unsaid)

    async def _find(self, source: str, side: Literal["before", "after"]) -> ResolvedVersion | CuebookError | None:
        """Return the replacement of a block, or None if the block is unrelated to them."""
        if not source.startswith(_PROMPT):
            return None
        if (source, side) not in self._resolved:
            try:
                self._resolved[source, side] = await self._resolve(parse_reference(source[len(_PROMPT) :]), side)
            except CuebookError as error:
                self._resolved[source, side] = error
        return self._resolved[source, side]

    async def _resolve(self, reference: Reference, side: Literal["before", "after"]) -> ResolvedVersion | None:
        version = self._sides[side]
        if reference.slug == self._slug:
            return await resolved_of(self._services, version) if reference.branch in self._branches else None
        numbers = [reference.number or 0]
        versions = await self._services.prompts.versions(
            Scope(), reference.slug, branch=reference.branch, numbers=numbers
        )
        if not versions or versions[0].inherits is None:
            return None
        slugs = [reference.slug, parse_reference(versions[0].inherits).slug]
        families = await self._services.prompts.families(Scope(), slugs)
        family = families.get(self._slug)
        if family is None:
            return None
        stood = {name: replace(version, branch=name, number=0) for name in self._branches}
        resolved = await resolved_of(self._services, versions[0], {**families, self._slug: _put(family, stood)})
        return resolved if {each.source for each in stood.values()} & set(resolved.lineage) else None


async def shift(services: Services, recorded: RecordedTurn, versions: Versions) -> Shift:
    """Build a recorded window with each version and compare. Raises InvalidInput if even the first does not fit."""
    before, after = await versions.front_with(recorded, "before"), await versions.front_with(recorded, "after")
    known: dict[tuple[str, ...], Planned] = {}

    def planned(front: tuple[Text, ...]) -> Planned:
        values = tuple(text.text for text in front)
        if values not in known:
            known[values] = plan_again(services, recorded, front)
        return known[values]

    was = planned(before.front)
    await asyncio.sleep(0)  # each takes up to 20 ms: do not block others
    prompt, reproduced = (before.tokens, after.tokens), _reproduced(recorded, planned)
    await asyncio.sleep(0)
    try:
        would = planned(after.front)
    except InvalidInput:
        return Shift(prompt=prompt, reproduced=reproduced, refused=True, unsaid=after.unsaid)
    return Shift(
        prompt=prompt,
        window=(was.window.tokens, would.window.tokens),
        left_out=_gone(was, would),
        let_in=_gone(would, was),
        shortened=_shortened(was, would),
        prefix=prefix_ratio(was.window.messages, would.window.messages),
        reproduced=reproduced,
        unsaid=after.unsaid,
    )


def _reproduced(recorded: RecordedTurn, planned: Callable[[tuple[Text, ...]], Planned]) -> bool:
    try:
        again = planned(recorded.wish.front)
    except InvalidInput:
        return False
    return again.remembered.manifest.digest == recorded.manifest.digest


def _gone(one: Planned, other: Planned) -> tuple[Gone, ...]:
    """Return what only the first window has: posts in any form, recalled text, the summary.

    A post shown in full by the other window does not count when it is no longer recalled.
    """
    posts, others = _kept(one), _kept(other)
    entries = {f"post:{post_in_form.post.id}" for post_in_form in others.values() if post_in_form.form == "full"}
    entries.update(text.source for text in other.sheet.volatile)
    gone = [("post", post_in_form.tokens) for seq, post_in_form in posts.items() if seq not in others]
    gone += [(text.kind, text.tokens) for text in one.sheet.volatile if text.source not in entries]
    if one.sheet.summary and not other.sheet.summary:
        gone.append(("summary", one.sheet.summary.tokens))
    return tuple(gone)


def _shortened(one: Planned, other: Planned) -> int:
    others = _kept(other)
    both = [(post_in_form, others[seq]) for seq, post_in_form in _kept(one).items() if seq in others]
    return sum(was.form == "full" and now.form != "full" for was, now in both)


def _kept(planned: Planned) -> dict[int, PostInForm]:
    return {post_in_form.post.seq: post_in_form for post_in_form in planned.sheet.partition.kept}


def _speak(result: ResolvedVersion | CuebookError, values: Mapping[str, str]) -> str:
    if isinstance(result, CuebookError):
        raise result
    return spoken(result, values)[1]


def _put(family: Family, versions: Mapping[str, Version]) -> Family:
    """Return a prompt with other active versions on its branches."""
    return replace(family, active=tuple(versions.get(each.branch, each) for each in family.active))


def _persona_of(services: Services, recorded: RecordedTurn) -> Persona:
    """Return a turn's persona: the one in its system prompt, else its conversation's, or the default one."""
    sources = [text.source for text in recorded.wish.front]
    for persona in services.settings.personas.values():
        own = (f"persona:{persona.id}@", *(f"{_PROMPT}{there}{own_prompt(persona)}@" for there in ("", DEFAULT)))
        if any(source.startswith(own) for source in sources):
            return persona
    name = recorded.conversation.persona
    return services.settings.persona(name if name in services.settings.personas else None)
