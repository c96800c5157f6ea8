"""What a migration file says, row by row: both of its forms, each value of its type, errors with their place."""

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final, NoReturn, get_args

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.prompts.difference import check_semver
from cuebook.prompts.names import check_branch, check_section, check_slug, parse_reference
from cuebook.prompts.params import read_params
from cuebook.records.fields import shown
from cuebook.records.prompt import MAIN, Engine, Version

_ALIASES: Final = {"overrideSections": "override_sections", "inherits_from": "inherits"}
_ROW: Final = frozenset(
    "slug type branch version semver sections override_sections inherits metadata params engine tags author description"
    " sync".split()
)
_PROMPT: Final = frozenset("slug name type tags metadata description".split())
_VERSION: Final = frozenset("slug version branch author content override_sections".split())
_CONTENT: Final = frozenset("type sections metadata".split())
_LINK: Final = frozenset("child_slug parent_slug child_branch parent_branch".split())
_FORMS: Final = frozenset("prompts versions inheritance".split())


class Row(Struct, frozen=True):
    """A version as a file has it. `order` is its number there, `semver` whether the file says one, `inherits` where."""

    place: str
    version: Version
    order: int = 0
    semver: bool = False
    inherits: str = ""  # the place that names its parent or says there is none, "" where nothing does


def rows_of(document: Any) -> list[Row]:
    """Read a migration file that was parsed. Raises InvalidInput naming the place of what is wrong."""
    if isinstance(document, list):
        return [_row(_Place(item, f"prompts[{at}]")) for at, item in enumerate(document)]
    top = _Place(document, "")
    top.known(_FORMS)
    if "versions" in top.form or "inheritance" in top.form:
        return _of_three(top)
    return [_row(item) for item in top.items("prompts")]


class _Place:
    """A value on its way in, and its path from the top."""

    def __init__(self, value: Any, path: str) -> None:
        self.path = path
        if not isinstance(value, dict):
            self.refuse(
                "" if path else "document",
                f"expected an object{'' if path else ' or a list of them'}, got {shown(value)}",
            )
        self.form: dict[str, Any] = {}
        for key, member in value.items():
            name = _ALIASES.get(str(key), str(key))
            if name in self.form:
                self.refuse(str(key), f"is said twice, as {name!r} too; keep one")
            self.form[name] = member

    def at(self, key: str) -> str:
        return ".".join(filter(None, (self.path, key)))

    def refuse(self, key: str, why: str) -> NoReturn:
        raise InvalidInput(f"{self.at(key)}: {why}", where=self.at(key))

    def known(self, fields: frozenset[str]) -> None:
        unknown = [key for key in self.form if key not in fields]
        if unknown:
            self.refuse(unknown[0], f"is not known; known are {', '.join(sorted(fields))}")

    def text(self, key: str, default: str = "") -> str:
        value = self.form.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key, f"expected a text, got {shown(value)}")
        return default if value is None else value

    def flag(self, key: str) -> bool:
        value = self.form.get(key, False)
        if not isinstance(value, bool):
            self.refuse(key, f"expected true or false, got {value!r:.40}")
        return value

    def items(self, key: str) -> Iterator["_Place"]:
        values = self.form.get(key, [])
        if not isinstance(values, list):
            self.refuse(key, f"expected a list, got {shown(values)}")
        return (_Place(value, f"{self.at(key)}[{at}]") for at, value in enumerate(values))

    def names(self, key: str) -> tuple[str, ...]:
        values = self.form.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            self.refuse(key, "expected a list of texts")
        return tuple(values)

    def slug(self, key: str = "slug") -> str:
        if key not in self.form:
            self.refuse(key, "is missing; every row names its prompt")
        return check_slug(self.form[key], where=self.at(key))

    def branch(self, key: str = "branch") -> str:
        return check_branch(self.text(key, MAIN), where=self.at(key))

    def metadata(self, key: str = "metadata") -> dict[str, Any]:
        """Return metadata; `context_weights` in it are numbers."""
        value = self.form.get(key)
        if value is not None and not isinstance(value, dict):
            self.refuse(key, f"expected an object, got {shown(value)}")
        weights = (value or {}).get("context_weights", {})
        if not isinstance(weights, dict):
            self.refuse(f"{key}.context_weights", "expected an object of signals and weights")
        for name, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not isfinite(weight):
                self.refuse(f"{key}.context_weights.{name}", f"expected a number, got {weight!r:.40}")
        return dict(value or {})

    def sections(self, key: str, *, texts_only: bool) -> dict[str, str]:
        """Return sections by name; other values than texts are written as JSON where they are allowed."""
        value = self.form.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(key, f"expected an object of names and texts, got {shown(value)}")
        sections: dict[str, str] = {}
        for name, text in (value or {}).items():
            place = self.at(f"{key}.{name}")
            if not isinstance(text, str) and (texts_only or text is None):
                raise InvalidInput(f"{place}: expected a text, got {shown(text)}", where=place)
            written = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, indent=2)
            if "\x00" in written:
                raise InvalidInput(f"{place}: holds a NUL, which is no text; remove it", where=place)
            sections[check_section(name, where=place)] = written
        return sections


