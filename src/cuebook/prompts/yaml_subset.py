"""How front matter is read and written: YAML in which nothing is guessed and nothing can grow.

Read: every scalar is the text that stands there; `NO`, `1.10` and `0123` stay what they are. Anchors, aliases, tags,
directives, merge keys, a key given twice, a second document, more than `MAX_CHARS` characters or `MAX_DEPTH` levels are
refused with their line. Written: one form per value, so that reading and writing gives the same bytes; a text is quoted
where any YAML would read something else in it, and what cannot be seen is escaped.

Where a value is free, `plain` reads it as JSON does, but a number only if writing it gives the same characters again:
`0.3` is one, `1.10` and `1e5` are texts.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, NoReturn

from msgspec import Struct

from cuebook.errors import InvalidInput, TooLarge

#: Characters of a document; 100 times what a prompt's front matter holds. PyYAML reads some 200 in 1 ms (measured).
MAX_CHARS = 64 * 1024
#: Levels of nesting: a JSON Schema takes two for each of its own. PyYAML's time grows with their square (measured:
#: 115 s for 60,000 brackets), and it is stopped at the first one too many.
MAX_DEPTH = 32
#: Digits of a number that is read as one.
_MAX_DIGITS = 40
#: Characters of a key, in its quotes; YAML ends at 1,024.
_LONGEST_KEY = 1000
#: Characters of a list that is written on one line.
_ONE_LINE = 100

_INTEGER = re.compile(rf"-?(?:0|[1-9][0-9]{{0,{_MAX_DIGITS - 1}}})")
_FLOAT = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[+-][0-9]{1,3})?")
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None, "": None}
#: Unquoted words that some YAML reads as something else than themselves (YAML 1.1, `bool` and `null`).
_READ_ELSE = frozenset("y n yes no on off true false null nan inf".split())
#: Written as escapes: what YAML allows only so, and what cannot be seen in an editor or turns its line around.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff"
    "\U000e0000-\U000e0fff]"
)
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\??")
#: No sign of YAML is beyond ASCII; no class of Unicode, as those differ from Python to Python.
_BARE = re.compile("[A-Za-z_\u00c0-\U0010ffff](?:.*[^\\s:])?")
_NOT_BARE = re.compile(r":\s|\s#")
_NOT_BARE_IN_A_LIST = re.compile(r"[,\[\]{}:?#]")


class Node(Struct, frozen=True):
    """A value of a document: a scalar's text, a list or a mapping, where it begins, and whether it stands in quotes."""

    value: "str | list[Node] | dict[str, Node]"
    line: int
    quoted: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing was written, as in `key:`."""
        return self.value == "" and not self.quoted


# ---------------------------------------------------------------- reading
def load(text: str, *, where: str, first_line: int = 1, what: str = "the front matter") -> dict[str, Node]:
    """Read a document that is a mapping; an empty one is an empty mapping. `where` and `what` name it in errors.

    Lines count from `first_line`. Raises InvalidInput naming line and key.
    """
    if len(text) > MAX_CHARS:
        raise TooLarge(f"{where}: {what} has {len(text)} characters; at most {MAX_CHARS} are read", where=where)
    import yaml

    reader = _Reader(where, first_line)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            reader.take(event)
    except yaml.reader.ReaderError as error:
        line = first_line + text.count("\n", 0, error.position)
        reader.refuse(
            line, f"U+{error.character:04X} is no character of YAML; remove it, or write its escape in quotes"
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "no YAML"
        reader.refuse(
            first_line + mark.line if mark else reader.line, f"{problem}; a text with such signs stands in quotes"
        )
    except (ValueError, OverflowError) as error:  # PyYAML's own: "\UFFFFFFFF"
        reader.refuse(reader.line, f"no YAML ({error})")
    if reader.root is None:
        return {}
    if not isinstance(reader.root.value, dict):
        reader.refuse(reader.root.line, "expected `key: value` lines")
    return reader.root.value


def plain(node: Node) -> Any:
    """Return a free value as JSON would have it."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value if node.quoted else _plain_text(node.value)


def _plain_text(text: str) -> str | float | bool | None:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and text != "-0":
        return int(text)
    if _FLOAT.fullmatch(text) and isfinite(float(text)) and repr(float(text)) == text:
        return float(text)
    return text


class _Open(Struct):
    """A list or mapping whose end has not come; `key` is the one whose value comes next or is being read."""

    node: Node
    key: str = ""
    awaits: bool = False


