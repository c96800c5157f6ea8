"""Which compaction profile holds, and what it says (A, "memoryCompaction"; C's trigger as profile `budget`)."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from cuebook.errors import InvalidInput


class CompactionProfile(Struct, frozen=True, kw_only=True):
    """When a pass is due and how much it does. Counts are posts (the original's "turns" are messages)."""

    id: str
    enabled: bool = True
    cooldown_ms: int = 60_000
    tail: int = 12
    least: int = 12
    most: int = 48
    max_summary_tokens: int = 900
    trigger: Literal["posts", "budget"] = (
        "posts"  # posts: as soon as enough lie behind the tail; budget: when the window fills
    )
    prompt_key: str = "memory_compactor_v2_json"
    model_id: str = "openai/gpt-4o-mini"


OFF = CompactionProfile(id="off", enabled=False)
STANDARD = CompactionProfile(id="standard")
BUDGET = CompactionProfile(id="budget", tail=30, most=480, trigger="budget")


class Compaction(Struct, frozen=True, kw_only=True):
    """All profiles and which one holds where."""

    profiles: Mapping[str, CompactionProfile]
    default: str = "standard"
    by_mode: Mapping[str, str] = {}


#: The mode of a conversation that came on the OpenAI wire and names none. Its client sends all it has each time and
#: counts on all of it being read, so nothing is condensed there before the window fills.
RELAY = "relay"
#: What holds without a file.
SHIPPED = Compaction(profiles={"off": OFF, "standard": STANDARD, "budget": BUDGET}, by_mode={RELAY: "budget"})

_FIELDS: dict[str, tuple[str, type]] = {
    "enabled": ("enabled", bool),
    "cooldownMs": ("cooldown_ms", int),
    "tailTurnsToKeep": ("tail", int),
    "minTurnsToSummarize": ("least", int),
    "maxTurnsToSummarizePerPass": ("most", int),
    "maxSummaryTokens": ("max_summary_tokens", int),
    "trigger": ("trigger", str),
    "promptKey": ("prompt_key", str),
    "modelId": ("model_id", str),
}
#: R8: each variable and the field of the file it overrides.
_ENVIRONMENT = {
    "MEMORY_COMPACTION_ENABLED": "enabled",
    "MEMORY_COMPACTION_PROMPT_KEY": "promptKey",
    "MEMORY_COMPACTION_MODEL_ID": "modelId",
    "MEMORY_COMPACTION_COOLDOWN_MS": "cooldownMs",
    "MEMORY_COMPACTION_TAIL_TURNS": "tailTurnsToKeep",
    "MEMORY_COMPACTION_MIN_TURNS": "minTurnsToSummarize",
    "MEMORY_COMPACTION_MAX_TURNS_PER_PASS": "maxTurnsToSummarizePerPass",
    "MEMORY_COMPACTION_MAX_SUMMARY_TOKENS": "maxSummaryTokens",
}


def choose(compaction: Compaction, mode: str | None) -> CompactionProfile:
    """Give the profile for a mode: its exact key, else the longest key it contains, else the default."""
    name = compaction.default
    if mode:
        keys = [key for key in compaction.by_mode if key in mode]
        if mode in compaction.by_mode:
            name = compaction.by_mode[mode]
        elif keys:
            name = compaction.by_mode[max(keys, key=len)]
    return compaction.profiles[name]


def read_compaction(document: Mapping[str, Any], *, file: str) -> Compaction:
    """Read `memoryCompaction` of a presets file. Raises InvalidInput naming the path inside the file."""
    _expect(isinstance(document, Mapping), file, "$", "an object")
    section = document.get("memoryCompaction", {})
    _expect(isinstance(section, Mapping), file, "memoryCompaction", "an object")
    profiles = dict(SHIPPED.profiles)
    given = section.get("profiles", {})
    _expect(isinstance(given, Mapping), file, "memoryCompaction.profiles", "an object")
    for name, body in given.items():
        profiles[name] = _read_profile(name, body, profiles.get(name, CompactionProfile(id=name)), file)
    default = section.get("defaultProfile", "standard")
    by_mode = section.get("defaultProfileByMode", {} if "defaultProfile" in section else SHIPPED.by_mode)
    _expect(isinstance(by_mode, Mapping), file, "memoryCompaction.defaultProfileByMode", "an object")
    for place, name in [
        ("defaultProfile", default),
        *((f"defaultProfileByMode.{mode}", name) for mode, name in by_mode.items()),
    ]:
        known = isinstance(name, str) and name in profiles
        _expect(known, file, f"memoryCompaction.{place}", f"one of {', '.join(sorted(profiles))}, not {name!r}")
    return Compaction(profiles=profiles, default=default, by_mode=dict(by_mode))


def _read_profile(name: str, body: object, base: CompactionProfile, file: str) -> CompactionProfile:
    place = f"memoryCompaction.profiles.{name}"
    if not isinstance(body, Mapping):
        raise _wrong(file, place, "an object")
    values: dict[str, Any] = {each: getattr(base, each) for each in CompactionProfile.__struct_fields__}
    for key, value in body.items():
        if key in _FIELDS:
            target, kind = _FIELDS[key]
            fits = type(value) is kind and not (isinstance(value, int) and value < 0)
            _expect(
                fits, file, f"{place}.{key}", {bool: "true or false", int: "a whole number >= 0", str: "a string"}[kind]
            )
            values[target] = value
    values["id"] = name
    _expect(values["trigger"] in ("posts", "budget"), file, f"{place}.trigger", '"posts" or "budget"')
    _expect(values["most"] >= 1, file, f"{place}.maxTurnsToSummarizePerPass", "at least 1")
    return CompactionProfile(**values)


def override(compaction: Compaction, environment: Mapping[str, str]) -> Compaction:
    """Apply MEMORY_COMPACTION_* to every profile (R8). ENABLED=false switches all off; true leaves off what is off."""
    values: dict[str, Any] = {}
    for name, text in environment.items():
        key = _ENVIRONMENT.get(name)
        if key is None:
            msg = f"environment {name}: no such setting; known are {', '.join(sorted(_ENVIRONMENT))}"
            raise InvalidInput(msg, where=name)
        values[key] = _parse(name, text, _FIELDS[key][1])
    if not values:
        return compaction
    profiles = {}
    for name, profile in compaction.profiles.items():
        mine = {key: value for key, value in values.items() if key != "enabled" or value is False}
        profiles[name] = _read_profile(name, mine, profile, "environment")
    return Compaction(profiles=profiles, default=compaction.default, by_mode=compaction.by_mode)


def _parse(name: str, text: str, kind: type) -> Any:
    if kind is str:
        return text
    if kind is bool and text.strip().lower() in ("true", "false", "1", "0"):
        return text.strip().lower() in ("true", "1")
    if kind is int and text.strip().isdecimal():
        return int(text)
    msg = f"environment {name}: {text!r} is no {'true or false' if kind is bool else 'whole number'}"
    raise InvalidInput(msg, where=name)


def _expect(fits: bool, file: str, place: str, wanted: str) -> None:  # noqa: FBT001  # an assertion
    if not fits:
        raise _wrong(file, place, wanted)


def _wrong(file: str, place: str, wanted: str) -> InvalidInput:
    return InvalidInput(f"{file}: {place}: expected {wanted}", where=place)
