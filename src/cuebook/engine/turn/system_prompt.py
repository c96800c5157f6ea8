"""Build a turn's system prompt: the persona, its prompt chain, and the profile's add-ons (P1-P4, K8).

It is built once per turn; later steps load the texts from the first step's manifest. A persona's own text comes first,
as the managed prompt `persona/ID` if that exists. Then come the chain `init`, `persona`, `summary`, and the add-ons in
the preset's order. The chain's `fallback` replaces a link that cannot be rendered. A link that names the persona's own
text moves it to the link's place. A persona's `baseSystemPrompt` applies without a managed prompt. A project's prompts
under `projects/NAME/` shadow those with the same id (K9).
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.branch_trial import drawn
from cuebook.engine.core.prompt_reading import resolved_of, select_from
from cuebook.engine.core.services import Services
from cuebook.engine.turn.experiences import SelectedExperiences, told_of
from cuebook.engine.turn.turn_signals import (
    MIND,
    SENTIMENT,
    mode_of,
    mood_of,
    mood_tasks,
    mood_text,
    mood_to_wire,
    signals_for,
    signals_to_wire,
    speaker_in,
)
from cuebook.errors import CuebookError, InvalidInput
from cuebook.interfaces.prompts import Family
from cuebook.interfaces.store import MetapromptTask, Scene
from cuebook.memory.tokenizer import day_of
from cuebook.prompts.inherit import text_of
from cuebook.prompts.names import candidates, own_names, parse_reference, project_of
from cuebook.prompts.params import coerce
from cuebook.prompts.presets import CACHED, Profile, route
from cuebook.prompts.template import render
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.mind import TurnSignals
from cuebook.records.persona import CHAIN, Persona
from cuebook.records.prompt import MAIN, ResolvedVersion, Version
from cuebook.records.turn import CLIENT, Ask, Block, BlockKind, Dropped, Turn, WorkUsage

#: Block type of each link of a chain.
_KINDS: Mapping[str, BlockKind] = {"init": "section", "persona": "persona", "summary": "section", "fallback": "section"}
#: Metadata key of turns in which only the client's own system text was used.
SILENT = "personaSilent"
#: Metadata keys that later steps of a turn copy from the first.
_OF_THE_TURN = (
    SILENT,
    "promptProject",
    "promptProfile",
    "promptVariants",
    "promptVariant",
    "experienceSelection",
    "sentiment",
    "mind",
)


class SystemPrompt(Struct, frozen=True, kw_only=True):
    """The system prompt of a turn, and what goes beside its query: mood state and experiences."""

    texts: tuple[Block, ...] = ()
    dropped: tuple[Dropped, ...] = ()  # errors of those that failed to render
    audit: tuple[Record, ...] = ()
    mood: Block | None = None
    tasks: tuple[MetapromptTask, ...] = ()  # of the reflection
    advice: tuple[Block, ...] = ()  # best first
    advice_messages: tuple[bytes, ...] = ()  # to the model that selects experiences
    work: tuple[WorkUsage, ...] = ()  # usage of that model
    metadata: Mapping[str, Any] = {}  # the selections and signals, for the reply
    volatile: tuple[Block, ...] | None = None  # in a later step: all texts beside the query, as in the first


async def system_prompt(services: Services, scene: Scene, ask: Ask, *, signals: TurnSignals | None) -> SystemPrompt:
    """Build a turn's system prompt, without experiences.

    A client of the proxy that names no persona, or makes a utility call, may get none: only its own text applies then,
    and there is no mood state either.
    """
    silent = is_silent(services, scene, ask)
    prompt = SystemPrompt(metadata={SILENT: True})
    if not silent:
        prompt = await _render(services, scene, ask, signals_for(ask, signals))
    metadata = {**prompt.metadata, **({SENTIMENT: signals_to_wire(signals)} if signals else {})}
    tasks = None if silent else mood_tasks(services, scene, ask, signals)
    if tasks is not None:
        prompt = replace(prompt, mood=mood_text(scene), tasks=tasks)
        metadata[MIND] = mood_to_wire(mood_of(scene))
    return replace(prompt, metadata=metadata)


def is_silent(services: Services, scene: Scene, ask: Ask) -> bool:
    """Return whether only the client's own system text applies."""
    named = ask.persona or scene.conversation.persona
    return ask.utility or (ask.relayed and services.config.persona.speaks == "asked" and not named)


def with_advice(prompt: SystemPrompt, texts: tuple[Block, ...], selected: SelectedExperiences | None) -> SystemPrompt:
    """Return a turn's system prompt with the selected experiences."""
    if selected is None:
        return prompt
    call, metadata = selected.selected, {**prompt.metadata, **told_of(selected)}
    prompt = replace(prompt, advice=texts, metadata=metadata)
    return replace(prompt, advice_messages=call.messages, work=call.usages) if call else prompt


