"""Which prompt profile a turn gets: presets of add-ons, rules and modes that choose one, and how long a choice holds.

A's `config/metaprompt-presets.json` (seed 000, section 1; MISSION P1-P4). A review takes the matching rule of the
highest priority, else the mode's preset, else the default; between reviews the conversation keeps its preset.
"""

import unicodedata
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, Literal

from msgspec import Struct

from cuebook.errors import InvalidInput

Match = Literal["word", "substring"]

#: Names listed in an error that says which there are.
_LISTED = 12
#: Blocks of scripts that put no space between words: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)  # fmt: skip


class Preset(Struct, frozen=True, kw_only=True):
    """Add-ons that stand behind the persona's text, in their order."""

    id: str
    addon_keys: tuple[str, ...] = ()


class Rule(Struct, frozen=True, kw_only=True):
    """When a preset is chosen by the message: all conditions given must hold. Keywords and modes are folded."""

    id: str
    preset: str
    priority: float = 0
    modes: tuple[str, ...] = ()  # parts of the mode's name; one of them must be in it
    any_keywords: tuple[str, ...] = ()
    all_keywords: tuple[str, ...] = ()
    min_chars: int | None = None  # both included
    max_chars: int | None = None


class Presets(Struct, frozen=True, kw_only=True):
    """A presets file, read: rules by priority, then in the file's order."""

    presets: Mapping[str, Preset] = {}
    rules: tuple[Rule, ...] = ()
    default: str = ""  # "": no preset
    by_mode: Mapping[str, str] = {}
    review_every: int = 6
    review_on_compaction: bool = True
    match: Match = "word"
    compat_agentos: bool = False  # the original's count: reviews at turns 1, 8, 15 where 6 are asked for


#: What holds without a file: no profiles.
NONE = Presets()


class ProfileState(Struct, frozen=True, kw_only=True):
    """What a conversation keeps of its profile from turn to turn."""

    preset_id: str
    reviewed: int  # the turn of the last review


class Profile(Struct, frozen=True, kw_only=True):
    """What a turn's profile is, and why.

    `reason` is one of rule:ID, defaultByModeExact:MODE, defaultByModePattern:KEY, default, cached.
    """

    preset_id: str
    addon_keys: tuple[str, ...]
    reason: str
    was_reviewed: bool
    state: ProfileState


# ---- choosing --------------------------------------------------------------------------------------------------------


def route(
    presets: Presets, *, message: str, mode: str | None, turn: int, state: ProfileState | None, compacted: bool
) -> Profile:
    """Give the profile of a turn (from 1): the one kept, or a new choice where a review is due.

    `state` is what the last turn's Profile says, None for none. A kept preset that the file no longer has is reviewed.
    """
    if state is not None and not _is_due(presets, state, turn, compacted=compacted):
        chosen, reason, reviewed = state.preset_id, "cached", state.reviewed
    else:
        chosen, reason = _choose(presets, message, _fold(mode or ""))
        reviewed = turn
    addons = presets.presets[chosen].addon_keys if chosen else ()
    kept = ProfileState(preset_id=chosen, reviewed=reviewed)
    return Profile(preset_id=chosen, addon_keys=addons, reason=reason, was_reviewed=reason != "cached", state=kept)


def _is_due(presets: Presets, state: ProfileState, turn: int, *, compacted: bool) -> bool:
    every = presets.review_every + presets.compat_agentos
    forced = compacted and presets.review_on_compaction
    gone = state.preset_id not in (presets.presets if state.preset_id else (presets.default,))
    return forced or gone or not 0 <= turn - state.reviewed < every


def _choose(presets: Presets, message: str, mode: str) -> tuple[str, str]:
    said = _fold(message)
    for rule in presets.rules:
        if _applies(rule, said, len(message), mode, presets.match):
            return rule.preset, f"rule:{rule.id}"
    if mode in presets.by_mode:
        return presets.by_mode[mode], f"defaultByModeExact:{mode}"
    keys = [key for key in presets.by_mode if key in mode]
    if keys:
        key = max(keys, key=len)  # of equally long ones the file's first
        return presets.by_mode[key], f"defaultByModePattern:{key}"
    return presets.default, "default"


