"""Writes the reference pages of the documentation from the code, so they always match it.

    python scripts/docs_reference.py FOLDER

The script writes `python.md`, `commands.md`, `settings.md`, `routes.md`, `errors.md` and `design.md` to FOLDER and
replaces existing files. `scripts/docs` calls it before it builds the site.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from msgspec import Meta

from cuebook import Cuebook, config, errors
from cuebook.app.setup.project_files import setting_meanings
from cuebook.cli import main as command_line
from cuebook.cli import prompt
from cuebook.server import error_responses as problems
from cuebook.server.app import create_app

DESIGN = Path(__file__).resolve().parents[1] / "docs/design"
#: A signature that is longer has one argument per line.
WIDTH = 100
EXAMPLES = Path(__file__).with_name("api_examples.py")
#: Options that every command has. They are documented once.
SHARED = ("--json", "--config", "-C")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with escaped `|` in cells."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def text(value: str | None) -> str:
    """Return plain text escaped for Markdown: no tags and no emphasis outside of code."""
    pieces = re.split(r"(`[^`]*`)", value or "")
    return "".join(
        each if each.startswith("`") else re.sub(r"([<>*_\[\]])", r"\\\1", each).replace("\n", " ") for each in pieces
    )


# ---------------------------------------------------------------- Python API
#: Methods of `Cuebook` and of its namespaces that only the server, the commands and other parts of Cuebook use.
INTERNAL = {
    "cuebook": {"aclose", "message", "open", "pass_through", "relay", "respond"},
    "audit": {"mirror", "record_export", "verify_mirror"},
    "keys": {"sign_in", "sign_out"},
    "memory": {"places"},
    "prompt_sync": {"host", "hosted", "hosted_file", "summary"},
    "prompts": {"check", "course", "edited", "family", "page", "project_scope", "restore", "store"},
    "shadow": {"announce"},
    "turns": {"find"},
}


def api() -> str:
    """Return the page of the Python API: each method with its signature, arguments and an example."""
    parts = [
        (
            "# Python API reference\n\nThe examples use `BlockingCuebook`, as `cue`. With `Cuebook`, write `await`"
            " before each call, and `async for` where an example has `for`. They run in the tests on a project with a"
            " conversation `trip` and a prompt `greeting`. [The guide](../python.md) shows how to open a project.\n"
        )
    ]
    for namespace, examples in api_examples().items():
        kind = class_of(namespace)
        parts.append(
            f"## {'cue' if namespace == 'cuebook' else f'cue.{namespace}'}\n\n"
            + "\n\n".join(map(text, (inspect.getdoc(kind) or "").split("\n\n")))
            + "\n"
        )
        for name, example in examples.items():
            parts.append(method(namespace, name, getattr(kind, name), example))
    return "\n".join(parts)


def class_of(namespace: str) -> Any:
    """Return the class of a namespace of `Cuebook`, or `Cuebook` itself."""
    return Cuebook if namespace == "cuebook" else getattr(Cuebook, namespace).fget.__annotations__["return"]


def api_examples() -> Mapping[str, Mapping[str, str]]:
    """Return the examples of api_examples.py by namespace and method."""
    source = EXAMPLES.read_text("utf-8")
    found = {}
    for each in ast.parse(source).body:
        if isinstance(each, ast.FunctionDef) and each.name != "prepare":
            body = inspect.cleandoc("\n".join([" ", *source.splitlines()[each.lineno : each.end_lineno]]))
            pieces = re.split(r"^# (\w+)\n", body, flags=re.MULTILINE)
            found[each.name] = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return found


def method(namespace: str, name: str, function: Any, example: str) -> str:
    """Describe one method: signature, docstring, arguments with a description, example."""
    signature, hints = inspect.signature(function), get_type_hints(function)
    shown, rows = [], []
    for each in signature.parameters.values():
        if each.name not in ("self", "caller"):  # the server passes `caller`
            notes = getattr(each.annotation, "__metadata__", ())
            said = next((note.description for note in notes if isinstance(note, Meta)), "")
            shown.append(each.replace(annotation=hints[each.name]))
            rows += [(f"`{each.name}`", text(said))] if said else []
    lines = [names(str(each)) for each in shown if each.kind is not each.KEYWORD_ONLY]
    named = [names(str(each)) for each in shown if each.kind is each.KEYWORD_ONLY]
    takes = ", ".join([*lines, *(["*", *named] if named else [])])
    path = name if namespace == "cuebook" else f"{namespace}.{name}"
    head = f"{path}({takes}) -> {names(inspect.formatannotation(hints['return']))}"
    if len(head) > WIDTH:
        wrapped = "".join(f"    {each},\n" for each in [*lines, *(["*", *named] if named else [])])
        head = f"{path}(\n{wrapped}) -> {names(inspect.formatannotation(hints['return']))}"
    parts = [f"### {path}\n", f"```python\n{head}\n```\n"]
    parts += [text(each) + "\n" for each in inspect.cleandoc(function.__doc__ or "").split("\n\n")]
    if rows:
        parts.append(table(("argument", ""), rows))
    return "\n".join([*parts, f"```python\n{example.strip()}\n```\n"])


def names(code: str) -> str:
    """Return code without the modules of its names."""
    return re.sub(r"\b(?:cuebook|collections|typing|pathlib|datetime)(?:\.\w+)*\.(\w+)", r"\1", code)


# ---------------------------------------------------------------- commands
def commands() -> str:
    """Return the page of commands with their arguments, options and examples."""
    parts = [
        (
            "# Commands\n\nEvery command takes `--json` (the shapes of the HTTP API), `--config FILE` and `-C DIR` (the"
            " project's folder). Exit codes: 0 done, 1 refused or a check that failed, 2 wrong use.\n"
        )
    ]
    for app, name in (
        (command_line.app, "cuebook"),
        (prompt.tester_app, "kai-prompt-tester"),
    ):
        group = typer.main.get_command(app)
        context = group.make_context(name, [], resilient_parsing=True)
        for path, command in walk(group, context, (name,)):
            parts.append(section(" ".join(path), command, context))
    parts.append("`kai-prompt-manager` is `cuebook prompt` under another name.\n")
    return "\n".join(parts)


def walk(command: Any, context: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command and those below it, with their names."""
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), context, (*path, name))


