"""Which of the offered experiences a model's reply names, however it is written (D5).

Asked for is `{"id": true, "other": false}`. Read too: lists, either of them fenced, half broken or wrapped in other
keys, verdicts as texts or as objects of their own, and prose, in which a negation counts for what it is said of. Only
what was offered is given, each once, in the order of the reply. None is given for a reply that says nothing of it: that
is another thing than none chosen.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from cuebook.memory.loose_json import READ, documents

__all__ = ["read_reply"]

_THOUGHT: Final = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
#: A verdict as a text: these begin one that selects; whatever else is no selection.
_YES: Final = re.compile(
    r"\W*(?:true|yes|y|t|1|x|ok|relevant|selected?|chosen|use|include[ds]?|appl(?:y|ies|icable)|match(?:es)?|fits?|"
    r"helpful|useful)\b(?!\s+(?:not|no)\b)", re.IGNORECASE,
)  # fmt: skip
#: Keys whose value is the verdict of the object they stand in, and those that give its degree in 0..1.
_VERDICTS: Final = (
    "relevant", "is_relevant", "isrelevant", "selected", "select", "use", "include", "applies", "applicable", "apply",
    "match", "matches", "chosen", "fits", "verdict", "decision", "answer", "value", "result",
)  # fmt: skip
_DEGREES: Final = ("score", "relevance", "confidence", "probability")
_LEAST_DEGREE: Final = 0.5
_IDS: Final = ("id", "exp_id", "expid", "experience_id", "experienceid", "experience", "name")
#: Keys that hold what is not selected.
_LEFT_OUT: Final = re.compile(
    r"(?:not?|un|ir|non)[ _-]?(?:selected|relevant|chosen|applicable|used|needed|included)|reject|exclud|irrelevant|"
    r"discard|ignored|omit|skip|dropped|other|remaining|reason|explanation|rationale|thought|analysis|comment|note",
    re.IGNORECASE,
)
_NOTHING: Final = re.compile(
    r"\b(?:none|nothing|no experiences?|no relevant|not any|neither|no match(?:es|ing)?|n/a|empty)\b", re.IGNORECASE
)

#: In prose: what ends a statement, what turns it, and what denies.
_STATEMENT: Final = re.compile(r"(?<=[.!?;])(?=\s)|\n+")
_TURN: Final = re.compile(r"\b(?:but|however|whereas|while|though|although|yet)\b|[;—–]", re.IGNORECASE)
_BEFORE: Final = re.compile(
    r"(?:\b(?:not|but not|and not|nor|no|never|without|except(?: for)?|rather than|instead of|excluding|unlike)\s*"
    r"(?:the |for |use |using |select |include )?(?:experiences? )?[\s\"'`*(]*)\Z", re.IGNORECASE,
)  # fmt: skip
_DENIES: Final = re.compile(
    r"\b(?:not|no|none|neither|nor|never|without|cannot|false|irrelevant|unrelated|inapplicable|unnecessary|unsuitable|"
    r"except|exclud\w*|reject\w*|skip\w*|discard\w*|ignor\w*|omit\w*|rather than|instead of|little|hardly|"
    r"fails? to)\b|n['’]t\b|[✗✘❌]", re.IGNORECASE,
)  # fmt: skip
_AFFIRMS: Final = re.compile(
    r"\b(?:true|yes|relevant|select\w*|chosen?|choose|appl(?:y|ies|icable)|fits?|match\w*|useful|helpful|helps?|"
    r"includ\w*|use|needed|required|recommend\w*|should)\b|[✓✔✅]", re.IGNORECASE,
)  # fmt: skip
_JOINS: Final = re.compile(
    r"[\s,&/+\"'`*()\[\]:-]*(?:(?:and|or|nor|as well as|both)\b[\s,\"'`*()\[\]-]*)?", re.IGNORECASE
)


def read_reply(text: str, offered: Sequence[str]) -> tuple[str, ...] | None:
    """Give the ids of the offered that a reply selects, each once; None where it says nothing of any."""
    text = _THOUGHT.sub(" ", text[:READ])
    names = {name.casefold(): name for name in offered}
    for value, _ in documents(text):
        found = _Reading(names).take(value)
        if found is not None:
            return tuple(dict.fromkeys(found))
    return _prose(text, offered)


class _Reading:
    """Reads one JSON value of a reply."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def take(self, value: Any) -> list[str] | None:
        """Give what a whole reply selects, None where it is about something else."""
        if not value:
            return []
        found = list(self._told(value, chosen=True))
        if found or isinstance(value, list):
            return [name for name, yes in found if yes] if found or self._all_foreign(value) else None
        return [] if self._speaks(value) else None

    def _told(self, value: Any, *, chosen: bool) -> Iterator[tuple[str, bool]]:
        """Give each offered id a value tells of, and whether it selects it."""
        if isinstance(value, str):
            yield from self._in_text(value, chosen=chosen)
        elif isinstance(value, list):
            for each in value:
                yield from self._told(each, chosen=chosen)
        elif isinstance(value, dict):
            own = self._record(value)
            if own is not None:
                yield own[0], own[1] and chosen
                return
            for key, inner in value.items():
                name = self._id(key)
                if name is not None:
                    yield name, chosen and _selects(inner)
                elif inner is not None and not isinstance(inner, bool | float):
                    yield from self._told(inner, chosen=chosen and not _LEFT_OUT.search(key))

    def _record(self, value: dict[str, Any]) -> tuple[str, bool] | None:
        """Read `{"id": "exp-1", "relevant": true}`; one without a verdict is listed because it was selected."""
        for key in _IDS:
            given = next((inner for own, inner in value.items() if own.casefold() == key), None)
            name = self._id(given) if isinstance(given, str) else None
            if name is not None:
                verdict = _verdict(value)
                return name, True if verdict is None else verdict
        return None

    def _in_text(self, text: str, *, chosen: bool) -> Iterator[tuple[str, bool]]:
        name = self._id(text)
        if name is not None:
            yield name, chosen
            return
        for each, yes in _verdicts(text, list(self._names.values())):
            yield each, chosen and yes

    def _id(self, text: str) -> str | None:
        bare = text.strip()
        known = self._names.get(bare.casefold())
        if known is None:
            bare = bare.strip("\"'`*[]()<>").strip()
            known = self._names.get(bare.casefold())
        if known is None:
            bare = re.sub(r"(?i)\A(?:experience\s*)?(?:\(?\s*id\s*[:=]?\s*)", "", bare).strip(" )")
            known = self._names.get(bare.casefold())
        return known

    def _all_foreign(self, value: list[Any]) -> bool:
        """Whether a list names what was not offered: a reply all the same, that selects nothing."""
        return all(isinstance(each, str | dict | list) for each in value)

    def _speaks(self, value: Any) -> bool:
        """Whether an object is a reply: verdicts of ids nobody offered, or an empty selection."""
        return isinstance(value, dict) and any(
            isinstance(inner, bool) or inner in ([], {}, None, "none", "None", "") or isinstance(inner, list)
            for inner in value.values()
        )


