r"""How dotprompt's and prompty's files become versions: their names, parameters and roles kept, their logic refused.

| there | here |
| --- | --- |
| dotprompt `name.variant.prompt` | id `name`, branch `variant`, engine braces |
| prompty: `name`, if it is an id, or the file's place | id; another name is kept as `displayName` |
| `{{name}}`, `{{{name}}}` (Handlebars, Mustache), `{{ name }}` (Jinja) | `{{name}}`; one that is not declared becomes a string that must be given |
| `{{! … }}`, `{# … #}` | nothing |
| `\{{name}}` (Handlebars) | the text `{{name}}` |
| `{{role "user"}}`, prompty's line `user:` | a section of that name, the second one `user-2` |
| blocks, helpers, partials, filters, paths: `{{#if x}}`, `{% for %}`, `{{a.b}}` | refused with their line: a template has no logic (DESIGN §9) |
| `model`, `config`, `output`, other keys | metadata, as in our own files |

Environment variables and files that prompty would read in (`${env:…}`) stay as they are written.
"""  # noqa: E501  # a table

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn, get_args

from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts.difference import check_semver
from cuebook.prompts.files import read_file
from cuebook.prompts.front import Front, raw, with_defaults
from cuebook.prompts.names import check_branch, check_slug
from cuebook.prompts.pages import Page, open_page, trimmed
from cuebook.prompts.params import MAX_NAME, NAME, read_params
from cuebook.prompts.yaml_subset import Node, plain
from cuebook.records.prompt import BODY, MAIN, Param, Version

Syntax = Literal["handlebars", "mustache", "jinja2"]

#: Words that look like names and are none: Handlebars' and dotprompt's helpers, Jinja's constants.
_WORDS: Mapping[Syntax, frozenset[str]] = {
    "handlebars": frozenset("else this history role media section json true false null undefined".split()),
    "mustache": frozenset(),
    "jinja2": frozenset("true false none True False None".split()),
}
_ROLE = re.compile(r"role\s+(?:\"([a-z]{1,20})\"|'([a-z]{1,20})')")
_ROLE_LINE = re.compile(
    r"^[ \t]*+#?[ \t]*+(system|developer|user|assistant|function|tool)[ \t]*+(?:\[[^\]\n]*+\][ \t]*+)?:[ \t]*+$",
    re.MULTILINE | re.IGNORECASE,
)
_MARK = re.compile(r"\{\{")
_JINJA_MARK = re.compile(r"\{[{%#]")
_NOT_OF_AN_ID = re.compile(r"[^a-z0-9_.-]+")
_METADATA = ("model", "config", "output")
_FIELDS = ("metadata", "description", "tags", "author")
_DOTPROMPT, _PROMPTY = ".prompt", ".prompty"


def read_any(text: str | bytes, *, path: str) -> Version:
    """Read a file by its ending: `.prompt`, `.prompty`, anything else as ours."""
    if path.endswith(_DOTPROMPT):
        return read_dotprompt(text, path=path)
    return read_prompty(text, path=path) if path.endswith(_PROMPTY) else read_file(text, path=path)


def read_dotprompt(text: str | bytes, *, path: str) -> Version:
    """Read a file of google/dotprompt. Raises InvalidInput naming file, line and what has no place here."""
    page = open_page(text, path=path)
    front = Front(page, aliases={})
    folder, slash, file = path.removesuffix(_DOTPROMPT).rpartition("/")
    name, dot, variant = file.rpartition(".")
    variant = front.text("variant") or (variant if dot else "")
    body, names = _Template(page, "handlebars").read()
    return _made(
        front,
        slug=_id_of(front.text("name") or f"{folder}{slash}{name if dot else file}"),
        branch=_branch_of(variant) if variant else MAIN,
        sections=_by_roles(body, first="user"),
        params=_with_used(_declared(front), names),
        taken={"name", "variant", "input"},
    )


def read_prompty(text: str | bytes, *, path: str) -> Version:
    """Read a file of microsoft/prompty, of version 1 or 2. Raises InvalidInput as `read_dotprompt` does."""
    page = open_page(text, path=path)
    front = Front(page, aliases={})
    body, names = _Template(page, _syntax(front)).read()
    name = front.text("name")
    own = _is_id(name)
    version = _made(
        front,
        slug=name if own else _id_of(path.removesuffix(_PROMPTY)),
        branch=MAIN,
        sections=_by_roles(_marked(body), first="system"),
        params=_with_used(_inputs(front), names),
        taken={"name", "inputs", "template", "outputs", "authors"},
    )
    metadata = dict(version.metadata)
    authors, tags = metadata.pop("authors", front.names("authors")), metadata.pop("tags", ())
    if outputs := front.given("outputs"):
        metadata["output"] = plain(outputs)
    if name and not own:
        metadata["extra"] = {"displayName": name, **metadata.get("extra", {})}
    return replace(
        version,
        metadata=metadata,
        author=version.author or _listed(authors),
        tags=version.tags or tuple(map(str, tags)),
    )


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list | tuple) else str(names)


