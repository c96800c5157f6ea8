"""Parse and write a version's file: front matter, then its sections. A round trip keeps the bytes.

```
---
cuebook: 1
name: persona/kind_helper
version: 1.2.0
description: Helper personality
override_sections: [constraints]
input:
  schema:
    agent_name: string, how the agent calls itself
    user_name?: string
context_weights:
  task_coding: 0.8
---
<!-- @section identity -->
Welcome $user_name, I'm $agent_name.

<!-- @section constraints -->
Be concise.
```

Keys are read in any order. `id`, `params` and `inherits_from` (of kAI and Cortex) are aliases of `name`, `input` and
`inherits`. Unknown keys are stored in `metadata["extra"]`.

A file without front matter is a prompt too (kAI): one section, `body`; the rest stands in the registry. What the
store alone knows is in no file: number, digest, times, where a branch began.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import asdict, replace

from cuebook.errors import InvalidInput, TooLarge
from cuebook.prompts.difference import check_semver
from cuebook.prompts.digest import level
from cuebook.prompts.names import ENDING, check_branch, check_slug, parse_reference
from cuebook.prompts.pages import FENCE, MAX_FILE, FilePages, decoded, divide, join, open_page
from cuebook.prompts.params import bare, read_params
from cuebook.prompts.yaml_text import Node, dump, is_null, plain, texts
from cuebook.records.prompt import MAIN, Param, Version
from cuebook.validate import check, validate

#: The line of the key `version` in front matter: up to the colon, and a comment.
_VERSION = re.compile(r"^([\"']?version[\"']?[ \t]*:).*?([ \t]+#[^\r]*)?(?=\r?$)")


def read_file(text: str | bytes, *, path: str) -> Version:
    """Return the version in a prompt's file. `path` is relative to `prompts/`, and the id if the file names none.

    Raises InvalidInput naming file, line and key.
    """
    return read_stated(text, path=path)[0]


def read_stated(text: str | bytes, *, path: str, slug: str = "") -> tuple[Version, frozenset[str]]:
    """Return the version in a prompt's file, and the keys that its front matter sets, by canonical name.

    `slug` is the id if the file names none. Default: `path`. Raises InvalidInput naming file, line and key.
    """
    page = open_page(text, path=path)
    for alias, key in (*ALIASES.items(), ("params", "input")):
        if alias in page.front and key in page.front:
            page.refuse(page.front[alias].line, f"{alias!r} and {key!r} are aliases. Keep one.")
    nodes = {ALIASES.get(key, key): node for key, node in page.front.items()}
    values = _values(page, nodes)
    overriding = values.get("override_sections", ())
    sections = divide(page)
    for name in overriding:
        if name not in sections:
            page.refuse(nodes["override_sections"].line, f"override_sections: {name!r} is not a section of this file")
    fields = {field: values[key] for key, field in _FIELDS.items() if key in values}
    version, faults = validate({"slug": slug or path.removesuffix(ENDING)} | fields, Version)
    if version is None or faults:  # of keys that have the name of their field
        page.refuse(nodes[re.split(r"[.\[]", faults[0].path)[0]].line, str(faults[0]))
    version = replace(
        version,
        slug=version.slug if "name" in values else check_slug(version.slug, where=path),
        sections={name: section for name, section in sections.items() if name not in overriding},
        override_sections={name: section for name, section in sections.items() if name in overriding},
        params=_read_params(page, nodes, values),
        metadata=_read_metadata(page, nodes, values),
    )
    return version, frozenset(values)


def with_semver(text: str | bytes, semver: str, *, path: str) -> str:
    """Return a file with this `version` in its front matter, which is all that changes.

    A file without front matter, or with a `version` that spans lines, stays as it is.
    """
    page, whole = open_page(text, path=path), decoded(text, path)
    if not page.front:
        return whole
    lines = whole.split("\n")
    node, name = page.front.get("version"), page.front.get("name") or page.front.get("id")
    if node is not None:
        lines[node.line - 1] = _VERSION.sub(rf"\g<1> {semver}\g<2>", lines[node.line - 1])
    else:
        at = name.line if name else next(at for at, line in enumerate(lines, 1) if line.rstrip("\r \t") == FENCE)
        lines.insert(at, f"version: {semver}" + "\r" * lines[at - 1].endswith("\r"))
    changed = "\n".join(lines)
    return changed if read_file(changed, path=path).semver == semver else whole


def write_file(version: Version) -> str:
    """Return a version's file: default values omitted, own sections before overriding ones.

    Raises InvalidInput for what no file can represent: a section that also overrides, a NUL, a lone surrogate.
    """
    version = level(version)
    both = version.sections.keys() & version.override_sections.keys()
    if both:
        raise InvalidInput(f"{version.slug}: {min(both)!r} is in both section lists. Keep one.", where=min(both))
    front = dump(written(version), where=version.slug)
    body = join({**version.sections, **version.override_sections})
    text = f"{FENCE}\n{front}{FENCE}\n{body}"
    if "\x00" in text:
        raise InvalidInput(f"{version.slug}: contains a NUL character. Remove it.", where=version.slug)
    if len(text) > MAX_FILE:
        raise TooLarge(f"{version.slug}: {len(text)} characters; a prompt's file has at most {MAX_FILE}")
    return decoded(text, version.slug)


# ---- front matter ----------------------------------------------------------------------------------------------------


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

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?")
#: Keys whose value is that of a version's field.
_FIELDS = {"name": "slug", "version": "semver"} | {
    key: key for key in ("description", "author", "tags", "sync", "type", "branch", "inherits", "engine")
}


def _check_format(value: object, *, where: str) -> None:
    if value != FORMAT:
        why = f"{where}: format {str(value)[:40]!r} is unsupported. This Cuebook reads {FORMAT}"
        raise InvalidInput(why, where=where)


def _check_names(value: object, *, where: str) -> None:
    check(value, tuple[str, ...], where)


_CHECKS: Mapping[str, Callable[..., object]] = {
    "cuebook": _check_format,
    "name": check_slug,
    "branch": check_branch,
    "version": check_semver,
    "inherits": parse_reference,
    "override_sections": _check_names,
}


def _values(page: FilePages, nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Return the checked values that are not empty, with their scalars as texts, except for `sync`."""
    values = {key: value for key, node in nodes.items() if (value := texts(node)) not in (None, "")}
    for key in ("tags", "override_sections"):
        if isinstance(values.get(key), str):  # one name needs no brackets
            values[key] = [values[key]]
    if str(values.get("sync")).lower() in ("true", "false"):
        values["sync"] = values["sync"].lower() == "true"
    for key, checked in _CHECKS.items():
        if key in values:
            page.check(nodes[key].line, partial(checked, values[key], where=key))
    return values