def _applies(rule: Rule, said: str, length: int, mode: str, match: Match) -> bool:
    return (
        (rule.min_chars is None or length >= rule.min_chars)
        and (rule.max_chars is None or length <= rule.max_chars)
        and (not rule.modes or any(part in mode for part in rule.modes))
        and (not rule.any_keywords or any(_holds(said, each, match) for each in rule.any_keywords))
        and all(_holds(said, each, match) for each in rule.all_keywords)
    )


def _holds(said: str, keyword: str, match: Match) -> bool:
    """Whether a folded text holds a folded keyword, by default as whole words: "planet" is no plan."""
    at = said.find(keyword)
    while at >= 0:
        end = at + len(keyword)
        inside = _joined(said[at - 1 : at], keyword[0]) or _joined(said[end : end + 1], keyword[-1])
        if match == "substring" or not inside:
            return True
        at = said.find(keyword, at + 1)
    return False


def _joined(beside: str, edge: str) -> bool:
    """Whether the character beside a keyword's edge goes on with its word. Nothing does in scripts without spaces."""
    return bool(beside) and _is_of_word(beside) and _is_of_word(edge) and not (_unspaced(beside) or _unspaced(edge))


def _is_of_word(char: str) -> bool:
    return char == "_" or unicodedata.category(char)[0] in "LNM"  # letters, numbers, marks


def _unspaced(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _UNSPACED)


