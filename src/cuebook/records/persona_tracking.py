"""How a persona's `sentimentTracking` and `metaPrompts` are read (A, section 4; MISSION S2, S4, S6).

Beside the document's own fields: `profile` names one of the presets file's profiles, which holds for what the
definition leaves out, and `cooldownTurns` and `cooldownMs` say for how long an event that fired is quiet.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final

from msgspec import structs

from cuebook.records.fields import Fault, Fields, shown, unknown
from cuebook.records.tracking import (
    EVENTS,
    METHODS,
    OUTPUT_TOKENS,
    PRESETS,
    SHIPPED_TRIGGERS,
    TEMPERATURE,
    TRIGGERS,
    UNTRACKED,
    VARIABLES,
    Metaprompt,
    Tracking,
    Trigger,
)

#: Each field of the file and the one of `Tracking` it is.
_TRACKING: Final[Mapping[str, str]] = {
    "enabled": "enabled",
    "method": "method",
    "modelId": "model_id",
    "providerId": "provider_id",
    "historyWindow": "history_window",
    "frustrationThreshold": "frustration_threshold",
    "satisfactionThreshold": "satisfaction_threshold",
    "consecutiveTurnsForTrigger": "consecutive_turns",
    "presets": "presets",
    "cooldownTurns": "cooldown_turns",
    "cooldownMs": "cooldown_ms",
}
_METAPROMPT: Final = (
    "id", "description", "trigger", "promptTemplate", "promptKey", "strategyKey", "modelId", "providerId",
    "temperature", "maxOutputTokens", "outputSchema",
)  # fmt: skip
#: Fields of the original that change nothing here: whoever asks is the book's, and answers are held to our schema.
UNUSED: Final = ("providerId", "outputSchema")
_MONTH_MS = 31 * 86_400_000
#: Characters of a template; a metaprompt that ships has some 1,500.
_MOST_TEMPLATE = 32_768
_METAPROMPTS = 64
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


# ---- sentimentTracking ----------------------------------------------------------------------------------------------


def read_tracking(parent: Fields, key: str, *, profiles: bool, base: Tracking = UNTRACKED) -> Tracking:
    """Read tracking, from `base` on: an object, or with `profiles` the name of one. Faults are kept."""
    value = parent.body.get(key)
    if profiles and isinstance(value, str):
        return structs.replace(base, profile=parent.name(key, what="name a profile"))
    known = (*_TRACKING, "profile") if profiles else (*_TRACKING, "label", "description")
    wanted = "an object, or the name of a profile" if profiles else "an object"
    fields = parent.object(key, known, what=wanted)
    if fields is None:
        return base
    found = Tracking(
        enabled=fields.flag("enabled", default=base.enabled),
        method=fields.text("method", base.method, most=80),
        model_id=fields.text("modelId", base.model_id, most=200),
        provider_id=fields.text("providerId", base.provider_id, most=200),
        history_window=fields.whole("historyWindow", base.history_window, least=1, most=1_000),
        frustration_threshold=fields.number("frustrationThreshold", base.frustration_threshold, least=-1, most=1),
        satisfaction_threshold=fields.number("satisfactionThreshold", base.satisfaction_threshold, least=-1, most=1),
        consecutive_turns=fields.whole("consecutiveTurnsForTrigger", base.consecutive_turns, least=1, most=1_000),
        presets=fields.names("presets", of=PRESETS, what="preset") if "presets" in fields else base.presets,
        cooldown_turns=fields.whole("cooldownTurns", base.cooldown_turns, least=0, most=10_000),
        cooldown_ms=fields.whole("cooldownMs", base.cooldown_ms, least=0, most=_MONTH_MS),
        profile=fields.name("profile", what="name a profile, or leave it out") if "profile" in fields else "",
        given=frozenset(field for name, field in _TRACKING.items() if name in fields),
    )
    if not found.profile:  # with one, the whole is looked at when the profile is known
        check_thresholds(found, fields.path, parent.faults)
    return found


def shown_tracking(tracking: Tracking) -> dict[str, Any]:
    """Give tracking in the form of a file."""
    return {name: structs.asdict(tracking)[field] for name, field in _TRACKING.items()}


def check_thresholds(tracking: Tracking, path: str, faults: list[Fault]) -> None:
    """Say that no score can be both frustrated and satisfied."""
    low, high = tracking.frustration_threshold, tracking.satisfaction_threshold
    if low >= high:
        why = f"{low:g} is not below satisfactionThreshold ({high:g}); lower it, or raise that"
        faults.append(Fault(f"{path}.frustrationThreshold", why))


def check_method(tracking: Tracking, path: str, faults: list[Fault], methods: Collection[str] = METHODS) -> None:
    """Say that nothing reads sentiment by that name."""
    if tracking.method not in methods:
        faults.append(Fault(f"{path}.method", unknown("method", tracking.method, methods)))


# ---- metaPrompts ----------------------------------------------------------------------------------------------------


def read_metaprompts(parent: Fields, key: str = "metaPrompts") -> tuple[Metaprompt, ...]:
    """Read metaprompts. What is wrong goes to the faults."""
    given = parent.items(key)
    if len(given) > _METAPROMPTS:
        parent.fault(key, f"has {len(given):,} entries; at most {_METAPROMPTS} are run")
        return ()
    found: dict[str, Metaprompt] = {}
    places: dict[str, str] = {}
    for number, body in enumerate(given):
        place = f"{key}[{number}]"
        if not isinstance(body, Mapping):
            parent.fault(place, f"expected an object with id, trigger and promptTemplate, got {shown(body)}")
            continue
        read = _metaprompt(Fields(body, parent.at(place), parent.faults, _METAPROMPT))
        if read.id in found:
            parent.fault(f"{place}.id", f"{read.id!r} is taken by {places[read.id]}; give each metaprompt its own")
        elif read.id:
            found[read.id], places[read.id] = read, place
    return tuple(found.values())


def _metaprompt(fields: Fields) -> Metaprompt:
    name = fields.name("id", what="give the metaprompt an id", most=80)
    template, key = _template(fields), fields.text("promptKey", most=160)
    if template and key:
        fields.fault("promptKey", "stands beside promptTemplate; write one of them")
    if not template and not key and "promptTemplate" not in fields and name not in SHIPPED_TRIGGERS:
        near = get_close_matches(name, SHIPPED_TRIGGERS, n=1)
        meant = f"; did you mean the one that ships, {near[0]!r}?" if near else ""
        fields.fault("promptTemplate", f"missing; write the question, or name a prompt of the book as promptKey{meant}")
    return Metaprompt(
        id=name,
        description=fields.text("description"),
        trigger=_trigger(fields, name),
        template=template,
        key=key,
        strategy=fields.text("strategyKey", most=80),
        model_id=fields.text("modelId", most=200),
        temperature=fields.number("temperature", TEMPERATURE, least=0, most=2),
        max_output_tokens=fields.whole("maxOutputTokens", OUTPUT_TOKENS, least=1, most=32_000),
    )


def _template(fields: Fields) -> str:
    """Read a template; the original's `{template, variables}` too."""
    if isinstance(fields.body.get("promptTemplate"), Mapping):
        inner = fields.object("promptTemplate", ("template", "variables"), what="a text")
        return _question(inner, "template") if inner else ""
    return _question(fields, "promptTemplate") if "promptTemplate" in fields else ""