async def _render(services: Services, scene: Scene, ask: Ask, signals: Mapping[str, float]) -> SystemPrompt:
    """Render the persona, its chain and add-ons. Select variants by these signals."""
    persona = speaker_in(services, scene, ask)
    profile = _profile(services, scene, ask)
    addons = profile.addon_keys if profile else ()
    project = project_of(ask.project, scene.conversation.metadata.get("project"), services.settings.project)
    own = _first(own_names(persona.id, project), scene.families)
    if not (addons or persona.chain or own):
        return SystemPrompt(texts=_base(persona), metadata=_selection(profile, project, {}))
    fresh = profile is not None and profile.reason != CACHED
    speaker = _Speaker(services, scene, ask, persona, project, fresh=fresh, signals=signals)
    links = {speaker.resolve_name(slug) for slug in persona.chain.values()}
    texts: list[Block | None] = []
    if own is None or own not in links:  # a link that names it renders it in the link's place
        own_text = await speaker.text("persona", own) if own else None
        texts += [own_text] if own_text else _base(persona)
    texts += [await speaker.link(persona, key) for key in CHAIN if key != "fallback" and key in persona.chain]
    texts += [await speaker.text("addon", speaker.resolve_name(key) or key) for key in addons]
    rendered = tuple(text for text in texts if text is not None)
    return SystemPrompt(
        texts=rendered,
        dropped=tuple(speaker.dropped),
        metadata=_selection(profile, project, speaker.chosen) | _variant(rendered, speaker.chosen, signals),
        audit=tuple(speaker.renders),
    )


def _variant(texts: Sequence[Block], chosen: Mapping[str, Any], signals: Mapping[str, float]) -> dict[str, Any]:
    """Return `metadata.promptVariant`: the selected variant of the persona's prompt, with its probability."""
    for text in texts:
        if text.kind == "persona" and text.source.startswith("prompt:"):
            reference = parse_reference(text.source.removeprefix("prompt:"), where="prompt")
            propensity = chosen.get(reference.slug, {}).get("propensity", 1.0)
            values = {"id": reference.slug, "version": reference.number, "branch": reference.branch}
            return {"promptVariant": values | {"propensity": propensity, "signals": dict(signals)}}
    return {}


async def first_system_prompt(services: Services, scope: Scope, turn: Turn) -> SystemPrompt:
    """Load the system prompt of a turn's first step and its volatile block, which all its steps share."""
    manifest = turn.steps[0].manifest
    front = [text for text in manifest.front if text.source != CLIENT and text.kind != "summary"]
    texts = await services.store.texts(scope, [text.digest for text in (*front, *manifest.volatile)])
    front_texts, volatile = (
        tuple(
            Block(kind=text.kind, source=text.source, role=text.role, text=texts[text.digest])
            for text in stored
            if text.digest in texts
        )
        for stored in (front, manifest.volatile)
    )
    metadata = {key: turn.metadata[key] for key in _OF_THE_TURN if key in turn.metadata}
    return SystemPrompt(texts=front_texts, volatile=volatile, metadata=metadata)


def _first(names: Sequence[str], families: Mapping[str, Family]) -> str | None:
    """Return the first of some names that is a prompt."""
    return next((name for name in names if name in families), None)


def _base(persona: Persona) -> tuple[Block, ...]:
    if not persona.base_system_prompt:
        return ()
    return (Block(kind="persona", source=f"persona:{persona.id}@{persona.version}", text=persona.base_system_prompt),)


def _profile(services: Services, scene: Scene, ask: Ask) -> Profile | None:
    if not services.settings.presets.presets:
        return None
    value = scene.told.get("promptProfile")
    last = None
    if isinstance(value, Mapping) and isinstance(value.get("reviewedAt"), int):
        last = Profile(preset_id=str(value.get("presetId", "")), reviewed=value["reviewedAt"])
    mode, turn = mode_of(scene, ask.mode), scene.conversation.turns + 1
    return route(
        services.settings.presets, message=ask.text, mode=mode, turn=turn, last=last, compacted=scene.has_new_summary
    )


def _selection(profile: Profile | None, project: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"promptProject": project} if project else {}
    if profile is not None:
        data["promptProfile"] = {
            "presetId": profile.preset_id,
            "addonPromptKeys": list(profile.addon_keys),
            "wasReviewed": profile.reason != CACHED,
            "reason": profile.reason,
            "reviewedAt": profile.reviewed,
        }
    return data | ({"promptVariants": dict(chosen)} if chosen else {})


def values_of(
    persona: Persona, *, user: str | None, mode: str | None, now: float, zone: tzinfo = UTC
) -> dict[str, str]:
    """Return a turn's prompt variables. The date has no time of day, because all cached text comes after it."""
    return {
        "agent_name": persona.name,
        "persona_id": persona.id,
        "user_name": user or "user",
        "user_id": user or "user",
        "mode": mode or "",
        "date": day_of(now, zone),
    }


