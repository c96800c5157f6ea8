"""Parse and write the front matter of a prompt's file: its keys, their types, and their order.

Keys are accepted in any order. `id`, `params` and `inherits_from` (of kAI and Cortex) are aliases of `name`, `input`
and `inherits`. Unknown keys are stored in `metadata["extra"]`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, get_args

from msgspec.structs import asdict

from cuebook.errors import InvalidInput
from cuebook.prompts.pages import FilePages
from cuebook.prompts.params import bare, read_params
from cuebook.prompts.yaml_text import Node, plain
from cuebook.records.prompt import MAIN, Engine, Param, Version

#: The file format version; a file with a greater number is from a later Cuebook.
FORMAT = "1"
#: Metadata with a top-level key, as in other formats.
OWN_METADATA = ("context_weights", "config", "model", "output", "tests")
#: All known keys, in the order of writing.
KEYS = (
    *"cuebook name version description author tags sync type branch inherits override_sections engine".split(),
    *("input", "params", *OWN_METADATA, "metadata"),
)
ALIASES = {"id": "name", "inherits_from": "inherits"}

_NOTHING = ("", "null", "~")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?")
_BOOLEANS = ("true", "false")


class FrontMatter:
    """The typed values of the front matter; errors name file, line and key."""

    def __init__(self, page: FilePages) -> None:
        self.page = page
        for alias, key in (*ALIASES.items(), ("params", "input")):
            if alias in page.front and key in page.front:
                page.refuse(page.front[alias].line, f"{alias!r} and {key!r} are aliases. Keep one.")
        self.nodes = {ALIASES.get(key, key): node for key, node in page.front.items()}

    def refuse(self, key: str, why: str) -> NoReturn:
        self.page.refuse(self.nodes[key].line, f"{key}: {why}")

    def value_of(self, key: str) -> Node | None:
        """Return a key's value; None if it is missing, empty or null."""
        node = self.nodes.get(key)
        return None if node is None or _is_nothing(node) else node

    def text(self, key: str) -> str:
        """Return a text, "" if missing."""
        node = self.value_of(key)
        if node is None:
            return ""
        if not isinstance(node.value, str):
            self.refuse(key, "expected a string")
        return node.value

    def checked(self, key: str, check: Callable[..., Any]) -> str:
        """Return a text that passes a check, "" if missing."""
        text = self.text(key)
        if text:
            self.page.check(self.nodes[key].line, lambda: check(text, where=key))
        return text

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a single one needs no brackets."""
        node = self.value_of(key)
        if node is None:
            return ()
        texts = [child.value for child in node.value] if isinstance(node.value, list) else [node.value]
        named = tuple(text for text in texts if isinstance(text, str))
        if len(named) != len(texts):
            self.refuse(key, "expected a list of strings")
        return named

    def flag(self, key: str) -> bool:
        """Return a boolean, false if missing."""
        text = self.text(key).lower()
        if text not in ("", *_BOOLEANS):
            self.refuse(key, f"expected true or false, got {text[:40]!r}")
        return text == "true"

    def engine(self) -> Engine:
        """Return the engine, `dollar` if missing."""
        text = self.text("engine") or "dollar"
        if text not in get_args(Engine):
            self.refuse("engine", f"expected {', '.join(get_args(Engine))}, got {text[:40]!r}")
        return text  # type: ignore[return-value]  # one of the literal's, as was just seen

    def params(self) -> tuple[Param, ...]:
        """Return the parameters of `input.schema` with the defaults of `input.default`, or those of `params`."""
        listed, node = self.value_of("params"), self.value_of("input")
        if listed is not None:
            return self.page.check(listed.line, lambda: read_params(raw(listed), where="params"))
        if node is None:
            return ()
        if not isinstance(node.value, dict) or node.value.keys() - {"schema", "default"}:
            self.refuse("input", "expected `schema:` and `default:`")
        schema, default = node.value.get("schema", Node("", node.line)), node.value.get("default", Node({}, node.line))
        params = self.page.check(schema.line, lambda: read_params(raw(schema), where="input.schema"))
        defaults = {} if default.empty else default.value
        if not isinstance(defaults, dict):
            self.page.refuse(default.line, "input.default: expected the names of parameters and their values")
        values = {bare(name): raw(child) for name, child in defaults.items()}
        return self.page.check(default.line, lambda: with_defaults(params, values))

    def metadata(self) -> dict[str, Any]:
        """Return the metadata: `metadata`, our keys beside it, and unknown keys in `extra`."""
        node = self.value_of("metadata")
        results = {} if node is None else plain(node)
        if not isinstance(results, dict):
            self.refuse("metadata", "expected `key: value` lines")
        for key in OWN_METADATA:
            if key in self.nodes and key in results:
                self.refuse(key, "is a duplicate of a key below `metadata`. Keep one.")
            if key in self.nodes:
                results[key] = self.weights(key) if key == "context_weights" else plain(self.nodes[key])
        unknown = [key for key in self.nodes if key not in KEYS]
        if unknown and "extra" in results:
            self.refuse(unknown[0], "is unknown. Move it into the existing `metadata.extra`.")
        return {**results, "extra": {key: plain(self.nodes[key]) for key in unknown}} if unknown else results

    def weights(self, key: str) -> dict[str, float]:
        """Return signals with their weights."""
        node = self.value_of(key) or Node({}, 0)
        if not isinstance(node.value, dict):
            self.refuse(key, "expected the names of signals and their weights")
        weights: dict[str, float] = {}
        for name, child in node.value.items():
            if not isinstance(child.value, str) or not _NUMBER.fullmatch(child.value):
                self.page.refuse(child.line, f"{key}.{name}: expected a number, such as 0.8")
            whole = child.value.lstrip("+-").isdecimal()
            weights[name] = int(child.value) if whole else float(child.value)
        return weights


def raw(node: Node) -> Any:
    """Return a value with its scalars as texts; None for an empty one, and no `default` if none is set."""
    if isinstance(node.value, dict):
        return {key: raw(child) for key, child in node.value.items() if key != "default" or not _is_nothing(child)}
    if isinstance(node.value, list):
        return [raw(child) for child in node.value]
    return None if node.empty else node.value


def _is_nothing(node: Node) -> bool:
    return isinstance(node.value, str) and not node.quoted and node.value in _NOTHING


def with_defaults(params: Iterable[Param], defaults: Mapping[str, Any]) -> tuple[Param, ...]:
    """Return parameters with typed defaults. Raises InvalidInput for an undeclared one."""
    declared = {param.name: param for param in params}
    unknown = [name for name in defaults if name not in declared]
    if unknown:
        raise InvalidInput(f"input.default: {unknown[0]!r} is not declared in input.schema", where="input.default")
    forms = [asdict(param) | {"default": defaults.get(name, param.default)} for name, param in declared.items()]
    return read_params(forms, where="input.default")


# ---------------------------------------------------------------- writing
def written(version: Version) -> dict[str, Any]:
    """Return a version's front matter, default values omitted."""
    front: dict[str, Any] = {
        "cuebook": int(FORMAT),
        "name": version.slug,
        "version": version.semver,
        "description": version.description,
        "author": version.author,
        "tags": list(version.tags),
        "sync": version.sync,
        "type": "" if version.type == "prompt" else version.type,
        "branch": "" if version.branch == MAIN else version.branch,
        "inherits": version.inherits,
        "override_sections": list(version.override_sections),
        "engine": "" if version.engine == "dollar" else version.engine,
        **_params(version.params),
    }
    return {key: value for key, value in front.items() if value} | dict(_metadata(version.metadata))