def _question(fields: Fields, key: str) -> str:
    text = fields.text(key, most=_MOST_TEMPLATE)
    if not text.strip() and isinstance(fields.body.get(key, ""), str):
        fields.fault(key, "is empty; write the question, or name a prompt of the book as promptKey")
    return text


def _trigger(fields: Fields, name: str) -> Trigger:
    default = SHIPPED_TRIGGERS.get(name, Trigger(type="manual"))
    trigger = fields.object(
        "trigger", ("type", "intervalTurns", "eventName"), what='an object such as {"type": "manual"}'
    )
    if trigger is None:
        return default
    kind = trigger.name("type", what=f"write one of {', '.join(TRIGGERS)}")
    if not kind:
        return default
    if kind not in TRIGGERS:
        trigger.choice("type", "", of=TRIGGERS, what="trigger")
        return default
    needs = {"turn_interval": "intervalTurns", "event_based": "eventName"}.get(kind)
    for key in ("intervalTurns", "eventName"):
        if key == needs and key not in trigger:
            trigger.fault(key, "missing; say after how many turns" if key == "intervalTurns" else _which_event())
        if key != needs and key in trigger:
            trigger.fault(key, f"means nothing to a trigger of type {kind}; leave it out")
    every = trigger.whole("intervalTurns", 0, least=1, most=10_000) if needs == "intervalTurns" else 0
    event = trigger.choice("eventName", "", of=EVENTS, what="event") if needs == "eventName" else ""
    return Trigger(type=kind, interval_turns=every, event=event)  # type: ignore[arg-type]


def _which_event() -> str:
    return f"missing; write one of {', '.join(EVENTS)}"


# ---- what is no fault and yet odd -----------------------------------------------------------------------------------


def odd_metaprompts(
    document: Mapping[str, Any], metaprompts: Collection[Metaprompt], tracking: Tracking
) -> list[Fault]:
    """Say what of a definition does nothing, or likely not what was meant. `tracking`: with its profile."""
    found: list[Fault] = []
    given = document.get("metaPrompts")
    for number, body in enumerate(given if isinstance(given, list) else ()):
        path = f"metaPrompts[{number}]"
        found += [
            Fault(f"{path}.{key}", "is not used: the book's own model is asked, and answers are held to its own schema")
            for key in UNUSED
            if isinstance(body, Mapping) and key in body
        ]
        read = next((each for each in metaprompts if isinstance(body, Mapping) and each.id == body.get("id")), None)
        if read is None:
            continue
        found += [
            Fault(
                f"{path}.promptTemplate", f"{{{{{name}}}}} is no variable and stays as it stands; known are {_listed()}"
            )
            for name in dict.fromkeys(_VARIABLE.findall(read.template))
            if name not in VARIABLES
        ]
        if body.get("trigger") is None and read.id not in SHIPPED_TRIGGERS:
            why = 'missing, so it runs when asked for; write {"type": "turn_interval", "intervalTurns": 5}, or another'
            found.append(Fault(f"{path}.trigger", why))
        if read.trigger.type == "event_based" and not tracking.enabled:
            found.append(
                Fault(
                    f"{path}.trigger",
                    "no event fires while sentimentTracking is off; switch it on, here or by the mode",
                )
            )
    if tracking.presets and not tracking.enabled:
        found.append(
            Fault("sentimentTracking.presets", "do nothing while sentimentTracking is off; write enabled: true")
        )
    return found


def _listed() -> str:
    return ", ".join(VARIABLES)