def spoken(resolved: ResolvedVersion, values: Mapping[str, str]) -> tuple[Mapping[str, Any], str]:
    """Return the values that a prompt declares and its rendered text. Raises InvalidInput."""
    declared = {param.name for param in resolved.params}
    fields = coerce(resolved.params, {key: values[key] for key in declared & set(values)})
    return fields, render(text_of(resolved), fields, engine=resolved.version.engine, declared=declared)


class _Speaker:
    """Renders the prompts of one turn, each in its selected variant."""

    def __init__(
        self,
        services: Services,
        scene: Scene,
        ask: Ask,
        persona: Persona,
        project: str,
        *,
        fresh: bool,
        signals: Mapping[str, float],
    ) -> None:
        self._signals = signals
        self._services = services
        self._ask = ask
        self._families = scene.families
        self._project = project
        zone = services.settings.zone_of(ask.time_zone, scene.conversation)
        self._values = values_of(
            persona, user=scene.conversation.user, mode=ask.mode, now=services.clock.now(), zone=zone
        )
        value = scene.told.get("promptVariants")
        self._told: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        self._kept: Mapping[str, Any] = value if isinstance(value, Mapping) and not fresh else {}
        self.chosen: dict[str, Any] = {}
        self.dropped: list[Dropped] = []
        self.renders: list[Record] = []
        self._agent = persona.id
        self._render_id = services.dice.new_id("render")

    async def link(self, persona: Persona, key: str) -> Block | None:
        """Render a link of the chain, or its fallback."""
        slug = self.resolve_name(persona.chain[key])
        text = await self.text(_KINDS[key], slug or persona.chain[key])
        if text is None and "fallback" in persona.chain:
            spare = self.resolve_name(persona.chain["fallback"])
            return await self.text(_KINDS["fallback"], spare or persona.chain["fallback"])
        return text

    def resolve_name(self, name: str) -> str | None:
        """Return the prompt id of a name in this project."""
        return _first(candidates(name, self._project), self._families)

    async def text(self, kind: BlockKind, slug: str) -> Block | None:
        """Render a prompt. One that fails is skipped and its error stored."""
        try:
            resolved = await self._resolved(slug)
            data, text = spoken(resolved, self._values)
        except CuebookError as error:
            self.dropped.append(Dropped(kind=kind, source=f"prompt:{slug}", tokens=0, reason=str(error)))
            return None
        self.renders.append(
            receipt(
                self._services,
                resolved.version,
                "render",
                agent=self._agent,
                context=data,
                text=text,
                render_id=self._render_id,
                selection=self.chosen.get(slug),
                conversation=self._ask.conversation,
            )
        )
        return Block(kind=kind, source=resolved.version.source, text=text) if text.strip() else None

    async def _resolved(self, slug: str) -> ResolvedVersion:
        family = self._families.get(slug)
        if family is None:
            msg = f"Unknown prompt {slug!r}"
            raise InvalidInput(msg)
        return await resolved_of(self._services, await self._drawn(family), self._families)

    async def _drawn(self, family: Family) -> Version:
        """Return the version to use: the variant's, or by trial the one before it."""
        slug, version = family.slug, self._variant(family)
        value, name = self._told.get(slug), self._ask.conversation
        lot = await drawn(self._services, family, version.branch, conversation=name, told=value)
        if lot is None:
            return version
        choice = self.chosen.get(slug, {"branch": version.branch, "propensity": 1.0})
        version, share, trial = lot
        drawn_as = {"propensity": choice["propensity"] * share, "share": share, "trial": trial}
        self.chosen[slug] = {**choice, "version": version.number, **drawn_as}
        return version

    def _variant(self, family: Family) -> Version:
        """Return the variant: the only one, the conversation's earlier one, or a new selection."""
        if len(family.variants) == 1:
            return family.variants[0][0]
        kept = self._kept.get(family.slug)
        kept = kept if isinstance(kept, Mapping) else {}
        branch = kept.get("branch")
        if isinstance(branch, str) and (version := family.version(branch)) is not None:
            plain = {key: value for key, value in kept.items() if key not in ("share", "trial")}
            plain["propensity"] = kept.get("propensity", 1.0) / (kept.get("share") or 1.0)  # the branch's own
            self.chosen[family.slug] = {**plain, "version": version.number}
            return version
        seed = hashlib.blake2b(
            f"{self._ask.conversation}\x00{family.slug}\x00{len(self._kept)}".encode(),
            key=self._services.settings.key[:64],
        ).digest()
        strategy = self._services.config.prompts.strategy
        choice = select_from(
            self._services,
            family,
            self._signals,
            strategy=strategy,
            epsilon=self._services.settings.epsilon,
            seed=int.from_bytes(seed[:8], "big"),
        )
        picked = choice.selected
        self.chosen[family.slug] = {
            "branch": picked.branch,
            "version": picked.number,
            "propensity": choice.propensity,
            "explored": choice.explored,
            "strategy": strategy,
            "edgeWeight": picked.edge_weight,
            "contextFit": picked.context_fit,
            "totalScore": picked.total_score,
            "signals": dict(self._signals),
        }
        return family.version(picked.branch) or family.version(MAIN) or family.active[0]