def _made(
    front: Front, *, slug: str, branch: str, sections: dict[str, str], params: tuple[Param, ...], taken: set[str]
) -> Version:
    """Make a version of what all formats have: description, version, tags, model and the keys that are not `taken`."""
    semver = front.text("version")
    nested = front.given("metadata")
    ours = plain(nested) if nested else {}
    if not isinstance(ours, dict):
        front.refuse("metadata", "expected `key: value` lines")
    ours |= {key: plain(front.nodes[key]) for key in _METADATA if key in front.nodes}
    known = {*taken, *_METADATA, *_FIELDS, *(("version",) if _is_semver(semver) else ())}
    extra = {key: plain(node) for key, node in front.nodes.items() if key not in known}
    return Version(
        slug=slug,
        branch=branch,
        semver=semver if _is_semver(semver) else "1.0.0",
        sections=sections,
        params=params,
        engine="braces",
        metadata=ours | ({"extra": extra} if extra else {}),
        tags=front.names("tags"),
        author=front.text("author"),
        description=front.text("description"),
    )


# ---------------------------------------------------------------- names
def _is_id(name: str) -> bool:
    try:
        check_slug(name)
    except InvalidInput:
        return False
    return True


def _is_semver(text: str) -> bool:
    try:
        check_semver(text)
    except InvalidInput:
        return False
    return True


def _id_of(name: str) -> str:
    """Make an id of a name or a path: lower case, `-` for what has no place in one."""
    parts = (_NOT_OF_AN_ID.sub("-", part.lower()).strip("-.") for part in name.split("/"))
    return check_slug("/".join(part for part in parts if part), where="name")


def _branch_of(variant: str) -> str:
    name = _NOT_OF_AN_ID.sub("-", variant.lower()).strip("-.")
    return check_branch(f"v{name}" if name.isdecimal() else name, where="variant")


# ---------------------------------------------------------------- parameters
def _declared(front: Front) -> tuple[Param, ...]:
    """Return the parameters of dotprompt's `input`; a default alone declares one, too."""
    node = front.given("input")
    if node is None:
        return ()
    where = front.page
    fields = node.value if isinstance(node.value, dict) else {}
    schema, default = fields.get("schema"), fields.get("default")
    form: Any = None if schema is None else raw(schema)
    params = where.check((schema or node).line, lambda: read_params(form, where="input.schema"))
    if default is None or not isinstance(default.value, dict):
        return params
    known = {param.name for param in params}
    alone = tuple(Param(name=name) for name in default.value if name not in known)
    values = {name: raw(child) for name, child in default.value.items()}
    return where.check(default.line, lambda: with_defaults((*params, *alone), values))


def _inputs(front: Front) -> tuple[Param, ...]:
    """Return the parameters of prompty's `inputs`: by name an object or a default, or a list of objects."""
    node = front.given("inputs")
    if node is None:
        return ()
    listed: list[Any] = []
    if isinstance(node.value, dict):
        listed = [_input(name, child) for name, child in node.value.items()]
    elif isinstance(node.value, list):
        listed = [_input(None, child) for child in node.value]
    return front.page.check(node.line, lambda: read_params(listed, where="inputs"))


def _input(name: str | None, node: Node) -> Any:
    """Return one input as `read_params` has it; samples are no defaults, and prompty's `float` is a number."""
    if not isinstance(node.value, dict):
        return raw(node) if name is None else {"name": name, "default": raw(node)}
    form: Mapping[str, Any] = raw(node)
    kept = {key: form[key] for key in ("name", "description", "default", "required", "enum") if key in form}
    kind = form.get("type", form.get("kind", "string"))
    named = {} if name is None else {"name": name}
    return {**kept, **named, "type": "number" if kind == "float" else kind}


def _with_used(params: tuple[Param, ...], names: Iterable[str]) -> tuple[Param, ...]:
    """Return parameters with those the text has and nobody declared."""
    declared = {param.name for param in params}
    return (*params, *(Param(name=name) for name in names if name not in declared))


# ---------------------------------------------------------------- roles
_ROLE_MARK = "\x00"  # in no text: a file that holds one was refused