def _fold(text: str) -> str:
    """Make texts comparable: case, width, composed letters and white space make no difference."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(plain.split())


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_presets(document: object, *, file: str, prompts: Collection[str]) -> Presets:
    """Read presets, routing and rules of a presets file; other fields are ignored. `prompts`: the ids there are.

    Raises InvalidInput naming the path inside the file. An add-on is looked up by its id, then under `default/`.
    """
    try:
        return _read(_object(document, "$", optional=False), prompts)
    except InvalidInput as error:
        msg = f"{file}: {error}"
        raise InvalidInput(msg, where=error.where) from None


def _read(document: Mapping[str, Any], prompts: Collection[str]) -> Presets:
    presets: dict[str, Preset] = {}
    for number, body in enumerate(_list(document, "presets", "")):
        preset = _read_preset(body, f"presets[{number}]", prompts)
        if preset.id in presets:
            raise _wrong(f"presets[{number}].id", f"{preset.id!r} is taken by another preset; give each its own")
        presets[preset.id] = preset
    rules: dict[str, Rule] = {}
    for number, body in enumerate(_list(document, "rules", "")):
        rule = _read_rule(body, f"rules[{number}]", presets)
        if rule.id in rules:
            raise _wrong(f"rules[{number}].id", f"{rule.id!r} is taken by another rule; give each its own")
        rules[rule.id] = rule
    return _read_routing(
        _object(document.get("routing"), "routing"),
        presets,
        tuple(sorted(rules.values(), key=lambda rule: -rule.priority)),
    )


def _read_routing(routing: Mapping[str, Any], presets: Mapping[str, Preset], rules: tuple[Rule, ...]) -> Presets:
    default = _string(routing, "defaultPresetId", "routing") if "defaultPresetId" in routing else ""
    if default:
        _known(default, presets, "routing.defaultPresetId", "preset")
    modes = _object(routing.get("defaultPresetByMode"), "routing.defaultPresetByMode")
    by_mode: dict[str, str] = {}
    for mode in modes:
        place = f"routing.defaultPresetByMode.{mode}"
        if not _fold(mode):
            raise _wrong(place, "a mode without a name; every mode would match it")
        by_mode[_fold(mode)] = _string(modes, mode, "routing.defaultPresetByMode")
        _known(modes[mode], presets, place, "preset")
    match = routing.get("match", NONE.match)
    if match not in ("word", "substring"):
        raise _wrong("routing.match", f'expected "word" or "substring", not {match!r}')
    return Presets(
        presets=presets,
        rules=rules,
        default=default,
        by_mode=by_mode,
        review_every=_whole(routing, "reviewEveryNTurns", "routing", least=1) or NONE.review_every,
        review_on_compaction=_flag(routing, "forceReviewOnCompaction", default=NONE.review_on_compaction),
        match=match,
        compat_agentos=_flag(routing, "compatAgentos", default=NONE.compat_agentos),
    )


def _read_preset(body: object, place: str, prompts: Collection[str]) -> Preset:
    fields = _object(body, place, optional=False)
    name = _string(fields, "id", place)
    keys = _strings(fields, "addonPromptKeys", place)
    for number, key in enumerate(keys):
        if f"default/{key}" not in prompts:
            _known(key, prompts, f"{place}.addonPromptKeys[{number}]", "prompt")
    return Preset(id=name, addon_keys=tuple(dict.fromkeys(keys)))


def _read_rule(body: object, place: str, presets: Collection[str]) -> Rule:
    fields = _object(body, place, optional=False)
    priority = fields.get("priority", 0)
    if type(priority) not in (int, float) or not isfinite(priority):
        raise _wrong(f"{place}.priority", f"expected a number, not {priority!r}")
    rule = Rule(
        id=_string(fields, "id", place),
        preset=_string(fields, "presetId", place),
        priority=priority,
        modes=tuple(map(_fold, _strings(fields, "modes", place))),
        any_keywords=tuple(map(_fold, _strings(fields, "anyKeywords", place))),
        all_keywords=tuple(map(_fold, _strings(fields, "allKeywords", place))),
        min_chars=_whole(fields, "minMessageChars", place),
        max_chars=_whole(fields, "maxMessageChars", place),
    )
    _known(rule.preset, presets, f"{place}.presetId", "preset")
    if rule.min_chars is not None and rule.max_chars is not None and rule.min_chars > rule.max_chars:
        raise _wrong(f"{place}.maxMessageChars", f"{rule.max_chars} is below minMessageChars; no message fits")
    return rule


def _known(name: str, names: Collection[str], place: str, kind: str) -> None:
    if name not in names:
        listed = ", ".join(sorted(names)[:_LISTED]) or "none"
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        raise _wrong(place, f"no {kind} {name!r}; there are {listed}{more}")


def _object(value: object, place: str, *, optional: bool = True) -> Mapping[str, Any]:
    if value is None and optional:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(place, "expected an object")
    return value


def _list(fields: Mapping[str, Any], key: str, place: str) -> list[Any]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(f"{place}.{key}" if place else key, "expected a list")
    return value


def _strings(fields: Mapping[str, Any], key: str, place: str) -> list[str]:
    """Read a list of texts; none of them is empty, for that one would be found everywhere."""
    values = _list(fields, key, place)
    for number, value in enumerate(values):
        if not isinstance(value, str) or not _fold(value):
            raise _wrong(f"{place}.{key}[{number}]", f"expected a text, not {value!r}")
    return values


def _string(fields: Mapping[str, Any], key: str, place: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise _wrong(f"{place}.{key}", "missing" if value is None else f"expected a text, not {value!r}")
    return value


def _whole(fields: Mapping[str, Any], key: str, place: str, *, least: int = 0) -> int | None:
    value = fields.get(key)
    if value is not None and (type(value) is not int or value < least):
        raise _wrong(f"{place}.{key}", f"expected a whole number from {least}, not {value!r}")
    return value


def _flag(routing: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = routing.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(f"routing.{key}", f"expected true or false, not {value!r}")
    return value


def _wrong(place: str, why: str) -> InvalidInput:
    return InvalidInput(f"{place}: {why}", where=place)