def _params(params: tuple[Param, ...]) -> dict[str, Any]:
    """Return parameters as picoschema and defaults, or as a list if picoschema cannot express them."""
    if all(param.description == param.description.strip() for param in params):
        schema = {
            f"{param.name}{'' if _is_required(param) else '?'}": ", ".join(
                filter(None, (param.type, param.description))
            )
            for param in params
        }
        default = {param.name: _default(param) for param in params if param.default is not None}
        return {"input": {key: value for key, value in (("schema", schema), ("default", default)) if value}}
    return {"params": [dict(_listed(param)) for param in params]}


def _listed(param: Param) -> Iterator[tuple[str, Any]]:
    yield "name", param.name
    yield "type", param.type
    if not _is_required(param):
        yield "required", False
    if param.default is not None:
        yield "default", _default(param)
    if param.description:
        yield "description", param.description


def _is_required(param: Param) -> bool:
    return param.required and param.default is None


def _default(param: Param) -> Any:
    """Return a default as a value of its type, so that a number gets no quotes."""
    text = param.default or ""
    return text if param.type == "string" else plain(Node(text, 0))


def _metadata(metadata: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield metadata's keys: the top-level ones, then `metadata` for the rest, then those of `extra`."""
    rest = dict(metadata)
    for key in OWN_METADATA:
        if key in rest and (key != "context_weights" or _are_weights(rest[key])):
            yield key, rest.pop(key)
    extra = rest.get("extra")
    ours = {*KEYS, *ALIASES}
    spread = isinstance(extra, Mapping) and extra and not any(key in ours for key in extra)
    extra = rest.pop("extra") if spread else {}
    if rest:
        yield "metadata", rest
    yield from extra.items()


def _are_weights(value: Any) -> bool:
    """Return whether a value parses as weights."""
    return isinstance(value, Mapping) and all(
        isinstance(weight, int | float) and not isinstance(weight, bool) and _NUMBER.fullmatch(repr(weight))
        for weight in value.values()
    )
