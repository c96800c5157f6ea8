"""Tests of input validation: every operation rejects bad input by field name and changes nothing.

The requests are generated from the OpenAPI document. Rules of a single operation (a cursor of another list,
two fields that exclude each other) have their own tests.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click
import httpx
import pytest
import typer
from commands import CommandRunner
from shared_app import app_of, openapi_document

from conftest import BASE, config
from cuebook import Cuebook
from cuebook.cli.main import app

METHODS: Final = ("get", "post", "put", "patch", "delete")
#: Errors under /v1 have the format of the provider's API.
WIRES: Final = ("/v1/",)
PATH_VALUES: Final = {"n": "1", "seq": "1", "number": "1"}
#: A valid value for each JSON type.
VALUES: Final = {"array": [], "string": "x", "integer": 1, "number": 1, "boolean": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusals") / "cuebook.db"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(path: Path) -> Any:
    async with Cuebook.open(config(store=str(path))) as cue:
        await cue.append("c", [{"role": "user", "content": "The key lies under the mat.", "id": "p1"}])
        await cue.settle()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of(cue)), base_url=BASE) as http_client:
            yield http_client


class Operation:
    """One method of one path, with its query parameters and body schema from the OpenAPI document."""

    def __init__(self, method: str, path: str, document: dict[str, Any], operation: dict[str, Any]) -> None:
        self.method, self.template, self.document = method, path, document
        self.query = [each for each in operation.get("parameters", []) if each["in"] == "query"]
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        self.body = None if schema is None else self.resolved(schema)
        self.needs_body = operation.get("requestBody", {}).get("required", False)

    def __repr__(self) -> str:
        return f"{self.method} {self.template}"

    @property
    def wire(self) -> bool:
        return self.template.startswith(WIRES)

    @property
    def path(self) -> str:
        result = self.template
        for name in [piece[1:-1] for piece in self.template.split("/") if piece.startswith("{")]:
            result = result.replace(f"{{{name}}}", PATH_VALUES.get(name, "c"))
        return result

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in schema:
            return self.resolved(self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        for choice in schema.get("oneOf", schema.get("anyOf", [])):
            if choice.get("type") != "null":
                return self.resolved(choice)
        return schema

    def nullable(self, schema: dict[str, Any]) -> bool:
        choices = schema.get("oneOf", schema.get("anyOf", []))
        return "null" in schema.get("type", ()) or any(choice.get("type") == "null" for choice in choices)

    def valid(self, schema: dict[str, Any] | None = None) -> Any:
        """Return the smallest value that the schema allows."""
        schema = self.resolved(self.body if schema is None else schema)
        if schema.get("type") == "object":
            return {name: self.valid(schema["properties"][name]) for name in schema.get("required", ())}
        if "enum" in schema:
            return schema["enum"][0]
        return VALUES.get(schema.get("type"), {})


def operations() -> Iterator[Operation]:
    document = openapi_document()
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield Operation(method, path, document, methods[method])


ALL: Final = list(operations())
WITH_BODY: Final = [each for each in ALL if each.body is not None]
OURS: Final = [each for each in ALL if not each.wire]
OUR_BODIES: Final = [each for each in WITH_BODY if not each.wire]


class Dump:
    """The content of a database, read again only after a commit of another connection."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._version, self._lines = -1, []

    def lines(self) -> list[str]:
        version = self._database.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version, self._lines = version, list(self._database.iterdump())
        return self._lines

    def close(self) -> None:
        self._database.close()


@pytest.fixture(scope="module")
def dump(client: httpx.AsyncClient, path: Path) -> Iterator[Dump]:
    with closing(Dump(path)) as dump:
        yield dump


async def check_rejected(client: httpx.AsyncClient, dump: Dump, each: Operation, **request: Any) -> httpx.Response:
    """Send a request, and check that it is rejected with one problem and stores nothing."""
    before = dump.lines()
    answer = await client.request(each.method, each.path, **request)
    assert answer.status_code == 400, (each, request, answer.status_code, answer.text)
    if not each.wire:
        assert answer.headers["content-type"] == "application/problem+json"
    assert dump.lines() == before, (each, request)
    return answer