def _marked(body: str) -> str:
    return _ROLE_LINE.sub(lambda match: f"{_ROLE_MARK}{match[1].lower()}{_ROLE_MARK}", body)


def _by_roles(body: str, *, first: str) -> dict[str, str]:
    """Divide a text at its roles; what stands before the first one is of `first`, a text without any is one section."""
    opening, *rest = body.split(_ROLE_MARK)
    if not rest:
        return {BODY: trimmed(opening)} if trimmed(opening) else {}
    sections: dict[str, str] = {}
    for role, text in [(first, opening), *zip(rest[::2], rest[1::2], strict=True)]:
        name, count = role, 1
        while name in sections:
            count += 1
            name = f"{role}-{count}"
        if trimmed(text):
            sections[name] = trimmed(text)
    return sections


# ---------------------------------------------------------------- templates
def _syntax(front: Front) -> Syntax:
    """Return which syntax a prompty's text has; `template` is its name or an object with a `format`."""
    node = front.given("template")
    form = raw(node) if node else "jinja2"
    for key in ("format", "kind"):
        form = form.get(key, "jinja2") if isinstance(form, Mapping) else form
    if not isinstance(form, str) or form not in get_args(Syntax):
        front.refuse("template", f"expected {', '.join(get_args(Syntax))}, got {str(form)[:40]!r}")
    return form  # type: ignore[return-value]  # one of the literal's, as was just seen


class _Template:
    """A template on its way to one with names only."""

    def __init__(self, page: Page, syntax: Syntax) -> None:
        self.page = page
        self.syntax = syntax
        self.text = page.body
        self.names: dict[str, None] = {}  # in their order
        self.marks = _JINJA_MARK if syntax == "jinja2" else _MARK
        self.literals: list[tuple[int, str]] = []  # where in `pieces` an escaped name stands
        self.pieces: list[str] = []

    def read(self) -> tuple[str, Iterable[str]]:
        """Return the text with `{{name}}` for its names and marks for its roles, and the names in their order."""
        at = 0
        while mark := self.marks.search(self.text, at):
            self.pieces.append(self.text[at : mark.start()])
            at = self._take(mark.start())
        self.pieces.append(self.text[at:])
        for place, name in self.literals:  # a doubled name is a text, if the name is declared
            self.pieces[place] = f"{{{{{{{{{name}}}}}}}}}" if name in self.names else f"{{{{{name}}}}}"
        return "".join(self.pieces), self.names

    def _take(self, start: int) -> int:
        """Put down what stands for a mark, and return where it ends."""
        text = self.text
        if text.startswith("{%", start):
            self.refuse(start, text[start : self._end(start, "%}")])
        if text.startswith("{#", start):
            return self._end(start, "#}")
        if self.syntax != "jinja2" and text.startswith("{{!", start):
            return self._end(start, "--}}" if text.startswith("{{!--", start) else "}}")
        triple = self.syntax != "jinja2" and text.startswith("{{{", start)
        end = self._end(start, "}}}" if triple else "}}")
        width = 3 if triple else 2
        inner = text[start + width : end - width].strip()
        if self.syntax == "handlebars" and text[max(0, start - 2) : start].endswith("\\"):
            self.pieces[-1] = self.pieces[-1][:-1]
            if not self.pieces[-1].endswith("\\"):
                self.literals.append((len(self.pieces), inner))
                self.pieces.append("")
                return end
        self._put(start, end, inner)
        return end

    def _put(self, start: int, end: int, inner: str) -> None:
        role = _ROLE.fullmatch(inner) if self.syntax == "handlebars" else None
        name = inner.removeprefix("&").strip() if self.syntax != "jinja2" else inner
        if role:
            self.pieces.append(f"{_ROLE_MARK}{role[1] or role[2]}{_ROLE_MARK}")
        elif NAME.fullmatch(name) and name not in _WORDS[self.syntax] and len(name) <= MAX_NAME:
            self.names[name] = None
            self.pieces.append(f"{{{{{name}}}}}")
        else:
            self.refuse(start, self.text[start:end])

    def _end(self, start: int, mark: str) -> int:
        end = self.text.find(mark, start + 2)
        if end < 0:
            self.refuse(start, self.text[start : start + 40], why=f"is not closed; end it with {mark}")
        return end + len(mark)

    def refuse(self, start: int, shown: str, *, why: str = "is logic, and a prompt has names only") -> NoReturn:
        line = self.page.body_line + self.text.count("\n", 0, start)
        self.page.refuse(line, f"{' '.join(shown.split())[:60]!r} {why}")
