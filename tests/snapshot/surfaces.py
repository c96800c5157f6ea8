"""Collects the public surfaces that need no request: OpenAPI, help, Python, settings and the database schema."""

import contextlib
import importlib
import inspect
import io
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import typer

import cuebook
from cuebook import BlockingCuebook, Cuebook, config
from cuebook.app.setup.project_files import setting_meanings
from cuebook.cli import main as command_line
from cuebook.cli import prompt
from cuebook.server.app import create_app

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))


#: Options of every command; the texts under `help` show them.
SHARED = {"json_", "config_", "folder_", "help"}


def openapi() -> Any:
    """Return the OpenAPI document."""
    return create_app(Cuebook.open()).openapi_schema.to_schema()


# ---- command line


def commands() -> dict[str, Any]:
    """Return every command with its parameters, its help and its examples."""
    found: dict[str, Any] = {}
    programs = ((command_line.app, "cuebook"), (prompt.tester_app, "kai-prompt-tester"))
    for app, name in programs:
        group = typer.main.get_command(app)
        context = group.make_context(name, [], resilient_parsing=True)
        for path, command in walk_commands(group, context, name):
            found[path] = describe_command(command, context)
    return found


def walk_commands(command: Any, context: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and all commands below it, each with its full name."""
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from walk_commands(command.get_command(context, name), context, f"{path} {name}")


def describe_command(command: Any, context: Any) -> dict[str, Any]:
    parameters = {
        each.name: {
            "names": [*each.opts, *each.secondary_opts],
            "shown": (each.get_help_record(context) or [""])[0],
            "default": repr(each.default),
            "required": each.required,
            "multiple": getattr(each, "multiple", False) or each.nargs != 1,
            "envvar": each.envvar,
            "help": getattr(each, "help", None),
        }
        for each in command.params
        if each.name not in SHARED
    }
    return {"parameters": parameters, "help": command.help, "examples": command.epilog}


def help_texts() -> dict[str, str]:
    """Return the bytes that every `--help` prints."""
    found = {}
    with contextlib.chdir("/"):
        for path in commands():
            program, *rest = path.split()
            app = prompt.tester_app if program == "kai-prompt-tester" else None
            with contextlib.redirect_stdout(io.StringIO()) as out:
                command_line.run([*rest, "--help"], app, program)
            found[path] = out.getvalue()
    return found


# ---- Python


def python() -> dict[str, Any]:
    """Return every exported name, and the methods of each namespace of an open project."""
    found: dict[str, Any] = {name: describe_export(getattr(cuebook, name)) for name in cuebook.__all__}
    for name, part in namespaces(Cuebook):
        found[f"Cuebook.{name}"] = describe_class(part)
    blocking = dict(namespaces(BlockingCuebook))
    found["BlockingCuebook namespaces"] = {name: sorted(methods(part)) for name, part in blocking.items()}
    modules = ("cuebook.errors", "cuebook.testing")
    found |= {f"{name}.__all__": sorted(importlib.import_module(name).__all__) for name in modules}
    return found


def namespaces(kind: type) -> Iterator[tuple[str, type]]:
    for name, member in inspect.getmembers_static(kind):
        if isinstance(member, property) and not name.startswith("_"):
            part = get_type_hints(member.fget).get("return")
            if inspect.isclass(part) and part.__module__.startswith("cuebook.app."):
                yield name, part


def methods(kind: type) -> dict[str, Any]:
    ours = {name for each in kind.__mro__ if each.__module__.startswith("cuebook") for name in vars(each)}
    return {
        name: getattr(kind, name)
        for name, member in inspect.getmembers_static(kind)
        if name in ours and not name.startswith("_")
        if callable(member) or isinstance(member, property | classmethod | staticmethod)
    }


def describe_export(value: Any) -> Any:
    if not inspect.isclass(value):
        return value
    if issubclass(value, msgspec.Struct):
        fields = {each.encode_name: describe_field(each) for each in msgspec.structs.fields(value)}
        return {"kind": "record", "doc": inspect.getdoc(value), "fields": fields}
    return describe_class(value)


def describe_field(field: Any) -> dict[str, Any]:
    default = "required" if field.required else repr(field.default)
    return {"type": spell(field.type), "default": default}


def describe_class(kind: type) -> dict[str, Any]:
    described = {name: describe_method(member) for name, member in sorted(methods(kind).items())}
    bases = [each.__name__ for each in kind.__mro__[1:-1] if each.__module__.startswith("cuebook")]
    return {"kind": "class", "bases": bases, "doc": inspect.getdoc(kind), "methods": described}


def describe_method(member: Any) -> dict[str, Any]:
    if isinstance(member, property):
        return {"signature": "property", "doc": inspect.getdoc(member)}
    signature = inspect.signature(member)
    spelled = signature.replace(
        parameters=[each.replace(annotation=Spelled(each.annotation)) for each in signature.parameters.values()],
        return_annotation=Spelled(signature.return_annotation),
    )
    prefix = "async " if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member) else ""
    return {"signature": prefix + str(spelled), "doc": inspect.getdoc(member)}


class Spelled:
    """An annotation as a reader would write it: without the modules of its names."""

    def __init__(self, annotation: Any) -> None:
        self._text = spell(annotation)

    def __repr__(self) -> str:
        return self._text


def spell(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return "-"
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(annotation))


# ---- settings, schema


def settings() -> dict[str, Any]:
    """Return every setting with its type, its default, its range and what it means."""
    import docs_reference

    meanings = setting_meanings()
    defaults = config.ConfigSections()
    found = {}
    for section, kind in get_type_hints(config.ConfigSections).items():
        hints, whole = get_type_hints(kind), get_type_hints(kind, include_extras=True)
        for key in kind.__struct_fields__:
            limits = docs_reference.limits_of(whole[key])
            name = f"{section}.{key}"
            found[name] = {
                "type": " | ".join(map(repr, get_args(hints[key]))) or hints[key].__name__,
                "default": getattr(getattr(defaults, section), key),
                "range": limits and (limits.ge if limits.gt is None else limits.gt, limits.le),
                "help": meanings[name],
            }
    return found


def schema(database: Path) -> dict[str, Any]:
    """Return the tables, indexes and triggers of a database file, as SQLite itself describes them."""
    found: dict[str, Any] = {}
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
        for kind, name, table, sql in rows:
            if kind == "table":
                columns = connection.execute(f"PRAGMA table_xinfo({name!r})").fetchall()
                keys = connection.execute(f"PRAGMA foreign_key_list({name!r})").fetchall()
                found[f"table {name}"] = {
                    "columns": {each[1]: list(each[2:]) for each in columns},
                    "foreignKeys": sorted(str(each[2:]) for each in keys),
                    "virtual": sql if "VIRTUAL" in sql else None,
                }
            elif kind == "index":
                columns = connection.execute(f"PRAGMA index_xinfo({name!r})").fetchall()
                where = sql.partition(" WHERE ")[2] if sql else ""
                found[f"index {name}"] = {
                    "on": table,
                    "columns": [each[2:] for each in columns if each[5]],
                    "where": where,
                }
            else:
                found[f"{kind} {name}"] = " ".join((sql or "").split())
    return found


#: Each file of the snapshot that needs no running project.
SURFACES: dict[str, Callable[[], Any]] = {
    "openapi": openapi,
    "commands": commands,
    "help": help_texts,
    "python": python,
    "settings": settings,
}