def _selects(value: Any) -> bool:
    """Whether what stands beside an id says that it is selected."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value >= _LEAST_DEGREE
    if isinstance(value, str):
        return _YES.match(value) is not None
    if isinstance(value, list):
        return bool(value) and _selects(value[0])
    return isinstance(value, dict) and (_verdict(value) or False)


def _verdict(value: dict[str, Any]) -> bool | None:
    """Give what an object's own keys decide, None where none does."""
    lowered = {key.casefold(): inner for key, inner in value.items()}
    for key in _VERDICTS:
        if key in lowered:
            return _selects(lowered[key])
    for key in _DEGREES:
        if isinstance(lowered.get(key), float):
            return bool(lowered[key] >= _LEAST_DEGREE)
    return None


# ---- prose ----------------------------------------------------------------------------------------------------------


def _prose(text: str, offered: Sequence[str]) -> tuple[str, ...] | None:
    """Read a reply that is no JSON; of two verdicts on one id the later holds."""
    last: dict[str, bool] = {}
    for name, yes in _verdicts(text, offered):
        last.pop(name, None)
        last[name] = yes
    if not last and not _NOTHING.search(text) and not re.fullmatch(r"[\s\[\]{}]*", text):
        return None
    if not last and not text.strip():
        return None
    return tuple(name for name, yes in last.items() if yes)


def _verdicts(text: str, offered: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Give each mention of an offered id in a text, and whether what is said of it selects it."""
    if not offered:
        return
    names = {name.casefold(): name for name in offered}
    longest = sorted(names, key=len, reverse=True)
    mention = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])", re.IGNORECASE)
    for statement in _STATEMENT.split(text):
        places = list(mention.finditer(statement))
        if places:
            yield from _judged(statement, [(place.span(), names[place[0].casefold()]) for place in places])


def _judged(statement: str, places: Sequence[tuple[tuple[int, int], str]]) -> Iterator[tuple[str, bool]]:
    """Judge the mentions of one statement: by what stands before all of them, right before each, and behind it."""
    opening = _TURN.split(statement[: places[0][0][0]])[-1]
    all_denied = _DENIES.search(opening) is not None
    verdicts: list[bool | None] = []
    for at, ((begin, end), _) in enumerate(places):
        following = places[at + 1][0][0] if at + 1 < len(places) else len(statement)
        before = statement[places[at - 1][0][1] if at else 0 : begin]
        denied = at > 0 and _BEFORE.search(before) is not None
        behind = _BEFORE.sub("", statement[end:following]) if at + 1 < len(places) else statement[end:]
        behind = _until_turn(behind, last=at + 1 == len(places))
        verdicts.append(False if denied else _said(behind))
    _spread(statement, places, verdicts)
    for (_, name), verdict in zip(places, verdicts, strict=True):
        yield name, verdict if verdict is not None else not all_denied


def _until_turn(behind: str, *, last: bool) -> str:
    """Cut what is said behind an id where the sentence turns to something else, unless the turn is a dash or colon."""
    if last:
        parts = re.split(r"\b(?:but|however|whereas|though|although)\b", behind, maxsplit=1, flags=re.IGNORECASE)
        return parts[0] if parts[0].strip(" ,\"'`*") else behind
    return _TURN.split(behind, maxsplit=1)[0] if not re.match(r"[\s\"'`*]*[—–]", behind) else behind


def _said(behind: str) -> bool | None:
    """Give the verdict in what stands behind an id, None for none."""
    if _DENIES.search(behind):
        return False
    return True if _AFFIRMS.search(behind) else None


def _spread(statement: str, places: Sequence[tuple[tuple[int, int], str]], verdicts: list[bool | None]) -> None:
    """Let ids that are only joined ("exp-1 and exp-2 are not relevant") have the verdict of the one behind them."""
    for at in range(len(places) - 2, -1, -1):
        between = statement[places[at][0][1] : places[at + 1][0][0]]
        if verdicts[at] is None and _JOINS.fullmatch(between):
            verdicts[at] = verdicts[at + 1]