class _Reader:
    """Builds the tree of a document from PyYAML's events, which come as they are read."""

    def __init__(self, where: str, first_line: int) -> None:
        self.where = where
        self.first_line = first_line
        self.line = first_line
        self.root: Node | None = None
        self.open: list[_Open] = []

    def take(self, event: Any) -> None:
        import yaml

        self.line = self.first_line + event.start_mark.line
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            self.refuse(self.line, "anchors and aliases are not read; write the value out")
        if getattr(event, "tag", None) is not None:
            self.refuse(self.line, f"tags such as {event.tag[:40]!r} are not read; leave it out")
        if isinstance(event, yaml.DocumentStartEvent) and (event.version or event.tags or self.root):
            self.refuse(self.line, "directives and a second document are not read; leave them out")
        if isinstance(event, yaml.ScalarEvent):
            self.put(Node(event.value, self.line, quoted=event.style is not None))
        elif isinstance(event, yaml.CollectionStartEvent):
            self.begin(Node({} if isinstance(event, yaml.MappingStartEvent) else [], self.line))
        elif isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()

    def begin(self, node: Node) -> None:
        self.put(node)
        if len(self.open) == MAX_DEPTH:
            self.refuse(node.line, f"nests deeper than {MAX_DEPTH}; flatten it")
        self.open.append(_Open(node))

    def put(self, node: Node) -> None:
        """Give a value its place: a mapping takes key and value in turns."""
        if not self.open:
            self.root = node
            return
        top = self.open[-1]
        if isinstance(top.node.value, list):
            top.node.value.append(node)
        elif isinstance(top.node.value, dict):
            if top.awaits:
                top.node.value[top.key] = node
            else:
                top.key = self.key(node, top.node.value)
            top.awaits = not top.awaits

    def key(self, node: Node, parent: Mapping[str, Node]) -> str:
        if not isinstance(node.value, str):
            self.refuse(node.line, "a key is a text, not a list or a mapping")
        if node.empty or (node.value == "<<" and not node.quoted):
            self.refuse(node.line, "merge keys and empty keys are not read; write the keys out")
        if node.value in parent:
            first = parent[node.value].line
            self.refuse(node.line, f"{node.value[:80]!r} is given twice, first in line {first}; keep one")
        return node.value

    def refuse(self, line: int, why: str) -> NoReturn:
        path = [level.key for level in self.open if level.key and (level is not self.open[-1] or level.awaits)]
        place = f"{'.'.join(path)}: " if path else ""
        raise InvalidInput(f"{self.where}: line {line}: {place}{why}", where=f"{self.where}:{line}")


# ---------------------------------------------------------------- writing
def dump(document: Mapping[str, Any], *, where: str) -> str:
    """Write a mapping of plain values, a line per key in its order; "" for an empty one.

    Raises InvalidInput naming the key of what is no JSON, and TooLarge for what `load` would not read.
    """
    text = "".join(f"{line}\n" for line in _mapping(document, where, 0))
    if len(text) > MAX_CHARS:
        raise TooLarge(
            f"{where}: the front matter has {len(text)} characters; at most {MAX_CHARS} are read", where=where
        )
    return text


class Literal(str):
    """A text that is written as it is, for one known to be a number, true or false."""

    __slots__ = ()


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> Iterator[str]:
    indent = "  " * _level(depth, where)
    for key, child in value.items():
        if not isinstance(key, str):
            raise InvalidInput(f"{where}: the key {key!r} is no text", where=where)
        name = key if _BARE_KEY.fullmatch(key) and _is_bare(key) else _quoted(key, where)
        if len(name) > _LONGEST_KEY:
            raise InvalidInput(
                f"{where}: a key has {len(name)} characters; at most {_LONGEST_KEY} are read", where=where
            )
        place = f"{where}.{key}"
        line = _inline(child, place)
        yield f"{indent}{name}:" if line is None else f"{indent}{name}: {line}"
        if line is None:
            yield from _block(child, place, depth + 1)


def _level(depth: int, where: str) -> int:
    """Return a block's depth; one level less than is read, for what stands on a line of its own key."""
    if depth >= MAX_DEPTH - 1:
        raise InvalidInput(f"{where}: nests deeper than {MAX_DEPTH}; flatten it", where=where)
    return depth


def _block(value: Any, where: str, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _mapping(value, where, depth)
        return
    indent = "  " * _level(depth, where)
    for place, child in enumerate(value):
        line = _inline(child, f"{where}[{place}]")
        if line is not None:
            yield f"{indent}- {line}"
            continue
        for number, inner in enumerate(_block(child, f"{where}[{place}]", depth + 1)):
            yield inner if number else f"{indent}- {inner.lstrip(' ')}"


def _inline(value: Any, where: str) -> str | None:
    """Write a value on the line of its key, if it can stand there: a scalar, a short list of them, nothing."""
    if isinstance(value, Mapping):
        return None if value else "{}"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return _scalar(value, where)
    if any(isinstance(child, Mapping | list | tuple) for child in value):
        return None
    line = f"[{', '.join(_scalar(child, f'{where}[{place}]', listed=True) for place, child in enumerate(value))}]"
    return line if len(line) <= _ONE_LINE else None


def _scalar(value: Any, where: str, *, listed: bool = False) -> str:
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, str):
        bare = _is_bare(value) and not (listed and _NOT_BARE_IN_A_LIST.search(value))
        return value if bare else _quoted(value, where)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) < 10**_MAX_DIGITS:
        return str(int(value))
    if isinstance(value, float) and isfinite(value):
        return repr(float(value))
    shown = repr(value)[:40] if isinstance(value, float) else type(value).__name__
    raise InvalidInput(f"{where}: {shown} is no value of JSON, or too long a number", where=where)


def _is_bare(text: str) -> bool:
    """Whether every YAML reads the text itself where it stands without quotes."""
    return (
        _BARE.fullmatch(text) is not None
        and not _UNSEEN.search(text)
        and not _NOT_BARE.search(text)
        and text.lower() not in _READ_ELSE
    )


def _quoted(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{where}: holds half a character (a lone surrogate)", where=where) from error
    return _UNSEEN.sub(_escaped, json.dumps(text, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
