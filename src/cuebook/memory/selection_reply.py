"""Parse a model's reply that selects experiences (D5): a JSON object of verdicts, a JSON list of ids, or prose.

The prompt asks for `{"id": true, "other": false}`. Broken JSON is repaired. Lists, records with a verdict and values in
other keys such as `{"selected": […]}` are read as well. Where JSON names no candidate, a regex finds the candidates in
prose, and a negation excludes those it refers to.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cuebook.records.answers import LONGEST, repair_json

__all__ = ["read_reply"]

_REASONING: Final = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_YES: Final = re.compile(r"\W*(?:true|yes|y|1|relevant|selected|applicable|applies)\b", re.IGNORECASE)
#: Keys of a record that hold its candidate's id, and keys that hold its verdict; letter case aside.
_IDS: Final = ("id", "exp_id", "experience_id", "experience", "name")
_VERDICTS: Final = ("relevant", "is_relevant", "selected", "applicable", "applies", "use", "score", "verdict")

#: In prose: where a clause ends, what excludes a candidate, and what excludes only the candidate behind it.
_CLAUSE: Final = re.compile(
    r"(?<=[.!?;])\s|(?<=[^,{\[])\n|(?<![\w-])(?:but|however|whereas|while|though|although)(?![\w-])", re.IGNORECASE
)
_NEGATION: Final = re.compile(
    r"\b(?:not?|none|neither|nor|never|without|cannot|false|irrelevant|un(?:related|selected|used|needed)|except|"
    r"exclud\w*|reject\w*|skip\w*|discard\w*|ignor\w*|omit\w*)\b|n['’]t\b|[✗❌]", re.IGNORECASE,
)  # fmt: skip
_EXCLUDES_NEXT: Final = re.compile(
    r"\b(?:not|nor|no|never|without|except(?: for)?|rather than|instead of)[\s\"'`*(]*\Z", re.IGNORECASE
)
_JOINS_NEXT: Final = re.compile(r"[\s,&/\"'`*()\[\]-]*(?:(?:and|or|nor)\b[\s\"'`*(]*)?", re.IGNORECASE)
_NOTHING: Final = re.compile(r"\b(?:none|neither|nothing|no (?:relevant )?experiences?)\b", re.IGNORECASE)


def read_reply(text: str, offered: Sequence[str]) -> tuple[str, ...] | None:
    """Return the offered ids that a reply selects, each once, in its order; None if it mentions none of them.

    Of two verdicts on one id the later holds. An empty tuple means that the reply selects none.
    """
    text = _REASONING.sub(" ", text[:LONGEST])
    ids = {name.casefold(): name for name in offered if name} | {name: name for name in offered if name}
    value = repair_json(text)
    verdicts = dict(_in_json(value, ids, selected=True))
    if not verdicts and not _selects_nothing(value):
        verdicts = dict(_in_prose(text, ids))
    if verdicts:
        return tuple(name for name, selected in verdicts.items() if selected)
    if _selects_nothing(value) or isinstance(value, list) or _NOTHING.search(text):
        return ()
    return None


def _in_json(value: Any, ids: Mapping[str, str], *, selected: bool) -> Iterator[tuple[str, bool]]:
    """Yield each offered id in a JSON value and whether it is selected."""
    if isinstance(value, str):
        if name := _id(value, ids):
            yield name, selected
    elif isinstance(value, list):
        for entry in value:
            yield from _in_json(entry, ids, selected=selected)
    elif isinstance(value, dict):
        fields = {key.casefold(): entry for key, entry in value.items()}
        if name := next((name for key in _IDS if (name := _id(fields.get(key), ids))), None):
            yield name, selected and all(_selects(fields[key]) for key in _VERDICTS if key in fields)
            return
        for key, entry in value.items():
            if name := _id(key, ids):
                yield name, selected and _selects(entry)
            else:
                negated = _NEGATION.search(key.replace("_", " "))
                yield from _in_json(entry, ids, selected=selected and not negated)


def _id(value: Any, ids: Mapping[str, str]) -> str | None:
    """Return the offered id that a value is, letter case aside."""
    text = value.strip() if isinstance(value, str) else ""
    return ids.get(text) or ids.get(text.casefold())


def _selects(verdict: Any) -> bool:
    """Return whether a verdict selects its candidate: `true`, a text that begins with yes, or a record of such."""
    if isinstance(verdict, dict):
        return any(_selects(entry) for key, entry in verdict.items() if key.casefold() in _VERDICTS)
    if isinstance(verdict, str):
        return _YES.match(verdict) is not None
    return isinstance(verdict, int | float) and verdict >= 0.5


def _selects_nothing(value: Any) -> bool:
    """Return whether an object is a selection although it names no offered id: empty, or of booleans or empty lists."""
    entries = value.values() if isinstance(value, dict) else ()
    return value == {} or any(isinstance(entry, bool) or entry in ([], None) for entry in entries)


def _in_prose(text: str, ids: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield each offered id in prose and whether it is selected, clause by clause."""
    names = "|".join(map(re.escape, sorted(ids, key=len, reverse=True))) or "(?!)"
    mention = re.compile(rf"(?<![\w-])({names})(?![\w-])", re.IGNORECASE)
    for clause in _CLAUSE.split(text):
        opening, *rest = mention.split(clause)  # then each id, and the text behind it
        excludes_all = _NEGATION.search(opening.rpartition(",")[2])  # "Neither exp-1 nor exp-2 applies"
        results: list[tuple[str, bool]] = []  # from the last to the first: ids that are joined share the verdict behind
        for at in range(len(rest) - 2, -1, -2):
            before, behind = rest[at - 1] if at else opening, rest[at + 1]
            own = _EXCLUDES_NEXT.sub("", behind) if results else behind
            selected = not (excludes_all or _EXCLUDES_NEXT.search(before) or _NEGATION.search(own))
            joined = bool(results) and _JOINS_NEXT.fullmatch(behind) is not None
            results.append((rest[at], selected and (not joined or results[-1][1])))
        yield from ((name, selected) for each, selected in reversed(results) if (name := _id(each, ids)))
