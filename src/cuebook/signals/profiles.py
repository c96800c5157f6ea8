"""Which tracking of sentiment holds in a turn: a persona's own, a profile it names, or the one of the mode (A; S5).

`sentimentTracking` of the presets file: `profiles` by name, `defaultProfileByMode`. Five profiles ship, and a file may
change them and add its own. A persona that says nothing of sentiment gets the profile of the conversation's mode, by
its exact name, else by the longest key that is part of it; where no key is, nothing is tracked.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from cuebook.records.fields import Fault, Fields, refuse, shown, unknown
from cuebook.records.persona import Persona
from cuebook.records.persona_tracking import check_method, check_thresholds, read_tracking
from cuebook.records.tracking import METHODS, UNTRACKED, Tracking

SECTION: Final = "sentimentTracking"
#: What holds where nothing else does.
OFF: Final = "off"
#: The original's file calls its profile `tutor` one of all presets and lists three; its document says three. Three.
_TUTOR: Final = ("frustration_recovery", "confusion_clarification", "satisfaction_reinforcement")


class Profiles(Struct, frozen=True, kw_only=True):
    """Tracking by the name of its profile, and which profile holds in which mode. Modes are folded."""

    profiles: Mapping[str, Tracking]
    by_mode: Mapping[str, str] = {}


#: What holds without a file (seed 000, "Quick-start profiles"; notes on its file: windows and thresholds).
SHIPPED: Final = Profiles(
    profiles={
        OFF: UNTRACKED,
        "basic": Tracking(enabled=True, presets=("frustration_recovery", "confusion_clarification")),
        "standard": Tracking(enabled=True, presets=("all",)),
        "advanced": Tracking(
            enabled=True,
            method="llm",
            history_window=15,
            frustration_threshold=-0.25,
            satisfaction_threshold=0.25,
            presets=("all",),
        ),
        "tutor": Tracking(
            enabled=True, frustration_threshold=-0.2, satisfaction_threshold=0.2, consecutive_turns=1, presets=_TUTOR
        ),
    }
)


def tracking_of(persona: Persona, mode: str | None, profiles: Profiles) -> Tracking:
    """Give the tracking that holds for a persona in a mode. A profile that is no more counts as `off`."""
    own = persona.tracking
    if own.profile:
        base = profiles.profiles.get(own.profile, UNTRACKED)
        return structs.replace(base, **{field: getattr(own, field) for field in own.given})
    return own if own != UNTRACKED else profiles.profiles.get(profile_of(persona, mode, profiles), UNTRACKED)


def profile_of(persona: Persona, mode: str | None, profiles: Profiles) -> str:
    """Name the profile that a persona's tracking in a mode comes from; "" where it says all itself."""
    if persona.tracking != UNTRACKED:
        return persona.tracking.profile
    return _by_mode(profiles.by_mode, _fold(mode or "")) or OFF


def _by_mode(by_mode: Mapping[str, str], mode: str) -> str:
    if mode in by_mode:
        return by_mode[mode]
    keys = [key for key in by_mode if key in mode]
    return by_mode[max(keys, key=len)] if keys else ""  # of equally long ones the file's first


def _fold(mode: str) -> str:
    return " ".join(mode.casefold().split())


def read_profiles(document: object, *, file: str, methods: Collection[str] = METHODS) -> Profiles:
    """Read `sentimentTracking` of a presets file; `methods` read sentiment in the book.

    Raises InvalidInput naming the path inside the file.
    """
    faults: list[Fault] = []
    if not isinstance(document, Mapping):
        refuse([Fault("$", f"expected an object, got {shown(document)}")], file=file)
        return SHIPPED
    whole = Fields(document, "", faults, document.keys())
    section = whole.object(SECTION, ("profiles", "defaultProfileByMode", "label", "description"), what="an object")
    if section is None:
        refuse(faults, file=file)
        return SHIPPED
    profiles = dict(SHIPPED.profiles)
    given = section.object("profiles", _all(section.body.get("profiles")), what="an object")
    for name in given.body if given else ():
        # a profile is named to be used: one of its own that says nothing of `enabled` is on
        base = profiles.get(name, Tracking(enabled=True))
        found = structs.replace(read_tracking(given, name, profiles=False, base=base), given=frozenset())  # type: ignore[arg-type]
        check_method(found, f"{SECTION}.profiles.{name}", faults, methods)
        profiles[str(name)] = found
    by_mode: dict[str, str] = {}
    modes = section.object("defaultProfileByMode", _all(section.body.get("defaultProfileByMode")), what="an object")
    for mode in modes.body if modes else ():
        name = modes.choice(mode, "", of=profiles, what="profile") if modes else ""
        if not _fold(str(mode)):
            section.fault("defaultProfileByMode", "has a mode without a name; every mode would match it")
        by_mode[_fold(str(mode))] = name
    refuse(faults, file=file)
    return Profiles(profiles=profiles, by_mode=by_mode)


def _all(value: object) -> Collection[Any]:
    """Give the keys of an object in which every key is one."""
    return value.keys() if isinstance(value, Mapping) else ()


def check_persona(persona: Persona, profiles: Profiles, methods: Collection[str] = METHODS) -> list[Fault]:
    """Say what of a persona's tracking cannot be: a profile nobody has, thresholds that cross, an unknown method.

    `methods` are the names of what reads sentiment in this book.
    """
    own, faults = persona.tracking, list[Fault]()
    if own.profile and own.profile not in profiles.profiles:
        named = isinstance(persona.other.get(SECTION), str)
        place = SECTION if named else f"{SECTION}.profile"
        return [Fault(place, unknown("profile", own.profile, profiles.profiles))]
    holds = tracking_of(persona, None, profiles) if own.profile else own
    check_thresholds(holds, SECTION, faults)
    check_method(holds, SECTION, faults, methods)
    return faults
