"""Sentiment profiles: select the sentiment tracking for a turn (A; S5).

A persona's own tracking applies, else the profile it names, else that of the mode. `sentimentTracking` of the presets
file has `profiles` by name and `defaultProfileByMode`. Five profiles are built in; a file may change them and add its
own. A mode matches by its exact name, else by the longest key that it contains; otherwise nothing is tracked.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from cuebook.records.persona import METHODS, UNTRACKED, Persona, SentimentTracking, check_method, check_thresholds
from cuebook.validate import Document, Fault, check_known, mode_key, refuse, unknown, validate

SECTION: Final = "sentimentTracking"
#: The profile if nothing else applies.
OFF: Final = "off"
#: The original's file says that its profile `tutor` has all presets, but lists three, as its document does.
_TUTOR: Final = ("frustration_recovery", "confusion_clarification", "satisfaction_reinforcement")


class Profiles(Struct, frozen=True, kw_only=True):
    """Tracking by profile name, and the profile of each mode. Modes are case-folded."""

    profiles: Mapping[str, SentimentTracking]
    by_mode: Mapping[str, str] = {}


class _SentimentSection(Document, frozen=True, kw_only=True):
    """`sentimentTracking` of the presets file; its profiles extend the built-in ones."""

    profiles: Mapping[str, Mapping[str, Any]] = {}
    default_profile_by_mode: Mapping[str, str] = {}
    label: str = ""
    description: str = ""


#: The defaults without a file.
SHIPPED: Final = Profiles(
    profiles={
        OFF: UNTRACKED,
        "basic": SentimentTracking(enabled=True, presets=("frustration_recovery", "confusion_clarification")),
        "standard": SentimentTracking(enabled=True, presets=("all",)),
        "advanced": SentimentTracking(
            enabled=True,
            method="llm",
            history_window=15,
            frustration_threshold=-0.25,
            satisfaction_threshold=0.25,
            presets=("all",),
        ),
        "tutor": SentimentTracking(
            enabled=True, frustration_threshold=-0.2, satisfaction_threshold=0.2, consecutive_turns=1, presets=_TUTOR
        ),
    }
)


def tracking_of(persona: Persona, mode: str | None, profiles: Profiles) -> SentimentTracking:
    """Return the tracking of a persona in a mode. A deleted profile counts as `off`."""
    tracking = persona.tracking
    if tracking.profile:
        base = profiles.profiles.get(tracking.profile, UNTRACKED)
        return structs.replace(base, **{field: getattr(tracking, field) for field in persona.tracked - {"profile"}})
    profile = profile_of(persona, mode, profiles)
    return profiles.profiles.get(profile, UNTRACKED) if profile else tracking


def profile_of(persona: Persona, mode: str | None, profiles: Profiles) -> str:
    """Return the profile from which a persona's tracking in a mode comes; "" if the persona defines it all."""
    if persona.tracked or persona.tracking != UNTRACKED:
        return persona.tracking.profile or ""
    key = mode_key(profiles.by_mode, _fold(mode or ""))
    return profiles.by_mode[key] if key else OFF


def _fold(mode: str) -> str:
    return " ".join(mode.casefold().split())


def read_profiles(document: object, *, file: str, methods: Collection[str] = METHODS) -> Profiles:
    """Return the parsed `sentimentTracking` of a presets file; `methods` are the project's sentiment methods.

    Raises InvalidInput naming the path inside the file.
    """
    content = document.get(SECTION) if isinstance(document, Mapping) else document
    read, faults = validate({} if content is None else content, _SentimentSection, SECTION)
    section = read or _SentimentSection()
    profiles = dict(SHIPPED.profiles)
    for name, body in section.profiles.items():
        profiles[name] = _read_profile(body, profiles.get(name), f"{SECTION}.profiles.{name}", faults, methods)
    path = f"{SECTION}.defaultProfileByMode"
    named = [(f"{path}.{mode}", name) for mode, name in section.default_profile_by_mode.items()]
    faults += check_known("profile", named, profiles)
    faults += [
        Fault(path, "empty mode. It would match every mode.")
        for mode in section.default_profile_by_mode
        if not _fold(mode)
    ]
    refuse(faults, file=file)
    return Profiles(
        profiles=profiles, by_mode={_fold(mode): name for mode, name in section.default_profile_by_mode.items()}
    )


def _read_profile(
    body: Mapping[str, Any], base: SentimentTracking | None, path: str, faults: list[Fault], methods: Collection[str]
) -> SentimentTracking:
    """Return a profile: the file's values over the built-in ones. A new profile is on unless the file disables it."""
    whole = msgspec.to_builtins(base or SentimentTracking(enabled=True))
    tracking, wrong = validate({**whole, **body}, SentimentTracking, path)
    faults += wrong
    if tracking is None:
        return UNTRACKED
    if tracking.profile:
        faults.append(Fault(f"{path}.profile", "a profile names no other one. Leave it out."))
    faults += [*check_thresholds(tracking, path), *check_method(tracking, path, methods)]
    return structs.replace(tracking, label="", description="")


def check_persona(persona: Persona, profiles: Profiles, methods: Collection[str] = METHODS) -> list[Fault]:
    """Return the faults in a persona's tracking: an unknown profile or method, thresholds that cross.

    `methods` are the names of the project's sentiment methods.
    """
    tracking = persona.tracking
    if tracking.profile and tracking.profile not in profiles.profiles:
        path = f"{SECTION}.profile" if persona.tracked else SECTION
        return [Fault(path, unknown("profile", tracking.profile, profiles.profiles))]
    holds = tracking_of(persona, None, profiles) if tracking.profile else tracking
    return [*check_thresholds(holds, SECTION), *check_method(holds, SECTION, methods)]
