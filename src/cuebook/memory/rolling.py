"""Plan compaction passes of rolling memory: the profiles, when a pass is due, and which posts it covers (R1, R2).

Parses AgentOS's `memoryCompaction` section of the presets file, with BrowserOS's trigger as profile `budget`.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from cuebook.errors import InvalidInput
from cuebook.records.memory import Line
from cuebook.validate import Document, Fault, check_known, join, mode_key, refuse, validate

Whole = Annotated[int, Meta(ge=0)]


class CompactionProfile(Document, frozen=True, kw_only=True):
    """Trigger and extent of a pass. Counts are posts (the original's "turns" are messages)."""

    id: str = ""
    enabled: bool = True
    cooldown_ms: Whole = 60_000
    tail: Whole = field(default=12, name="tailTurnsToKeep")
    least: Whole = field(default=12, name="minTurnsToSummarize")
    most: Annotated[int, Meta(ge=1)] = field(default=48, name="maxTurnsToSummarizePerPass")
    max_summary_tokens: Whole = 900
    #: posts: as soon as enough precede the tail; budget: when the window fills; overflow: as budget, but the summary is
    #: used only if the messages do not fit
    trigger: Literal["posts", "budget", "overflow"] = "posts"
    prompt_key: str = "memory_compactor_v2_json"
    model_id: str = ""  # the provider's model that writes the summaries; "" = the model of background jobs
    label: str = ""
    description: str = ""


OFF = CompactionProfile(id="off", enabled=False)
STANDARD = CompactionProfile(id="standard")
BUDGET = CompactionProfile(id="budget", tail=30, most=480, trigger="budget")
FIT = CompactionProfile(id="fit", tail=30, most=480, trigger="overflow")


class Compaction(Struct, frozen=True, kw_only=True):
    """All profiles, and which one each mode uses."""

    profiles: Mapping[str, CompactionProfile]
    default: str = "standard"
    by_mode: Mapping[str, str] = {}


#: The mode of a conversation from the OpenAI wire that names none. Its client sends the full history each time and
#: expects all of it to be used, so nothing is left out while it fits.
RELAY = "relay"
#: The defaults without a file.
SHIPPED = Compaction(profiles={"off": OFF, "fit": FIT, "standard": STANDARD, "budget": BUDGET}, by_mode={RELAY: "fit"})

_SECTION = "memoryCompaction"
#: R8: each environment variable and the field of the file that it overrides.
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
_TRUE, _FALSE = ("true", "1"), ("false", "0")


class _CompactionSection(Document, frozen=True, kw_only=True):
    """`memoryCompaction`; its profiles extend the built-in ones."""

    profiles: Mapping[str, Mapping[str, Any]] = {}
    default_profile: str | None = None
    default_profile_by_mode: Mapping[str, str] | None = None


def with_profile(compaction: Compaction, name: str, *, where: str) -> Compaction:
    """Return the profiles with one as that of every conversation, whatever its mode. Raises InvalidInput."""
    if name not in compaction.profiles:
        msg = f"{where}: unknown profile {name!r}. Available: {', '.join(sorted(compaction.profiles))}."
        raise InvalidInput(msg, where=where)
    return Compaction(profiles=compaction.profiles, default=name)


def choose(compaction: Compaction, mode: str | None) -> CompactionProfile:
    """Return the profile for a mode: its exact key, else the longest key it contains, else the default."""
    key = mode_key(compaction.by_mode, mode or "")
    return compaction.profiles[compaction.by_mode[key] if key else compaction.default]


def read_compaction(document: Mapping[str, Any], *, file: str) -> Compaction:
    """Return the parsed `memoryCompaction` of a presets file. Raises InvalidInput naming the path inside the file."""
    content = document.get(_SECTION)
    read, faults = validate({} if content is None else content, _CompactionSection, _SECTION)
    section = read or _CompactionSection()
    profiles = dict(SHIPPED.profiles)
    for name, body in section.profiles.items():
        base = profiles.get(name, CompactionProfile())
        profiles[name] = _read_profile({**body, "id": name}, base, f"{_SECTION}.profiles.{name}", faults)
    by_mode = section.default_profile_by_mode
    if by_mode is None:
        by_mode = SHIPPED.by_mode if section.default_profile is None else {}
    default = section.default_profile or SHIPPED.default
    named = [(f"{_SECTION}.defaultProfile", default)]
    named += [(f"{_SECTION}.defaultProfileByMode.{mode}", name) for mode, name in by_mode.items()]
    faults += check_known("profile", named, sorted(profiles))
    refuse(faults, file=file)
    return Compaction(profiles=profiles, default=default, by_mode=dict(by_mode))


def _read_profile(
    body: Mapping[str, Any], base: CompactionProfile, path: str, faults: list[Fault]
) -> CompactionProfile:
    """Return a profile: the file's values over the built-in ones."""
    compaction_profile, wrong = validate({**msgspec.to_builtins(base), **body}, CompactionProfile, path)
    faults += wrong
    return compaction_profile or base


def override(compaction: Compaction, environment: Mapping[str, str]) -> Compaction:
    """Apply MEMORY_COMPACTION_* to every profile (R8). ENABLED=false disables all; true enables nothing."""
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if name not in _ENVIRONMENT:
            msg = f"Unknown environment variable {name!r}. Available: {', '.join(sorted(_ENVIRONMENT))}."
            raise InvalidInput(msg, where=name)
        values[_ENVIRONMENT[name]] = _parse(name, text)
    if not values:
        return compaction
    mine = {key: value for key, value in values.items() if key != "enabled" or value is False}
    faults: list[Fault] = []
    profiles = {
        name: _read_profile(mine, profile, join("environment", name), faults)
        for name, profile in compaction.profiles.items()
    }
    refuse(faults)
    return Compaction(profiles=profiles, default=compaction.default, by_mode=compaction.by_mode)


def _parse(name: str, text: str) -> Any:
    kind = type(getattr(STANDARD, _FIELDS[_ENVIRONMENT[name]]))
    plain = text.strip().lower()
    if kind is str:
        return text
    if kind is bool and plain in (*_TRUE, *_FALSE):
        return plain in _TRUE
    if kind is int and plain.isdecimal():
        return int(plain)
    msg = f"environment {name}: expected {'true or false' if kind is bool else 'a whole number'}, got {text!r}"
    raise InvalidInput(msg, where=name)


#: The attribute of each field in the file.
_FIELDS = {each.encode_name: each.name for each in msgspec.structs.fields(CompactionProfile)}


# ---- plan passes ----------------------------------------------------------------------------------------------------


#: The ids of the calls that a post makes, and of those it answers ("" for a call without an id).
Calls = tuple[Sequence[str], Sequence[str]]


def held_together(posts: Mapping[int, Calls]) -> frozenset[int]:
    """Return the positions before which no cut is allowed, by the posts that make or answer calls, in order.

    A result without its call belongs to the post before it.
    """
    made: dict[str, int] = {}
    reach: dict[int, int] = {}
    for number, (makes, answers) in posts.items():
        for call in answers:
            reach[made.get(call, number - 1)] = number
        made.update(dict.fromkeys(makes, number))
    places: set[int] = set()
    end = -1
    for start in sorted(reach):
        places.update(range(max(start, end) + 1, reach[start] + 1))
        end = max(end, reach[start])
    return frozenset(places)


Reason = Literal["due", "disabled", "below_threshold", "cooldown", "no_messages"]

#: Extra posts loaded for a pass, to find a cut that separates no call from its result.
LOOKAHEAD = 64
#: The longest retry delay of a failing pass, in seconds.
LONGEST_S = 3600.0


def due(
    profile: CompactionProfile,
    *,
    backlog: int,
    backlog_tokens: int,
    room: int,
    trigger_ratio: float,
    now: float,
    last_at: float,
    not_before: float,
    hurry: bool = False,
) -> Reason:
    """Return whether a conversation's backlog needs a compaction pass, or why not.

    `room` is the part of a window for posts, `not_before` the earliest retry of a failed pass. A backlog larger than a
    pass continues at once; the cool-down separates passes that keep up. `hurry` skips all waiting (`settle`).
    """
    behind = backlog - profile.tail
    if not profile.enabled:
        return "disabled"
    if not backlog:
        return "no_messages"
    if behind < max(1, profile.least) or (profile.trigger != "posts" and backlog_tokens <= room * trigger_ratio):
        return "below_threshold"
    wait = not_before
    if behind <= profile.most and last_at <= now:  # a clock set back must not stop passes
        wait = max(wait, last_at + profile.cooldown_ms / 1000 if last_at else 0.0)
    return "cooldown" if wait > now and not hurry else "due"


def least_backlog(compaction: Compaction) -> int:
    """Return the smallest backlog of posts that starts a pass in any profile."""
    least = [each.tail + max(1, each.least) for each in compaction.profiles.values() if each.enabled]
    return min(least, default=1)


def covered(
    lines: Sequence[Line], profile: CompactionProfile, *, backlog: int, held: Collection[int] = frozenset()
) -> int:
    """Return how many of the oldest posts after the mark a pass covers; 0 if no boundary is within reach.

    The pass ends at the end of a round if there is one, else between steps. No cut is allowed before the positions in
    `held`: calls and results stay together.
    """
    most = min(profile.most, backlog - profile.tail, len(lines))
    if most < 1:
        return 0
    for end in range(most, 0, -1):
        if end < len(lines) and lines[end].round == lines[end].seq and end not in held:
            return end
    for end in chain(range(most, 0, -1), range(most + 1, min(len(lines), backlog) + 1)):
        if between_steps(lines, end) and end not in held:
            return end
    return 0


def between_steps(lines: Sequence[Line], end: int) -> bool:
    """Return whether a cut before number `end` separates no tool call from its results."""
    if lines[end - 1].calls:
        return False
    return end >= len(lines) or lines[end].role != "tool"


def backoff_s(failures: int, cooldown_ms: int) -> float:
    """Return the seconds to wait after this many failures in a row: the cool-down, doubled each time, up to an hour."""
    doublings = 1 << min(failures, 16)
    return min(LONGEST_S, max(1.0, cooldown_ms / 1000) * doublings)
