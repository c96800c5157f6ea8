"""Fuzz tests: each parser of untrusted text or bytes returns, or raises its documented error, whatever it gets."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuebook
from parsers import Parser, dump, jsonl, table, zipped
from program_exports import CLAUDE, CODEX, HERMES, LOCOMO

PARSERS = table()
NAMED = {each.name: each for each in PARSERS}
#: Pieces that break parsers: controls, halves of characters, direction marks, numbers out of range, openings.
PIECES = (
    b"\x00", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"\xe2\x80\xae", b"\xef\xbb\xbf", b"\xff", b"\r", b"\n", b"\n\n",
    b"\xe2\x80\xa8", b"1e999", b"-1", b"9" * 5_000, b"0x", b"NaN", b"null", b"true", b'""', b"[]", b"{}", b"[" * 1_100,
    b'{"a":' * 1_100, b"&a [*a,*a]", b"!!python/object:os.system x", b"2026-02-31", b"99999-01-01", b"---\n", b"...\n",
    b"<!--", b"-->", b"${", b"{{", b"}}", b"../", b"%2e%2e/", b"data:", b"\\", b"'", b'"', b"`" * 99, b"*" * 999,
    b"x" * 9_999, b" " * 9_999,
)  # fmt: skip


def nested(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


VALUES = (
    None, True, False, 0, -1, 1.5, 1e308, 10**30, "", "\x00", "\ud800", "\u202e", "x" * 5_000, "2026-02-31",
    "0001-01-01",    "9999-12-31T23:59:59-12:00", [], {}, [None], [[]], [{}], {"": None}, {"a": {"a": []}}, ["x"],
    {"type": "x"}, [0] * 99, nested(400),
)  # fmt: skip
BYTES = st.binary(max_size=60) | st.text(max_size=40).map(lambda each: each.encode("utf-8", "surrogatepass"))
EDITS = st.lists(
    st.tuples(st.sampled_from("delete double swap insert cut".split()), st.integers(0, 9_999), st.integers(0, 40),
              st.sampled_from(PIECES)),
    min_size=1, max_size=5,
)  # fmt: skip
CHANGES = st.lists(
    st.tuples(st.lists(st.integers(0, 99), max_size=7), st.sampled_from("set delete double rename".split()),
              st.sampled_from(VALUES)),
    min_size=1, max_size=3,
)  # fmt: skip


def edited(data: bytes, edits: list[tuple[str, int, int, bytes]]) -> bytes:
    """Return an example with pieces deleted, doubled, swapped, inserted or cut off."""
    for kind, place, size, piece in edits:
        at = place % (len(data) + 1)
        chosen = data[at : at + size]
        match kind:
            case "delete":
                data = data[:at] + data[at + size :]
            case "double":
                data = data[: at + size] + chosen + data[at + size :]
            case "swap":
                data = data[:at] + data[at + size : at + 2 * size] + chosen + data[at + 2 * size :]
            case "insert":
                data = data[:at] + piece + data[at:]
            case _:
                data = data[:at]
    return data


def changed(document: Any, changes: list[tuple[list[int], str, Any]]) -> Any:
    """Return JSON with the values at some paths replaced, deleted, doubled or renamed."""
    document = json.loads(json.dumps(document))
    root = [document]
    for path, kind, value in changes:
        inside: Any = root
        key: Any = 0
        for step in path:
            child = inside[key]
            if not isinstance(child, list | dict) or not child:
                break
            inside, key = child, list(child)[step % len(child)] if isinstance(child, dict) else step % len(child)
        if kind == "set" or inside is root:
            inside[key] = json.loads(json.dumps(value))
        elif kind == "delete":
            del inside[key]
        elif isinstance(inside, list):
            inside.append(inside[key])
        else:
            inside[f"{key}2" if kind == "double" else "x"] = inside[key]
            if kind == "rename":
                del inside[key]
        if not root:
            root.append(None)
    return root[0]


def changed_lines(rows: list[Any], changes: list[tuple[list[int], str, Any]]) -> bytes:
    """Return lines of JSON with changed values."""
    document = changed(rows if len(rows) > 1 else rows[0], changes)
    lines = document if len(rows) > 1 and isinstance(document, list) else [document]
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def check(parser: Parser, data: bytes) -> None:
    with suppress(*parser.errors):
        parser.parse(data)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda each: each.name)
def test_the_example_is_valid(parser: Parser) -> None:
    parser.parse(parser.example)


#: Examples of each parser: fewer than those of other tests, because there are many parsers.
EXAMPLES = max(3, settings.default.max_examples // 6)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda each: each.name)
def test_any_input_is_parsed_or_refused(parser: Parser) -> None:
    inputs = BYTES | EDITS.map(partial(edited, parser.example))
    with suppress(ValueError):
        rows = [json.loads(line) for line in parser.example.removesuffix(b"\n").split(b"\n")]
        inputs |= CHANGES.map(partial(changed_lines, rows))

    @settings(max_examples=EXAMPLES)
    @given(inputs)
    def run(data: bytes) -> None:
        check(parser, data)

    run()


DEEP_JSON = b"[" * 2_000
#: Lines of YAML of which each doubles the one before: 67 million values.
BOMB = (
    b"".join(
        [b"a: &a [{type: text, text: b}]\n", *(b"%c: &%c [*%c, *%c]\n" % (n + 1, n + 1, n, n) for n in range(97, 122))]
    )
    + b"messages:\n- {role: user, content: *z}\n"
)
#: Inputs that once raised another error, took memory without bound or never ended.
ONCE = (
    ("error answer", b'{"error": {"message": "maximum context length is ' + b"9" * 5_000 + b' tokens"}}'),
    ("embeddings", b'{"x": ' + DEEP_JSON),
    ("sentiment", b'{"score": 1, "\xed\xa0\x80": 1}'),
    ("memory file", b"---\nowner: " + b"[" * 400 + b"\n---\n"), ("memory file", b"---\nowner: 2026-02-31\n---\n"),
    ("receipt", DEEP_JSON), ("receipts", DEEP_JSON), ("checkpoints", DEEP_JSON), ("sink row", DEEP_JSON + b"\n"),
    ("content of a bundle", DEEP_JSON),
    ("synced version", b'{"file": "\xff"}'), ("synced version", DEEP_JSON), ("address", b"klp://a[b]/c"),
    ("tool result", b'{"a": ' + DEEP_JSON),
    ("import YAML", BOMB),
    ("import YAML", b"posts: 2026-02-31"),
    ("import Claude Code", jsonl(CLAUDE[0] | {"message": {"content": [{"type": "text", "x": nested(450)}]}})),
    ("import Claude Code", jsonl(*CLAUDE, CLAUDE[0] | {"uuid": "u9", "parentUuid": {}})),
    ("import Claude Code", jsonl(*CLAUDE, CLAUDE[0] | {"uuid": "u9", "message": {"content": [{"type": []}]}})),
    ("import Claude Code", jsonl({"type": "system", "uuid": "a", "parentUuid": "b", "sessionId": "s"},
                                 {"type": "system", "uuid": "b", "parentUuid": "a", "sessionId": "s"},
                                 CLAUDE[0] | {"parentUuid": "a"})),
    ("import Codex", jsonl({"type": "session_meta", "payload": 0}, *CODEX[1:])),
    ("import Codex", jsonl({"type": "session_meta"}, *CODEX[1:])),
    ("import OpenCode", b'{"info": {}, "messages": null}'),
    ("import Hermes", dump(HERMES | {"messages": [{"role": "assistant", "tool_calls": "{"}]})),
    ("import Hermes", dump(HERMES | {"messages": [{"role": "user", "content": "\x00json:{"}]})),
    ("import ChatGPT", b'{"mapping": {"a": {"parent": []}}}'),
    ("import Claude.ai", b'{"chat_messages": [{"uuid": "a", "sender": "human", "content": 1, "files": 1}]}'),
    ("import LoCoMo", dump(LOCOMO | {"qa": [{"evidence": ["D1:1"], "category": []}]})),
    ("stored checkpoint", b'{"channel_values": [{}]}'),
    ("import zip", zipped(a_json=b"[]").replace(b"a.json", b"\x00.json")),
)  # fmt: skip


@pytest.mark.parametrize(("name", "data"), ONCE, ids=[f"{name} {number}" for number, (name, _) in enumerate(ONCE)])
def test_an_input_that_once_failed_is_refused(name: str, data: bytes) -> None:
    check(NAMED[name], data)


# ---- a complete table

#: Modules with a parser that the table lacks: the reason, by the beginning of their path in the package.
OTHERS = {
    "storage": "reads the database, whose values were checked when they were written",
    "engine app/namespace app/replay app/backup app/turns app/reports/audit app/memories records/turn records/audit"
    " records/answer records/portable wire window/window server/page server/metrics server/mcp app/transcripts/write"
    " app/sync/hub app/sync/repository app/prompts/compare app/proxy app/demo prompts/chain cli": "reads Cuebook's own",
    "languages memory/compress prompts/lint window/models signals/metaprompts app/setup/project_templates"
    " app/setup/archive records/redaction app/memories/personal": "reads the package's files or writes a backup",
    "integrations testing": "runs in the client",
    "providers/llama": "reads a request that Cuebook wrote",
    "app/reports/prices": "reads the owner's table of prices",
    "app/evaluate": "reads the test sets of the one who runs them; other errors name the file",
    "app/sync/locations server/openai/chat_completions providers/oidc": "use the network; tests/interfaces covers them",
    "prompts/registry server/json_checks operations": "parse one field that a route has checked",
}
_FUNCTION = re.compile(r"\s*(?:async )?def (\w+)")
_DECODER = re.compile(
    r"\b(json|tomllib|yaml|msgpack|datetime|base64|zipfile|json_repair)\.(loads|decode|load|safe_load|strptime|fromisoformat"
    r"|b64decode|urlsafe_b64decode|ZipFile)\("
)


def functions_that_decode() -> Iterator[tuple[str, str]]:
    """Yield the path in the package and the name of each function that calls a decoder of bytes or text."""
    root = Path(cuebook.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = ""
        for line in path.read_text("utf-8").split("\n"):
            if (found := _FUNCTION.match(line)) is not None:
                name = found[1]
            elif _DECODER.search(line):
                yield str(path.relative_to(root).with_suffix("")), name


def test_every_parser_is_in_the_table() -> None:
    ran: set[tuple[str, str]] = set()
    root = str(Path(cuebook.__file__).parent)

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            ran.add((frame.f_code.co_filename[len(root) + 1 : -3], frame.f_code.co_name))

    sys.setprofile(profile)
    try:
        for parser in PARSERS:
            check(parser, parser.example)
    finally:
        sys.setprofile(None)
    others = tuple(" ".join(OTHERS).split())
    missing = [each for each in functions_that_decode() if each not in ran and not each[0].startswith(others)]
    assert missing == []


# ---- bounded work

GROWING = (
    b"[", b"{", b'"', b"'", b"$a ", b"{{a}}", b"\n", b"a ", b"<!-- ", b"`", b"data: x\n", b"\\", b"- ", b"*", b"4111 ",
    b'{"a":1}\n', b'{"a":', b"<think>", b"://", b"> ", b"|", b"(", b"eyJ", b"=",
)  # fmt: skip


def grown(parser: Parser, size: int) -> Iterator[bytes]:
    """Yield texts of one piece, alone and inside of the example."""
    middle = len(parser.example) // 2
    for piece in GROWING:
        many = piece * (size // len(piece))
        yield many
        yield parser.example[:middle] + many + parser.example[middle:]


def calls_of(run: Callable[[], object]) -> int:
    """Return how many functions a call runs."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS, ids=lambda each: each.name)
def test_work_grows_at_most_with_the_length(parser: Parser) -> None:
    for short, long in zip(grown(parser, 500), grown(parser, 2_000), strict=True):
        less, more = (calls_of(partial(check, parser, data)) for data in (short, long))
        assert more <= 6 * less + 2_000, (long[:40], less, more)


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS, ids=lambda each: each.name)
def test_no_text_of_100_kb_takes_long(parser: Parser) -> None:
    for data in grown(parser, 100_000):
        begun = time.process_time()
        check(parser, data)
        assert time.process_time() - begun < 5, data[:40]  # a pattern that backtracks takes minutes