# ---------------------------------------------------------------- the array
def _row(place: _Place) -> Row:
    place.known(_ROW)
    order = place.form.get("version", 0)
    if isinstance(order, bool) or not isinstance(order, int) or order < 0:
        place.refuse("version", f"expected a number from 1, got {order!r:.40}; the semantic version is `semver`")
    sections = place.sections("sections", texts_only=True)
    overriding = _overriding(place, sections)
    semver = place.text("semver")
    inherits = place.text("inherits")
    version = Version(
        slug=place.slug(),
        branch=place.branch(),
        semver=check_semver(semver, where=place.at("semver")) if semver else "1.0.0",
        type=place.text("type") or "prompt",
        sections={name: text for name, text in sections.items() if name not in overriding},
        override_sections=overriding,
        params=read_params(place.form.get("params"), where=place.at("params")),
        engine=_engine(place),
        inherits=str(parse_reference(inherits, where=place.at("inherits"))) if inherits else None,
        metadata=place.metadata(),
        tags=place.names("tags"),
        author=place.text("author"),
        description=place.text("description"),
        sync=place.flag("sync"),
    )
    return Row(place.path, version, order, bool(semver), place.at("inherits") if "inherits" in place.form else "")


def _overriding(place: _Place, sections: Mapping[str, str]) -> dict[str, str]:
    """Return `override_sections`: texts by name, or names of sections."""
    if not isinstance(place.form.get("override_sections"), list):
        texts = place.sections("override_sections", texts_only=True)
        for name in texts:
            if name in sections:
                place.refuse(f"override_sections.{name}", "is in `sections` too; keep one")
        return texts
    names = place.names("override_sections")
    for at, name in enumerate(names):
        if name not in sections:
            place.refuse(f"override_sections[{at}]", f"{name!r} is not in `sections`")
    return {name: text for name, text in sections.items() if name in names}


def _engine(place: _Place) -> Engine:
    engine = place.text("engine") or "dollar"
    if engine not in get_args(Engine):
        place.refuse("engine", f"expected {', '.join(get_args(Engine))}, got {engine!r:.40}")
    return engine  # type: ignore[return-value]  # one of the literal's, as was just seen


# ---------------------------------------------------------------- prompts, versions, inheritance
def _of_three(top: _Place) -> list[Row]:
    """Read the form of B's program: what a version does not say its prompt does, and the links say who inherits."""
    prompts: dict[str, _Place] = {}
    for prompt in top.items("prompts"):
        prompt.known(_PROMPT)
        if prompts.setdefault(prompt.slug(), prompt) is not prompt:
            prompt.refuse("slug", f"{prompt.slug()!r} is given twice, first in {prompts[prompt.slug()].path}")
    parents = _parents(top)
    rows = [_version(place, prompts.get(place.slug()), parents) for place in top.items("versions")]
    written = {(row.version.slug, row.version.branch) for row in rows}
    for child, (_, where) in parents.items():
        if child not in written:
            raise InvalidInput(f"{where}: {'@'.join(child)} is not among the versions", where=where)
    return rows


def _parents(top: _Place) -> dict[tuple[str, str], tuple[str, str]]:
    """Return who inherits from whom by slug and branch, each with its place."""
    parents: dict[tuple[str, str], tuple[str, str]] = {}
    for link in top.items("inheritance"):
        link.known(_LINK)
        child = (link.slug("child_slug"), link.branch("child_branch"))
        parent, branch = link.slug("parent_slug"), link.branch("parent_branch")
        reference = parent if branch == MAIN else f"{parent}@{branch}"
        if parents.setdefault(child, (reference, link.path))[0] != reference:
            link.refuse("child_slug", f"{'@'.join(child)} inherits from {parents[child][0]} already; keep one")
    return parents


def _version(place: _Place, prompt: _Place | None, parents: Mapping[tuple[str, str], tuple[str, str]]) -> Row:
    place.known(_VERSION)
    order = place.form.get("version")
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        place.refuse("version", f"expected a number from 1, got {order!r:.40}")
    if "content" not in place.form:
        place.refuse("content", "is missing; it holds the sections")
    content = _Place(place.form["content"], place.at("content"))
    content.known(_CONTENT)
    slug, branch = place.slug(), place.branch()
    name = prompt.text("name") if prompt else ""
    sections = content.sections("sections", texts_only=False)
    overriding = place.sections("override_sections", texts_only=False)
    parent = parents.get((slug, branch))
    version = Version(
        slug=slug,
        branch=branch,
        type=content.text("type") or (prompt.text("type") if prompt else "") or "prompt",
        sections={key: text for key, text in sections.items() if key not in overriding},
        override_sections=overriding,
        inherits=parent[0] if parent else None,
        metadata={**({"name": name} if name else {}), **(prompt.metadata() if prompt else {}), **content.metadata()},
        tags=prompt.names("tags") if prompt else (),
        author=place.text("author"),
        description=prompt.text("description") if prompt else "",
    )
    return Row(place.path, version, order, inherits=parent[1] if parent else "")