def _read_params(page: FilePages, nodes: Mapping[str, Node], values: Mapping[str, Any]) -> tuple[Param, ...]:
    """Return the parameters of `input.schema` with the defaults of `input.default`, or those of `params`."""
    if "params" in values:
        return page.check(nodes["params"].line, lambda: read_params(values["params"], where="params"))
    if "input" not in values:
        return ()
    node = nodes["input"]
    if not isinstance(node.value, dict) or node.value.keys() - {"schema", "default"}:
        page.refuse(node.line, "input: expected `schema:` and `default:`")
    schema, default = (node.value.get(key, Node("", node.line)) for key in ("schema", "default"))
    params = page.check(schema.line, lambda: read_params(texts(schema), where="input.schema"))
    defaults = texts(default) or {}
    if not isinstance(defaults, dict):
        page.refuse(default.line, "input.default: expected the names of parameters and their values")
    return page.check(
        default.line, lambda: with_defaults(params, {bare(name): value for name, value in defaults.items()})
    )


def _read_metadata(page: FilePages, nodes: Mapping[str, Node], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata: `metadata`, our keys beside it, and unknown keys in `extra`."""
    results = plain(nodes["metadata"]) if "metadata" in values else {}
    if not isinstance(results, dict):
        page.refuse(nodes["metadata"].line, "metadata: expected `key: value` lines")
    for key in OWN_METADATA:
        if key in nodes and key in results:
            page.refuse(nodes[key].line, f"{key}: is a duplicate of a key below `metadata`. Keep one.")
        if key in nodes:
            results[key] = _read_weights(page, nodes[key]) if key == "context_weights" else plain(nodes[key])
    unknown = [key for key in nodes if key not in KEYS]
    if unknown and "extra" in results:
        why = f"{unknown[0]}: is unknown. Move it into the existing `metadata.extra`."
        page.refuse(nodes[unknown[0]].line, why)
    return {**results, "extra": {key: plain(nodes[key]) for key in unknown}} if unknown else results


def _read_weights(page: FilePages, node: Node) -> dict[str, float]:
    """Return signals with their weights."""
    signals = {} if is_null(node) else node.value
    if not isinstance(signals, dict):
        page.refuse(node.line, "context_weights: expected the names of signals and their weights")
    weights: dict[str, float] = {}
    for name, child in signals.items():
        if not isinstance(child.value, str) or not _NUMBER.fullmatch(child.value):
            page.refuse(child.line, f"context_weights.{name}: expected a number, such as 0.8")
        whole = child.value.lstrip("+-").isdecimal()
        weights[name] = int(child.value) if whole else float(child.value)
    return weights


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
