"""Select the prompt profile of a turn: presets of add-ons, the rules and modes that select one, and review intervals.

AgentOS's `config/metaprompt-presets.json`. A review selects the matching rule of the
highest priority, else the mode's preset, else the default; between reviews the conversation keeps its preset.
"""

import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, structs

from cuebook.validate import Document, Fault, check_known, check_unique, mode_key, refuse, validate

Text = Annotated[str, Meta(min_length=1)]
Whole = Annotated[int, Meta(ge=0)]

#: Unicode blocks of scripts without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)  # fmt: skip


class Preset(Document, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Add-ons after the persona's text, in order. The original's presets have more fields."""

    id: Text
    addon_prompt_keys: tuple[Text, ...] = ()


class PresetRule(Document, frozen=True, kw_only=True):
    """The conditions under which a message selects a preset: all set ones must hold. Modes and keywords are folded."""

    id: Text
    preset_id: Text
    priority: float = 0
    modes: tuple[Text, ...] = ()  # the mode's name must contain one of them
    any_keywords: tuple[Text, ...] = ()
    all_keywords: tuple[Text, ...] = ()
    min_message_chars: Whole | None = None  # inclusive
    max_message_chars: Whole | None = None


class Routing(Document, frozen=True, kw_only=True):
    """The preset if no rule matches, and the review interval."""

    default_preset_id: str = ""  # "": no preset
    default_preset_by_mode: Mapping[str, Text] = {}
    review_every_n_turns: Annotated[int, Meta(ge=1)] = 6
    force_review_on_compaction: bool = True


class Presets(Document, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A presets file. Once read, rules are sorted by priority, and modes and keywords are folded.

    Other modules parse its sections for sentiment and memory.
    """

    routing: Routing = Routing()
    presets: tuple[Preset, ...] = ()
    rules: tuple[PresetRule, ...] = ()
    sentiment_tracking: Any = None
    memory_compaction: Any = None


#: The reason of a profile that was not reviewed.
CACHED: Final = "cached"


class Profile(Struct, frozen=True, kw_only=True):
    """A turn's profile, with the reason.

    `reason` is one of rule:ID, defaultByModeExact:MODE, defaultByModePattern:KEY, default, cached.
    """

    preset_id: str
    reviewed: int  # the turn of the last review
    addon_keys: tuple[str, ...] = ()
    reason: str = CACHED


# ---- selection -------------------------------------------------------------------------------------------------------


def route(
    presets: Presets, *, message: str, mode: str | None, turn: int, last: Profile | None, compacted: bool
) -> Profile:
    """Return the profile of a turn (from 1): the stored one, or a new choice if a review is due.

    `last` is the last turn's profile, None for none. A stored preset that the file no longer has is reviewed.
    """
    if last is not None and not _is_due(presets, last, turn, compacted=compacted):
        chosen, reason, reviewed = last.preset_id, CACHED, last.reviewed
    else:
        chosen, reason = _choose(presets, message, _fold(mode or ""))
        reviewed = turn
    addons = dict.fromkeys(key for each in presets.presets if each.id == chosen for key in each.addon_prompt_keys)
    return Profile(preset_id=chosen, reviewed=reviewed, addon_keys=tuple(addons), reason=reason)


def _is_due(presets: Presets, last: Profile, turn: int, *, compacted: bool) -> bool:
    routing = presets.routing
    forced = compacted and routing.force_review_on_compaction
    known = [each.id for each in presets.presets] if last.preset_id else [routing.default_preset_id]
    return forced or last.preset_id not in known or not 0 <= turn - last.reviewed < routing.review_every_n_turns


def _choose(presets: Presets, message: str, mode: str) -> tuple[str, str]:
    text = _fold(message)
    for rule in presets.rules:
        if _applies(rule, text, len(message), mode):
            return rule.preset_id, f"rule:{rule.id}"
    by_mode = presets.routing.default_preset_by_mode
    if key := mode_key(by_mode, mode):
        return by_mode[key], f"defaultByMode{'Exact' if key == mode else 'Pattern'}:{key}"
    return presets.routing.default_preset_id, "default"


def _applies(rule: PresetRule, text: str, length: int, mode: str) -> bool:
    return (
        (rule.min_message_chars is None or length >= rule.min_message_chars)
        and (rule.max_message_chars is None or length <= rule.max_message_chars)
        and (not rule.modes or any(part in mode for part in rule.modes))
        and (not rule.any_keywords or any(_holds(text, each) for each in rule.any_keywords))
        and all(_holds(text, each) for each in rule.all_keywords)
    )


def _holds(text: str, keyword: str) -> bool:
    """Return whether a folded text contains a folded keyword as whole words: "planet" is no plan."""
    at = text.find(keyword)
    while at >= 0:
        end = at + len(keyword)
        inside = _joined(text[at - 1 : at], keyword[0]) or _joined(text[end : end + 1], keyword[-1])
        if not inside:
            return True
        at = text.find(keyword, at + 1)
    return False


def _joined(beside: str, edge: str) -> bool:
    """Return whether the character next to a keyword continues its word. In scripts without spaces none does."""
    return bool(beside) and _is_of_word(beside) and _is_of_word(edge) and not (_unspaced(beside) or _unspaced(edge))


def _is_of_word(char: str) -> bool:
    return char == "_" or unicodedata.category(char)[0] in "LNM"  # letters, numbers, marks


def _unspaced(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _UNSPACED)


def _fold(text: str) -> str:
    """Return a text folded for comparison: case, width, composition and white space do not matter."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(plain.split())


# ---- parsing ---------------------------------------------------------------------------------------------------------


def read_presets(document: object, *, file: str, prompts: Collection[str]) -> Presets:
    """Return the presets, routing and rules of a presets file. `prompts`: the ids of all prompts.

    Raises InvalidInput naming the path inside the file. An add-on is searched by its id, then under `default/`.
    """
    presets, faults = validate(document, Presets)
    if presets is not None and not faults:  # the places of faulty members are lost
        faults += _faults(presets, prompts)
    refuse(faults, file=file)
    assert presets is not None  # noqa: S101  # without a fault there is a value
    rules = [
        structs.replace(
            rule,
            modes=tuple(map(_fold, rule.modes)),
            any_keywords=tuple(map(_fold, rule.any_keywords)),
            all_keywords=tuple(map(_fold, rule.all_keywords)),
        )
        for rule in sorted(presets.rules, key=lambda rule: -rule.priority)
    ]
    by_mode = {_fold(mode): preset for mode, preset in presets.routing.default_preset_by_mode.items()}
    routing = structs.replace(presets.routing, default_preset_by_mode=by_mode)
    return structs.replace(presets, rules=tuple(rules), routing=routing)


def _faults(file: Presets, prompts: Collection[str]) -> Iterator[Fault]:
    presets, routing = [preset.id for preset in file.presets], file.routing
    yield from check_unique("presets", presets)
    yield from check_unique("rules", [rule.id for rule in file.rules])
    keys = [
        (f"presets[{number}].addonPromptKeys[{at}]", key)
        for number, preset in enumerate(file.presets)
        for at, key in enumerate(preset.addon_prompt_keys)
        if f"default/{key}" not in prompts
    ]
    yield from check_known("prompt", keys, prompts)
    named = [(f"rules[{at}].presetId", rule.preset_id) for at, rule in enumerate(file.rules)]
    if routing.default_preset_id:
        named.append(("routing.defaultPresetId", routing.default_preset_id))
    named += [(f"routing.defaultPresetByMode.{mode}", name) for mode, name in routing.default_preset_by_mode.items()]
    yield from check_known("preset", named, presets)
    for at, rule in enumerate(file.rules):
        least, most = rule.min_message_chars, rule.max_message_chars
        if least is not None and most is not None and least > most:
            yield Fault(f"rules[{at}].maxMessageChars", f"{most} is below minMessageChars. No message fits.")
    for mode in routing.default_preset_by_mode:
        if not _fold(mode):
            yield Fault(f"routing.defaultPresetByMode.{mode}", "empty mode. It would match every mode.")
