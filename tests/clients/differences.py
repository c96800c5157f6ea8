"""Compares the requests that the upstream got directly with those that it got through Cuebook."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from clients.strict_upstream import Received

#: Random ids of programs. They are compared by their order of appearance.
RANDOM = re.compile(rb"[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: The only additions that Cuebook may make, by the name in programs.toml.
AS_CHAT, RECALLED = "sent as chat completions", "recalled memory after the question"
KEPT = "history instead of `previous_response_id`"


def differences(direct: Sequence[Received], through: Sequence[Received]) -> list[str]:
    """Return the named differences, each once. Equal bytes have none."""
    names: dict[str, None] = {}
    if len(direct) != len(through):
        names[f"{len(through)} requests instead of {len(direct)}"] = None
    for number, (old, new) in enumerate(zip(_bodies(direct), _bodies(through), strict=False)):
        if direct[number].wire != through[number].wire:
            names[AS_CHAT] = None
        elif old != new:
            before, after = json.loads(old), json.loads(new)
            if "previous_response_id" in before and "previous_response_id" not in after:
                names[KEPT] = None
                before, after = _without_history(before, after)
            elif before == after:
                names[f"request {number}: other bytes of the same JSON"] = None
            names |= dict.fromkeys(_changes(before, after, f"request {number}: "))
    return list(names)


def _bodies(received: Sequence[Received]) -> list[bytes]:
    seen: dict[bytes, bytes] = {}
    return [RANDOM.sub(lambda one: seen.setdefault(one[0], b"<%d>" % len(seen)), each.raw) for each in received]


def _without_history(old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two requests of the Responses API without what only one of them has to continue an answer."""
    own = old["input"]
    own = [{"role": "user", "content": own}] if isinstance(own, str) else own
    before = {name: value for name, value in old.items() if name != "previous_response_id"}
    return before | {"input": own}, new | {"input": new["input"][-len(own) :]}


def _without_recalled(blocks: list[Any]) -> list[Any]:
    """Return content blocks of Anthropic's wire without the blocks of recalled memory."""
    return [each for each in blocks if not (isinstance(each, dict) and str(each.get("text")).startswith("<recalled "))]


def _changes(old: Any, new: Any, where: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _changes(old.get(key, "(absent)"), new.get(key, "(absent)"), f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _changes(one, other, f"{where}[{n}]")
    elif isinstance(old, str) and isinstance(new, str) and new.startswith(f"{old}\n\n<recalled "):
        yield RECALLED
    elif old != new and isinstance(old, list) and isinstance(new, list) and (recalled := _without_recalled(new)) != new:
        yield RECALLED
        yield from _changes(old, recalled, where)
    elif old != new:
        yield f"{where}: {str(old)[:200]!r} became {str(new)[:200]!r}"
