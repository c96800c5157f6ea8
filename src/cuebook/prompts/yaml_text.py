"""Parse and write YAML without guessing types: front matter of prompts, persona files and experience files.

`load` keeps every scalar as the text in the file: `NO`, `1.10` and `0123` stay what they are. It refuses anchors,
aliases, tags, directives, merge keys, duplicate keys, a second document and documents over the limits, and names the
line. `plain` converts a text to a number only if `dump` writes that number with the same characters: `0.3` is a number,
`1.10` and `1e5` are texts. So `dump` writes the same bytes again for what `load` and `plain` read from them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from math import inf
from typing import Any, NoReturn

from msgspec import Struct

from cuebook.errors import InvalidInput, TooLarge
from cuebook.prompts import strict_json

#: Maximum characters of a document, 100 times a prompt's front matter. PyYAML parses 200 in 1 ms (measured).
MAX_CHARS = 64 * 1024
#: Levels of nesting; a JSON Schema takes two for each of its own. PyYAML's time grows with their square: 115 s for
#: 60,000 brackets (measured).
MAX_DEPTH = 32
#: Documents whose values or texts are kept, and the longest. A command reads and lays out the same files several times.
_CACHED, _CACHED_CHARS = 256, 4096
#: Maximum characters of a list on one line.
_ONE_LINE = 100
#: Characters that editors do not show or that reorder their line. They are written as escapes.
_INVISIBLE = re.compile(
    "[\x85\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufff9-\ufffd\U000e0000-\U000e0fff]"
)


class Node(Struct, frozen=True):
    """A value and its first line: the text of a scalar, a list or a mapping."""

    value: "str | list[Node] | dict[str, Node]"
    line: int
    quoted: bool = False


def load(text: str, *, where: str, first_line: int = 1, what: str = "the front matter") -> Mapping[str, Node]:
    """Parse a document that is a mapping or empty. `where` and `what` name it in errors.

    Lines count from `first_line`. Raises InvalidInput naming the line. The result may be cached; do not change it.
    """
    if len(text) > MAX_CHARS:
        raise TooLarge(f"{where}: {what} has {len(text)} characters; at most {MAX_CHARS} are read", where=where)
    return (_load_cached if len(text) <= _CACHED_CHARS else _load)(text, where, first_line)


def is_null(node: Node) -> bool:
    """Return whether the file has no value here: `key:`, `key: null` or `key: ~`."""
    return not node.quoted and node.value in ("", "null", "~")


def texts(node: Node) -> Any:
    """Return a value with its scalars as texts, so that 007 does not become 7; None for null."""
    if isinstance(node.value, dict):
        return {key: texts(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [texts(child) for child in node.value]
    return None if is_null(node) else node.value


def plain(node: Node) -> Any:
    """Return a value as JSON types."""
    from yaml.representer import SafeRepresenter

    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    if node.quoted:
        return node.value
    try:
        value = strict_json.parse(node.value or "null")
    except InvalidInput:
        return node.value
    written = SafeRepresenter().represent_data(value).value
    return value if written == (node.value or "null") else node.value


def dump(document: Mapping[str, Any], *, where: str) -> str:
    """Return a mapping of JSON values in PyYAML's style, its keys in order; "" for an empty one.

    Raises InvalidInput naming the key of a value that is not JSON, and TooLarge for a document that `load` rejects.
    """
    strict_json.check(document, where=where)
    # JSON has at most three times the characters, and PyYAML takes seconds for a megabyte.
    encoded = json.dumps(document, ensure_ascii=False, default=_builtin)
    size = len(encoded) // 3
    text = ""
    if document and size <= MAX_CHARS:
        text = (_dump_cached if len(encoded) <= _CACHED_CHARS else _dump)(encoded, where)
        size = len(text)
    if size > MAX_CHARS:
        raise TooLarge(f"{where}: the front matter has over {MAX_CHARS} characters; shorten it", where=where)
    return text


# ---------------------------------------------------------------- parsing
def _load(text: str, where: str, first_line: int) -> Mapping[str, Node]:
    import yaml

    try:
        loader = yaml.BaseLoader(text)
        events = _events(loader)
        first = next(events, None)
        root = _node(first, events, first_line) if first else Node({}, first_line)
        next(events, None)  # refuses a second document
        if isinstance(root.value, dict):
            return root.value
        line, why = root.line, "expected `key: value` lines"
    except yaml.reader.ReaderError as error:
        line = first_line + text.count("\n", 0, error.position)
        why = f"U+{error.character:04X} is not allowed in YAML; remove it, or write its escape in quotes"
    except yaml.MarkedYAMLError as error:
        line, why = _explain(error)
        line += first_line
    except (ValueError, OverflowError) as error:  # PyYAML raises them for the escape "\UFFFFFFFF"
        line, why = first_line + loader.line, f"invalid YAML ({error})"
    raise InvalidInput(f"{where}: line {line}: {why}", where=f"{where}:{line}")


_load_cached = lru_cache(maxsize=_CACHED)(_load)


def _explain(error: Any) -> tuple[int, str]:
    """Return the line of a syntax error, counted from 0, and what to do about it."""
    line, context = error.problem_mark.line, error.context or ""
    if error.note:
        return line, f"{error.problem}; {error.note}"
    if error.context_mark is not None and "end of stream" in error.problem and "quoted" in context:
        return error.context_mark.line, "unclosed quote. Close it."
    if error.context_mark is not None and "flow" in context:
        return error.context_mark.line, "unclosed bracket. Close it."
    if "'\\t'" in error.problem:
        return line, "tab in the indentation. Indent with spaces."
    if "unknown escape" in error.problem:
        return line, f"{error.problem}. Double the backslash, or use single quotes."
    return line, f"{error.problem}. Put values that contain special characters in quotes."


def _events(loader: Any) -> Iterator[Any]:
    """Yield the events of values. Raises MarkedYAMLError for those that are refused."""
    import yaml

    documents = 0
    for event in iter(loader.get_event, None):
        if getattr(event, "anchor", None) is not None:
            _refuse(event, "anchors and aliases are not supported", "write the value out")
        if getattr(event, "tag", None) is not None:
            _refuse(event, "tags (`!…`) are not supported", "remove the tag")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if event.version or event.tags or documents > 1:
                _refuse(event, "directives and a second document are not supported", "leave them out")
        if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            yield event


def _node(event: Any, events: Iterator[Any], first_line: int, depth: int = 0) -> Node:
    import yaml

    line = first_line + event.start_mark.line
    if isinstance(event, yaml.ScalarEvent):
        return Node(event.value, line, quoted=event.style is not None)
    if depth == MAX_DEPTH:
        _refuse(event, f"nests deeper than {MAX_DEPTH}", "flatten it")
    inside = takewhile(lambda event: not isinstance(event, yaml.CollectionEndEvent), events)
    if isinstance(event, yaml.SequenceStartEvent):
        return Node([_node(item, events, first_line, depth + 1) for item in inside], line)
    fields: dict[str, Node] = {}
    for key in inside:
        if not isinstance(key, yaml.ScalarEvent):
            _refuse(key, "a key must be a string, not a list or a mapping", "quote it")
        if key.style is None and key.value in ("", "<<"):
            _refuse(key, "merge keys and empty keys are not supported", "write the keys out")
        if key.value in fields:
            _refuse(key, f"{key.value[:80]!r} is a duplicate of line {fields[key.value].line}", "keep one")
        fields[key.value] = _node(next(events), events, first_line, depth + 1)
    return Node(fields, line)


def _refuse(event: Any, problem: str, advice: str) -> NoReturn:
    import yaml

    raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark, note=advice)


# ---------------------------------------------------------------- writing
def _builtin(value: Any) -> Any:
    """Return a mapping or a sequence of another type as the one that JSON has."""
    return dict(value) if isinstance(value, Mapping) else list(value)


def _dump(encoded: str, where: str) -> str:
    """Return a JSON object as YAML."""
    import yaml

    tree = _tree(strict_json.parse(encoded), where)
    text = yaml.serialize(tree, Dumper=yaml.SafeDumper, allow_unicode=True, width=inf)
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_dump_cached = lru_cache(maxsize=_CACHED)(_dump)


def _tree(value: object, where: str, depth: int = 0) -> Any:
    """Return a JSON value as PyYAML's nodes, each with its style."""
    import yaml
    from yaml.representer import SafeRepresenter

    if not isinstance(value, Mapping | Sequence) or isinstance(value, str):
        represent = SafeRepresenter()
        node = represent.represent_str(value) if isinstance(value, str) else represent.represent_data(value)
        if _INVISIBLE.search(node.value):
            node.style = '"'
        elif "\n" in node.value:
            node.style = "|"
        return node
    if depth == MAX_DEPTH:
        raise InvalidInput(f"{where}: nests deeper than {MAX_DEPTH}; flatten it", where=where)
    if isinstance(value, Mapping):
        fields = [(_tree(key, where), _tree(each, f"{where}.{key}", depth + 1)) for key, each in value.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", fields, flow_style=False)
    items = [_tree(each, f"{where}[{place}]", depth + 1) for place, each in enumerate(value)]
    short = sum(len(item.value) + 2 for item in items) <= _ONE_LINE
    one_line = short and all(item.id == "scalar" and item.style != "|" for item in items)
    return yaml.SequenceNode("tag:yaml.org,2002:seq", items, flow_style=one_line)