@pytest.mark.parametrize("each", OURS, ids=repr)
async def test_unknown_query_parameter_is_rejected(client: httpx.AsyncClient, dump: Dump, each: Operation) -> None:
    body = {} if each.body is None else {"json": each.valid()}
    answer = await check_rejected(client, dump, each, params={"colour": "red"}, **body)
    assert answer.json()["where"] == "colour"
    assert "colour" in answer.json()["detail"]


@pytest.mark.parametrize("each", OURS, ids=repr)
async def test_query_parameter_of_a_wrong_type_is_rejected(
    client: httpx.AsyncClient, dump: Dump, each: Operation
) -> None:
    needed = {its["name"]: each.valid(its["schema"]) for its in each.query if its.get("required")}
    for parameter in each.query:
        kind = each.resolved(parameter["schema"])
        if kind.get("type") in ("integer", "number", "boolean"):
            below = [kind["minimum"] - 1] if "minimum" in kind else []
            above = [kind["maximum"] + 1] if "maximum" in kind else []
            for odd in ("soon", *below, *above):
                answer = await check_rejected(client, dump, each, params=needed | {parameter["name"]: odd})
                assert answer.json()["where"] == parameter["name"]


@pytest.mark.parametrize("each", OURS, ids=repr)
async def test_url_that_is_not_valid_text_is_rejected(client: httpx.AsyncClient, each: Operation) -> None:
    body = {} if each.body is None else {"json": each.valid()}
    for odd in ("%ff", "a%00b"):
        answer = await client.request(each.method, f"{each.path}?q={odd}", **body)
        assert (answer.status_code, answer.json()["where"]) == (400, "query")
        if "{" in each.template:
            odd_path = each.template[: each.template.index("{")] + odd + each.template[each.template.index("}") + 1 :]
            answer = await client.request(each.method, re.sub(r"{(n|seq|number)}", "1", odd_path), **body)
            assert (answer.status_code, answer.json()["where"]) == (400, "path")


@pytest.mark.parametrize("each", WITH_BODY, ids=repr)
@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"\xff{}"], ids=repr)
async def test_body_that_is_not_a_json_object_is_rejected(
    client: httpx.AsyncClient, dump: Dump, each: Operation, body: bytes
) -> None:
    answer = await check_rejected(client, dump, each, content=body)
    if not each.wire:
        assert answer.json()["where"] == "body"


@pytest.mark.parametrize("each", OUR_BODIES, ids=repr)
async def test_invalid_body_fields_are_rejected_by_name(client: httpx.AsyncClient, dump: Dump, each: Operation) -> None:
    """The error names a field that is unknown, missing, of a wrong type, or contains a NUL."""
    base, wrong = each.valid(), []
    rows = [("colour", base | {"colour": 1})]
    rows += [
        (name, {key: value for key, value in base.items() if key != name}) for name in each.body.get("required", ())
    ]
    for name, schema in each.body.get("properties", {}).items():
        limits = each.resolved(schema)
        kind = limits.get("type")
        if kind is not None:
            rows.append((name, base | {name: {"odd": 1} if kind != "object" else "odd"}))
        rows += [
            (name, base | {name: limits[key] + by}) for key, by in (("minimum", -1), ("maximum", 1)) if key in limits
        ]
        if kind is not None and not each.nullable(schema):
            rows.append((name, base | {name: None}))
        if kind == "string":
            rows += [(name, base | {name: "nul \x00"}), (name, base | {name: "half a pair \ud800"})]
    texts = [(where, json.dumps(body)) for where, body in rows]
    if base:
        texts.append(("body", json.dumps(base | {next(iter(base)): "LONG"}).replace('"LONG"', "9" * 5_000)))
    for where, body in texts:
        answer = await check_rejected(client, dump, each, content=body.encode())
        if answer.json().get("where", "").split(".")[0].split("[")[0] != where:
            wrong.append((where, body, answer.json()))
    assert not wrong


# ---- the command line


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS: Final = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_unknown_options_and_missing_arguments_are_rejected(here: CommandRunner, words: tuple[str, ...]) -> None:
    line = here(*words, "--colour", code=2)
    assert line.startswith("cuebook: No such option: --colour")
    for parameter in COMMANDS[words].params:
        if isinstance(parameter, click.Argument) and parameter.required:
            assert here(*words, code=2).startswith(f"cuebook: Missing argument '{parameter.name.upper()}")
            break
