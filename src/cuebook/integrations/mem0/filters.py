"""Check the arguments of mem0's methods, and match memories with its filters."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from operator import ge, gt, le, lt
from typing import Any, Final

Item = dict[str, Any]
#: What a memory can belong to; a filter has one of them at least.
ENTITIES: Final = ("user_id", "agent_id", "run_id")
_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}


def entities_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the user, the agent and the run of a memory or a filter. Raises ValueError without any."""
    found: dict[str, str] = {}
    for name in ENTITIES:
        if values.get(name) is None:
            continue
        found[name] = str(values[name]).strip()
        if not found[name] or any(map(str.isspace, found[name])):
            msg = f"Invalid {name}: {values[name]!r}. Pass an ID without spaces."
            raise ValueError(msg)
    if not found:
        msg = "At least one of user_id, agent_id, run_id is required, such as filters={'user_id': 'ann'}."
        raise ValueError(msg)
    return found


def owner_of(entities: Mapping[str, str]) -> str:
    """Return the user of Cuebook that owns the memories: the user, or else the agent or the run."""
    name = next(each for each in ENTITIES if each in entities)
    return entities[name] if name == "user_id" else f"{name.removesuffix('_id')}:{entities[name]}"


def messages_of(messages: str | Item | Sequence[Item]) -> list[Item]:
    """Return messages as a list of objects with a role and a content. Raises ValueError."""
    listed: Any = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if isinstance(listed, Mapping):
        listed = [listed]
    if not isinstance(listed, Sequence):
        msg = f"messages: expected a str, a dict or a list of dicts, got {type(messages).__name__}."
        raise ValueError(msg)  # noqa: TRY004  # mem0's error
    return [each for each in listed if each.get("role") is not None and each.get("content") is not None]


def query_of(query: object) -> str:
    """Return a query without spaces at its ends. Raises ValueError for an empty one."""
    if not (isinstance(query, str) and query.strip()):
        msg = "Invalid query: empty. Pass a question or keywords."
        raise ValueError(msg)
    return query.strip()


def text_of(content: str | Sequence[Item]) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))


def day_of(value: date | str) -> str:
    """Return a date as YYYY-MM-DD. Raises ValueError."""
    if isinstance(value, datetime):
        value = value.date()
    return (value if isinstance(value, date) else date.fromisoformat(value)).isoformat()


def check_number(name: str, value: object, *, most: float | None = None) -> None:
    """Check a limit, which is not negative. Raises ValueError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value < 0
        or (most is not None and value > most)
    ):
        msg = f"Invalid {name}: {value!r}. Pass a number from 0" + ("." if most is None else f" to {most}.")
        raise ValueError(msg)


def fits(fields: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Return whether the fields of a memory fit all conditions of a filter. Raises ValueError."""
    return all(_meets(fields, name, condition) for name, condition in filters.items())


def _meets(fields: Mapping[str, Any], name: str, condition: Any) -> bool:
    if name in ("AND", "OR", "NOT"):
        found = [fits(fields, each) for each in condition]
        return all(found) if name == "AND" else any(found) if name == "OR" else not any(found)
    if condition == "*":
        return name in fields
    if isinstance(condition, Mapping):
        return all(_compares(fields.get(name), operator, other) for operator, other in condition.items())
    return bool(fields.get(name) == condition)


def _compares(value: Any, operator: str, other: Any) -> bool:
    if operator in _ORDER:
        return value is not None and _ORDER[operator](value, other)
    if operator in ("eq", "ne"):
        return bool((value == other) is (operator == "eq"))
    if operator in ("in", "nin"):
        return (value in other) is (operator == "in")
    if operator in ("contains", "icontains"):
        texts = [str(each) if operator == "contains" else str(each).casefold() for each in (other, value)]
        return value is not None and texts[0] in texts[1]
    msg = (
        f"Unsupported metadata filter operator: {operator}. Available: eq, ne, in, nin, {', '.join(_ORDER)}, contains."
    )
    raise ValueError(msg)