def section(path: str, command: Any, context: Any) -> str:
    """Describe one command."""
    depth = "##" if path.count(" ") < 2 else "###"
    parts = [f"{depth} {path}\n", *(text(each) + "\n" for each in inspect.cleandoc(command.help or "").split("\n\n"))]
    rows = [
        (f"`{record[0]}`", text(record[1]))
        for each in command.params
        if (record := each.get_help_record(context)) and not record[0].startswith(SHARED)
    ]
    if rows:
        parts.append(table(("takes", ""), rows))
    examples = (command.epilog or "").partition("Examples:\n")[2]
    if examples:
        parts.append(f"```text\n{inspect.cleandoc(examples)}\n```\n")
    return "\n".join(parts)


# ---------------------------------------------------------------- settings
def settings() -> str:
    """Return the page of settings with their defaults, allowed values and meanings."""
    parts = [
        (
            "# Settings\n\nThey stand in `cuebook.toml`, each under its section, or in the environment as"
            " `CUEBOOK_SECTION_KEY`: `[store] url` is `CUEBOOK_STORE_URL`. What is given to a command goes before the"
            " environment, that before the file. `cuebook config` shows each value and where it came from.\n"
        )
    ]
    meanings = setting_meanings()
    for name, kind in get_type_hints(config.ConfigSections).items():
        hints, here = get_type_hints(kind, include_extras=True), getattr(config.ConfigSections(), name)
        rows = []
        for key in kind.__struct_fields__:
            limits = limits_of(hints[key])
            may = between(limits) if limits else ", ".join(f"`{each}`" for each in get_args(hints[key]))
            rows.append((f"`{name}.{key}`", f"`{toml(getattr(here, key))}`", may, text(meanings[f"{name}.{key}"])))
        parts += [f"## [{name}]\n", text(inspect.getdoc(kind)) + "\n"]
        parts.append(table(("setting", "default", "may be", "meaning"), rows))
    return "\n".join(parts)


