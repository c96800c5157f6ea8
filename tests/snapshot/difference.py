"""Compares two snapshots value by value, and separates changed prose from changed structure."""

import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

#: The replacement for a value that differs between two runs of the same code.
VARIES = "<varies>"
#: Keys whose value is a sentence for people: on every surface, and on some.
_EVERYWHERE = {"description", "detail", "doc", "err", "examples", "help", "hint", "summary"}
_BY_SURFACE = {"openapi": {"title"}, "help": {"*"}, "mcp": {"text", "title"}}

#: A signature is one word: its Base64 may contain + and /.
_WORD = re.compile(rf"{VARIES}|ed25519:[\w+/=]+|\w+|\W")
_MISSING = object()


class Change(NamedTuple):
    """One difference: its path, the old and new value, and whether only wording changed."""

    path: str
    before: Any
    after: Any
    prose: bool


def compare(surface: str, before: Any, after: Any) -> list[Change]:
    """Return the differences between two snapshots of a surface, in the order of their paths."""
    return list(_walk(surface, (), before, after))


def _walk(surface: str, path: tuple[str, ...], before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _walk(surface, (*path, str(key)), before.get(key, _MISSING), after.get(key, _MISSING))
        shared = [[key for key in each if key in before and key in after] for each in (before, after)]
        if shared[0] != shared[1]:
            yield Change("/".join((*path, "(order)")), shared[0], shared[1], prose=False)
    elif isinstance(before, list) and isinstance(after, list):
        keyed = _keyed(before, after)
        if keyed is not None:
            yield from _walk(surface, path, *keyed)
            return
        for at, (old, new) in enumerate(itertools.zip_longest(before, after, fillvalue=_MISSING)):
            yield from _walk(surface, (*path, str(at)), old, new)
    elif before != after and VARIES not in (before, after) and not _same_mask(before, after):
        yield Change("/".join(path), before, after, prose=_is_prose(surface, path, before, after))


def _keyed(*lists: list[Any]) -> list[dict[str, Any]] | None:
    """Return lists of objects as mappings by name, so that an added object moves no other; None without names."""
    for key in ("call", "name", "id"):
        if all(each and all(isinstance(one, dict) and isinstance(one.get(key), str) for one in each) for each in lists):
            return [_by(key, each) for each in lists]
    return None


def _by(key: str, items: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in items:
        times = sum(name.partition(" #")[0] == each[key] for name in found)
        found[f"{each[key]} #{times + 1}" if times else each[key]] = each
    return found


def _is_prose(surface: str, path: tuple[str, ...], before: Any, after: Any) -> bool:
    if not all(each is None or isinstance(each, str) for each in (before, after)):
        return False
    keys = _EVERYWHERE | _BY_SURFACE.get(surface, set())
    return (
        "*" in keys
        or path[-1] in keys
        or "err" in path
        or (len(path) > 1 and path[-2:] == ("error", "message"))
        or path[-2:-1] == ("text",)  # a line of a text that is not JSON
    )


def _same_mask(before: Any, after: Any) -> bool:
    """Return whether two texts are equal, except for the words that one of them masks."""
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    words, others = _WORD.findall(before), _WORD.findall(after)
    return len(words) == len(others) and all(
        VARIES in pair or one == other for pair in zip(words, others, strict=True) for one, other in [pair]
    )


def mask(first: Any, second: Any) -> Any:
    """Return the first run's value with differences to the second run masked, word by word if possible."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: mask(each, second.get(key, VARIES)) for key, each in first.items()}
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [mask(each, other) for each, other in zip(first, second, strict=True)]
    if first == second:
        return first
    if isinstance(first, str) and isinstance(second, str):
        words, others = _WORD.findall(first), _WORD.findall(second)
        if len(words) == len(others):
            return "".join(word if word == other else VARIES for word, other in zip(words, others, strict=True))
    return VARIES


def render(changes: dict[str, list[Change]], *, prose: bool) -> str:
    """Return the differences as text: all structural changes, and a count of prose changes, or all with `prose`."""
    lines = []
    for surface, found in changes.items():
        structural = [each for each in found if not each.prose]
        wording = [each for each in found if each.prose]
        if not found:
            continue
        lines.append(f"{surface}: {len(structural)} structural, {len(wording)} prose")
        for each in structural + (wording if prose else []):
            lines += [f"  {'~' if each.prose else '!'} {each.path}", *_sides(each)]
    return "\n".join(lines)


def _sides(change: Change) -> list[str]:
    shown = [(sign, value) for sign, value in (("-", change.before), ("+", change.after)) if value is not _MISSING]
    return [f"      {sign} {_short(value)}" for sign, value in shown]


def _short(value: Any, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