def between(limits: Meta | None) -> str:
    """Return the range of a numeric setting; empty without a range."""
    if limits is None:
        return ""
    return f"{limits.ge:,} to {limits.le:,}" if limits.gt is None else f"above {limits.gt:,}, at most {limits.le:,}"


def limits_of(kind: Any) -> Meta | None:
    """Return the limits of a setting's annotated type, None without limits."""
    return next((each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Meta)), None)


def toml(value: object) -> str:
    """Return a value in TOML."""
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


# ---------------------------------------------------------------- routes
def routes() -> str:
    """Return the page of routes with their parameters, body and required role."""
    app = create_app(Cuebook.open())
    document = app.openapi_schema.to_schema()
    rows: dict[str, list[tuple[str, str, str, str]]] = {}
    for path, method, handler in served(app):
        operation = document["paths"].get(path, {}).get(method.lower(), {})
        role = handler.opt.get("role", "owner") or "none"
        takes = [f"`{each['name']}`" for each in operation.get("parameters", ()) if each["in"] == "query"]
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        takes += [f"`{name}`" for name in properties(document, body)]
        ours = handler.fn.__module__.startswith("cuebook.")
        said = inspect.getdoc(handler.fn) if ours else "Give the document of these routes."
        rows.setdefault(area(path), []).append(
            (f"`{method} {path}`", role, ", ".join(dict.fromkeys(takes)), text(said))
        )
    parts = [
        "# Routes\n\n" + "\n".join(text(line) for line in document["info"]["description"].splitlines()) + "\n",
        (
            "A running server gives the whole document, every shape with it, at `/schema/openapi.json`. A role's key"
            " may use what those before it may: viewer, editor, agent, admin, owner; `none` needs no key.\n"
        ),
    ]
    for name, listed in rows.items():
        parts += [f"## {name}\n", table(("route", "role", "takes", ""), listed)]
    return "\n".join(parts)


def served(app: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield every route: its path as in the OpenAPI document, its method and its handler."""
    for route in app.routes:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        for method, (handler, _) in getattr(route, "route_handler_map", {}).items():
            if path == "/v1/-":
                if method == "POST":
                    yield "/v1/…", "any", handler  # one handler for all paths below
            elif method != "OPTIONS":
                yield path, method, handler


def area(path: str) -> str:
    """Return the group of a route by its path."""
    parts = path.strip("/").split("/")
    return "/" + "/".join(parts[:2] if parts[0] in ("api", "learning") else parts[:1])


def properties(document: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return the fields of a request body."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return list(schema.get("properties", ()))


# ---------------------------------------------------------------- errors
def families() -> str:
    """Return the page of errors with their family, HTTP status and meaning."""
    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        status, code = next((status, code) for family, status, code in problems.TABLE if issubclass(kind, family))
        family = kind.__mro__[1].__name__ if kind is not errors.CuebookError else ""
        rows.append((f"`{name}`", f"`{family}`" if family else "", str(status), f"`{code}`", text(kind.__doc__)))
    return (
        "# Errors\n\nIn Python every error is a `CuebookError` of one of five families; over HTTP it is a problem"
        " document (RFC 9457) whose `type` is `urn:cuebook:problem:` and the name below, under `/v1` OpenAI's error"
        " object. On the command line it is one line on stderr and exit code 1.\n\n"
        + table(("error", "is a kind of", "status", "name", "meaning"), rows)
        + "\nA `BackendError` that may pass when it is tried again is 503 with `Retry-After`; an `UpstreamError` keeps"
        " the status of the upstream where it has one.\n"
    )


# ---------------------------------------------------------------- design notes
def design() -> str:
    """Return the page of design notes by title."""
    rows = [
        f"- [{path.read_text('utf-8').partition(chr(10))[0].removeprefix('# ')}](../design/{path.name})"
        for path in sorted(DESIGN.glob("*.md"))
    ]
    return "# Design notes\n\nWhat was decided, why, and what was measured.\n\n" + "\n".join(rows) + "\n"


PAGES = {
    "python.md": api,
    "commands.md": commands,
    "settings.md": settings,
    "routes.md": routes,
    "errors.md": families,
    "design.md": design,
}


def write(folder: Path) -> None:
    """Write all pages into a folder, and create it if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
