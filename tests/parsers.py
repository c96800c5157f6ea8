# ruff: noqa: SLF001  # some parsers are public only as a request or a command
"""The parsers of untrusted text and bytes: a valid example of each, and the only errors that it may raise."""

import gzip
import io
import json
import sqlite3
import struct
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cuebook.app import paging
from cuebook.app.backup import receipts_in
from cuebook.app.evaluate.sets import read_sets
from cuebook.app.forgetting import read_receipt
from cuebook.app.gold import read_facts
from cuebook.app.memories.file_text import parse as parse_memory_file
from cuebook.app.reports.audit import checkpoints_of
from cuebook.app.setup import archive, persona_files, project_files
from cuebook.app.sync.bundles import _contents, _read_bundle
from cuebook.app.sync.locations import check_file, pack, read_location, unpack
from cuebook.app.sync.repository import Published, read_fingerprints, signers_of, write_repository
from cuebook.app.sync.repository import seal as seal_rows
from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.app.transcripts.sources import read_sources
from cuebook.config import ServerConfig, build
from cuebook.engine.core.recall_model import _read_numbers, _read_queries
from cuebook.engine.proxy import messages_wire, request
from cuebook.errors import BackendError, InvalidInput, Unproven
from cuebook.memory.experience import read_experience, read_reply
from cuebook.memory.query import read_query
from cuebook.memory.schema import parse_answer
from cuebook.memory.scopes import read_control
from cuebook.prompts import files, presets, registry, revisions, strict_json, template
from cuebook.prompts.chain import link, mirror_line, parse_mirror, seal
from cuebook.prompts.names import parse_reference
from cuebook.prompts.params import read_params
from cuebook.providers import file_sink, oidc
from cuebook.providers.model_list import read_contexts
from cuebook.providers.openai import OpenAIEmbedder
from cuebook.records import answers, key, redaction
from cuebook.records.audit import GENESIS, Record
from cuebook.records.conversation import CALL, Part, text_with_calls
from cuebook.records.mind import MoodState
from cuebook.records.persona import Metaprompt, Trigger, read_persona
from cuebook.records.plain_text import plain
from cuebook.records.portable import conversation_from_dict
from cuebook.server.api import types
from cuebook.server.json_body import read_json
from cuebook.server.json_checks import fault_of
from cuebook.signals import machine_text, metaprompts
from cuebook.signals.sentiment import parse_reply
from cuebook.window.cut_json import cut_json
from cuebook.window.tokens import estimate
from cuebook.wire import anthropic_answers, chat_answers, responses_answers, responses_items, responses_requests
from cuebook.wire.answer import StreamReader
from cuebook.wire.anthropic_requests import chat_fields
from cuebook.wire.chat_messages import read_message
from cuebook.wire.event_stream import ByteLines
from cuebook.wire.too_long import read_too_long
from program_exports import (
    CHATGPT,
    CLAUDE,
    CLAUDE_AI,
    CODEX,
    HERMES,
    LANGGRAPH,
    LOCOMO,
    MEM0,
    OPENAI,
    OPENCODE,
    SESSIONS,
    TASKWEAVER,
    THREADS,
    TRANSCRIPT,
)


class Parser(NamedTuple):
    """A parser of untrusted input: `example` is valid, `parse` returns or raises one of `errors`."""

    name: str
    example: bytes
    parse: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = (InvalidInput,)


# ---- how a parser gets its input


def text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """Pass text. Bytes that are not UTF-8 become lone surrogates."""
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def utf8(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """Pass text that is valid Unicode, as requests and stored texts are."""
    return lambda data: parse(data.decode("utf-8", "replace"))


def value(parse: Callable[[Any], object]) -> Callable[[bytes], object]:
    """Pass the value of valid JSON, as the routes do."""

    def parse_json(data: bytes) -> object:
        try:
            document = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            return None
        return parse(document)

    return parse_json


@cache
def folder() -> Path:
    made = tempfile.TemporaryDirectory(prefix="cuebook-fuzz-")
    _folders.append(made)
    return Path(made.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []


def file(name: str, parse: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Pass a file."""

    def parse_file(data: bytes) -> object:
        path = folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return parse(path)

    return parse_file


def read_all(path: Path) -> object:
    return [each for each in read_sources(path) if each.transcripts or each.memories or each.skipped]


def in_new_folder(parse: Callable[[Path], object]) -> object:
    with tempfile.TemporaryDirectory(dir=folder()) as name:
        (Path(name) / "new").mkdir()
        return parse(Path(name) / "new")


def dump(document: object) -> bytes:
    return json.dumps(document).encode()


def jsonl(*rows: object) -> bytes:
    return b"\n".join(map(dump, rows)) + b"\n"


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + dump(each) + b"\n\n" for each in events)


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members.items():
            packed.writestr(zipfile.ZipInfo(name.replace("_", ".")), data)
    return stream.getvalue()


def long_archive(count: int) -> bytes:
    """Return a zip archive that is only a list of this many files."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", *[0] * 11, 1, *[0] * 6) + b"a"
    return entry * count + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, len(entry) * count, 0, 0)


# ---- requests


def chat_request(body: bytes) -> object:
    if fault_of(body, ServerConfig()):
        return None
    request.model_in(body)
    fields = request.read_fields(body)
    raws = msgspec.json.decode(fields.get("messages", b"[]"))
    return [read_message(each, index=number) for number, each in enumerate(raws if isinstance(raws, list) else ())]


def messages_request(body: bytes) -> object:
    if fault_of(body, ServerConfig()):
        return None
    fields, _, _ = messages_wire.read_fields(body)
    return chat_fields(fields)


def responses_request(body: bytes) -> object:
    if fault_of(body, ServerConfig()):
        return None
    read = responses_requests.read_response_request(body)
    return read.user, read.instructions, read.echo(), read.chat_fields(), responses_items.convert_items(read.items)


# ---- answers


def answer(reader: Callable[[], StreamReader]) -> Callable[[bytes], object]:
    """Pass a stream in pieces, and the same bytes as a whole body."""

    def parse(data: bytes) -> object:
        lines, stream = ByteLines(), reader()
        for at in range(0, len(data), 1 << 10):
            for line in lines.feed(data[at : at + (1 << 10)]):
                stream.read_line(line)
        stream.read_line(lines.rest())
        whole = reader()
        whole.read_body(data)
        return [read.message(choice) for read in (stream, whole) for choice in (0, *read.answer.choices[:3])]

    return parse


METAPROMPT = Metaprompt(id="m", template="Reflect.", trigger=Trigger(type="manual"))
SUMMARY = {
    "summary_markdown": "Ann lives in Bergen.",
    "memory_json": {"facts": [{"text": "Ann lives in Bergen.", "sources": ["p1"]}], "tags": ["home"]},
    "ended": [{"id": "q1", "reason": "moved", "sources": ["p1"]}],
}


def embeddings(data: bytes) -> object:
    embedder = OpenAIEmbedder.__new__(OpenAIEmbedder)
    embedder.dimension = 0
    return embedder._read(data, 1)


# ---- databases of other programs


@cache
def database(tables: str) -> bytes:
    """Return the bytes of a database that a program left."""
    path = folder() / "made.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made, made:
        made.executescript(tables)
    made.close()
    return path.read_bytes()


def stored(programs: Sequence[tuple[str, str]], data: bytes) -> object:
    """Import databases of programs whose stored text or bytes are the input."""
    path = folder() / "sessions.db"
    found = []
    for tables, row in programs:
        path.write_bytes(database(tables))
        with closing(sqlite3.connect(path, isolation_level=None)) as made, made:
            made.execute("PRAGMA synchronous = OFF")
            made.execute(row, {"text": data.decode("utf-8", "replace"), "bytes": data})
        made.close()
        found.append(read_all(path))
    return found


def archived() -> bytes:
    """Return a backup of one file."""
    target = folder() / f"made-{len(list(folder().glob('made-*')))}.backup"
    source = folder() / "project"
    source.mkdir(exist_ok=True)
    (source / "cuebook.db").write_bytes(b"SQLite format 3\x00")
    manifest = archive.Manifest(
        created_at="2026-01-01T00:00:00Z", cuebook="0.1", database="sqlite", database_file="cuebook.db", schema=1,
        with_keys=True,
    )  # fmt: skip
    archive.write_archive(target, source, manifest)
    return target.read_bytes()


def backup(data: bytes) -> object:
    """Read a backup whose tar is the input: a changed gzip stream only fails its checksum."""
    path = folder() / "some.backup"
    path.write_bytes(gzip.compress(data, 1))
    return in_new_folder(partial(archive.read_archive, path))


@cache
def signers() -> list[Any]:
    (folder() / "keys").mkdir()
    return signers_of(folder() / "keys")


def bundle() -> bytes:
    """Return a signed bundle of one prompt."""
    with tempfile.TemporaryDirectory(dir=folder()) as name:
        contents = {"prompts.json": seal_rows([b"{}"], signers()), "files.json": b"{}"}
        write_repository(Path(name), contents, signers(), project="p", now=1.7e9, expires_s=1e9)
        return pack(Path(name))


def bundle_content(data: bytes, *, rows: bool) -> object:
    """Read a bundle that is signed, whatever it contains."""
    contents = {
        "prompts.json": seal_rows([data if rows else b"{}"], signers()),
        "files.json": b'{"personas": {}}' if rows else data,
    }  # fmt: skip
    keys = [each.public_key for each in signers()]
    return _contents(Published(project="p", signers=[], replaced=(), expires_at=0.0, keys=keys, files=contents))


PROMPT = b"""---
name: writer/summary
version: 1.2.0
tags: [a, b]
params: {name: string, "n?": integer}
metadata: {owner: ann, limits: [1, 2.5, true]}
---
Summarize for $name.
<!-- @section tone -->
Be brief.
"""
PERSONA = {
    "id": "guide", "name": "Guide", "systemPrompt": "Be kind.", "sentimentTracking": {"method": "rules"},
    "metaPrompts": [{"id": "m", "prompt": "Ask.", "trigger": {"type": "event_based", "eventName": "user_confused"}}],
}  # fmt: skip
PRESETS = {
    "presets": [{"id": "a", "addonPromptKeys": ["_meta/concise"]}], "routing": {"defaultPresetId": "a"},
    "rules": [{"id": "r", "priority": 1, "presetId": "a", "anyKeywords": ["plan"]}],
}  # fmt: skip
REGISTRY = {"format": 1, "prompts": [{
    "author": "", "branch": "main", "description": "Helper", "digest": "", "head": True, "id": "persona/helper",
    "labels": ["production"], "last_updated": "2025-06-20T10:12:45Z", "number": 1, "params": ["$user_name"],
    "path": "default/persona/helper.md", "sync": False, "tags": ["persona"], "type": "prompt", "version": "1.0.0",
}]}  # fmt: skip
RECEIPT = {"id": "r1", "state": "done", "kind": "user", "asked": ["00"], "salt": "00", "counts": {"posts": 1}}
MEMORY_FILE = b"""---
cuebook: 1
owner: ann
category: facts
memories:
- {id: 0123456789abcdef, digest: 00aa, since: '2026-01-01T00:00:00Z'}
---
<!-- memory 0123456789abcdef -->
Ann lives in Bergen.
<!-- memory new -->
Ann sails.
"""
RECORD = Record(
    timestamp="2025-06-20T13:22:11Z", agent="a", prompt_id="writer/summary", version="1.2.0", input_context="",
    interpolated_text="", output_summary="", event="render", seq=1,
)  # fmt: skip
MIRROR_LINE = mirror_line(
    link(seal(RECORD, context={"a": 1}, interpolated_text="Hi", output_summary="Yes", salt=bytes(48)), GENESIS)
).encode()
SETTINGS = b"""[server]
max_posts = 20
[store]
url = "cuebook.db"
[retention]
memories_days = 30
"""


def persona(document: Any) -> object:
    return read_persona(document)


CHAT_EVENT = {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi", "tool_calls": [
    {"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}}  # fmt: skip
MESSAGES_EVENTS = [
    {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
]  # fmt: skip
RESPONSE = {"id": "r", "status": "completed", "output": [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So."}]}],
    "usage": {"input_tokens": 3, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}}  # fmt: skip


def table() -> list[Parser]:
    """Return every parser of untrusted input."""
    return [*_requests(), *_upstream(), *_model_answers(), *_files(), *_exchanged(), *_imports(), *_texts()]


def _requests() -> Iterable[Parser]:
    tool = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **tool}]}
    yield Parser("chat completion", dump({"model": "m", "messages": [*OPENAI, call]}), chat_request)
    content = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]}
    messages = {
        "model": "m", "system": content, "messages": [{"role": "user", "content": "x"}, used, result],
        "metadata": {"user_id": '{"device_id": "d"}'}, "tools": [{"name": "f", "input_schema": {}}],
    }  # fmt: skip
    yield Parser("messages request", dump(messages), messages_request)
    items = [*RESPONSE["output"], {"type": "function_call_output", "call_id": "c", "output": "1"}]
    responses = {"model": "m", "input": items, "instructions": "x", "text": {"format": {"type": "json_schema"}}}
    yield Parser(
        "responses request", dump(responses | {"reasoning": {"effort": "low"}, "user": "ann"}), responses_request
    )
    for kind in (types.ChatBody, types.PostsBody):
        example = {"posts": TRANSCRIPT["posts"]} if kind is types.PostsBody else {"message": "Hi", "mode": "a"}
        yield Parser(kind.__name__, dump(example), partial(_body, msgspec.json.Decoder(kind)))
    edit = dump({"name": "edit", "arguments": dump({"path": "a.txt"}).decode()})
    yield Parser("tool call", edit, text(lambda content: text_with_calls("", [Part(type=CALL, content=content)])))
    control = {"longTermMemory": {"enabled": True, "scopes": {"user": True}, "allowedCategories": ["facts"]}}
    yield Parser("memory control", dump(control), value(read_control))
    yield Parser("time of a request", dump("2026-01-31T12:00:00Z"), value(lambda when: types.seconds_of(when, "since")))
    yield Parser(
        "cursor", paging.write_cursor("posts", 3, "x").encode(), text(lambda at: paging.read_cursor(at, "posts"))
    )
    attempt = oidc.write_attempt(oidc.new_attempt("/inspector"))
    yield Parser("sign-in cookie", attempt.encode(), text(oidc.read_attempt), (Unproven,))
    token = key.write_token("0a", bytes(32))
    yield Parser("API key", token.encode(), utf8(lambda each: (key.id_of(each), key.fits(each, b"k" * 32, b"d" * 32))))
    answer_id = responses_requests.write_id(responses_requests.AnswerId("c", 1, 1))
    yield Parser("response id", answer_id.encode(), text(responses_requests.read_id), ())
    yield Parser("item id", f"msg_{answer_id}_1".encode(), text(responses_answers.read_item_id), ())
    yield Parser("prompt reference", b"writer/summary@main:3", text(parse_reference))


def _body(decoder: "msgspec.json.Decoder[Any]", data: bytes) -> object:
    return read_json(data, decoder)


def _upstream() -> Iterable[Parser]:
    done = b"data: [DONE]\n\n"
    yield Parser("chat stream", sse(CHAT_EVENT) + done, answer(chat_answers.ChatReader), ())
    message = CHAT_EVENT["choices"][0] | {"message": CHAT_EVENT["choices"][0]["delta"]}
    yield Parser("chat answer", dump(CHAT_EVENT | {"choices": [message]}), answer(chat_answers.ChatReader), ())
    yield Parser("messages stream", sse(*MESSAGES_EVENTS), answer(anthropic_answers.MessagesReader), ())
    content = [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]
    whole = {"id": "m", "model": "x", "content": content, "stop_reason": "end_turn", "usage": {"input_tokens": 3}}
    yield Parser("messages answer", dump(whole), answer(anthropic_answers.MessagesReader), ())
    completed = {"type": "response.completed", "response": RESPONSE}
    delta = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "delta": "Hi"}
    stream = sse({"type": "response.created", "response": {"id": "r"}}, delta, completed)
    yield Parser("responses stream", stream, answer(responses_answers.ResponsesReader), ())
    yield Parser("responses answer", dump(RESPONSE), answer(responses_answers.ResponsesReader), ())
    yield Parser("list of models", dump({"data": [{"id": "m", "context_length": 8192}]}), read_contexts, ())
    error = {"error": {"message": "This model's maximum context length is 8192 tokens. You requested 9000 tokens."}}
    yield Parser("error answer", dump(error), lambda body: read_too_long(400, body), ())
    yield Parser("embeddings", dump({"data": [{"index": 0, "embedding": [0.5, 1]}]}), embeddings, (BackendError,))


def _model_answers() -> Iterable[Parser]:
    broken = b"Here:\n```json\n{'a': [1, 2,], b: \"x\n```"
    yield Parser("JSON of a model", broken, text(answers.repair_json), ())
    yield Parser("object of a model", broken, text(answers.read_object))
    summary = partial(parse_answer, posts=["p1"], known=["q1"], max_tokens=100, count=estimate)
    yield Parser("summary", dump(SUMMARY), text(summary))
    yield Parser("sentiment", b'{"score": -0.5, "intensity": 0.5}', text(parse_reply))
    mood = {"updatedGmiMood": "focused", "strategy": "Ask.", "newMemoryImprints": [{"key": "k", "value": "v"}]}
    yield Parser("reflection", dump(mood), text(lambda each: metaprompts.read_answer(each, METAPROMPT, MoodState())))
    yield Parser(
        "selection", dump({"selected": ["a"], "b": {"selected": False}}), text(lambda each: read_reply(each, "ab")), ()
    )
    yield Parser("recall queries", dump({"queries": ["a", "b"]}), text(_read_queries))
    yield Parser("recall numbers", dump({"results": [1, 2]}), text(lambda each: _read_numbers(each, 3)))


def _files() -> Iterable[Parser]:
    yield Parser("prompt file", PROMPT, lambda data: files.read_file(data, path="writer/summary.md"))
    yield Parser("prompt registry", dump(REGISTRY), registry.read)
    for name in ("a.json", "a.yaml"):
        parse = partial(persona_files.document_of, name=name)
        yield Parser(f"persona {name}", dump(PERSONA), lambda data, parse=parse: persona(parse(data)))
    experience = {"exp_id": "x", "who": ["Planner"], "when": "When asked.", "what": "Answer."}
    yield Parser("experience file", dump(experience), lambda data: read_experience(
        persona_files.document_of(data, "a.yaml"), file="a.yaml"))  # fmt: skip
    yield Parser("presets file", dump(PRESETS), lambda data: presets.read_presets(
        strict_json.parse(data), file="presets.json", prompts={"_meta/concise"}))  # fmt: skip
    yield Parser("settings", SETTINGS, file("set/cuebook.toml", lambda path: build(
        file=project_files._read(path, "TOML", tomllib.loads))))  # fmt: skip
    yield Parser("memory file", MEMORY_FILE, text(lambda each: parse_memory_file(each, "facts.md")))
    yield Parser("parameters", dump({"name": "string", "n?": "integer"}), value(read_params))
    yield Parser("receipt", dump({"receipt": RECEIPT}), read_receipt)
    yield Parser("receipts", dump({"items": [RECEIPT]}), receipts_in)
    point = {"origin": "o", "size": 1, "root": "r", "time": "2026-01-01T00:00:00Z", "signature": "ed25519:AA=="}
    yield Parser("checkpoints", dump({"items": [point]}), checkpoints_of)
    yield Parser("mirror line", MIRROR_LINE, parse_mirror)
    yield Parser("sink row", dump({"passId": "p", "last": True}) + b"\n", file_sink._row, ())
    fact = {"id": "f", "fact": "x", "question": "?", "answer": "a", "match": [["a"]], "sources": ["p"], "current": True}
    yield Parser("gold list", dump({"facts": [fact]}), lambda data: read_facts(data, name="gold.json"))


def _exchanged() -> Iterable[Parser]:
    revision = {"createdAt": 1.0, "file": PROMPT.decode().replace("tags", "sync: true\ntags"), "parents": []}
    yield Parser("synced version", dump(revision), revisions.read_revision)
    yield Parser("archive of prompts", bundle(), lambda data: in_new_folder(partial(unpack, data)))
    yield Parser("bundle", bundle(), file("a.bundle", _read_bundle), (InvalidInput, BackendError))
    row = {"slug": "writer/summary", "branch": "main", "sections": {"body": "x"}}
    yield Parser("content of a bundle", dump(row), partial(bundle_content, rows=True))
    yield Parser(
        "files of a bundle", dump({"personas": {"guide.yaml": "id: guide"}}), partial(bundle_content, rows=False)
    )
    yield Parser("path in an archive", b"targets/a/b.json", text(check_file))
    yield Parser("address", b"klp://host.example:8443/space", text(lambda each: read_location(each, {})))
    yield Parser("fingerprints", b"SHA256:" + b"0a" * 32, text(lambda each: read_fingerprints(each, where="trust")))
    yield Parser("backup", gzip.decompress(archived()), backup)
    yield Parser("compressed backup", archived(), file("some.gz", lambda path: in_new_folder(
        partial(archive.read_archive, path))))  # fmt: skip


def _imports() -> Iterable[Parser]:
    for name, rows in (("Claude Code", CLAUDE), ("Codex", CODEX), ("chat", OPENAI)):
        yield Parser(f"import {name}", jsonl(*rows), file("import.jsonl", read_all), ())
    for name, document in (
        ("OpenCode", OPENCODE), ("Hermes", HERMES), ("ChatGPT", CHATGPT), ("Claude.ai", CLAUDE_AI), ("mem0", MEM0),
        ("LoCoMo", LOCOMO), ("Cuebook", TRANSCRIPT), ("TaskWeaver", TASKWEAVER),
    ):  # fmt: skip
        yield Parser(f"import {name}", dump(document), file("import.json", read_all), ())
    yield Parser("import YAML", dump(TRANSCRIPT), file("import.yaml", read_all), ())
    yield Parser("import zip", zipped(a_json=dump(CHATGPT)), file("import.zip", read_all), ())
    yield Parser("import database", database("CREATE TABLE sessions (id)"), file("import.db", read_all), ())
    yield Parser("stored session", dump(OPENCODE["messages"][0]["info"]), partial(stored, SESSIONS), ())
    yield Parser("stored checkpoint", dump(LANGGRAPH), partial(stored, THREADS), ())
    human = ["m", "HumanMessage", {"type": "human", "id": "h", "content": "Hi"}, "validate"]
    packed = {"channel_values": {"messages": [msgspec.msgpack.Ext(5, msgspec.msgpack.encode(human))]}}
    yield Parser("packed checkpoint", msgspec.msgpack.encode(packed), partial(stored, THREADS), ())
    yield Parser("transcript", jsonl(*OPENAI), text(lambda each: read_transcripts(each, name="a.jsonl")))
    yield Parser("conversation", dump(TASKWEAVER), value(conversation_from_dict))
    yield Parser("test set", dump([LOCOMO]), file("set.json", lambda path: read_sets([path])))


def _texts() -> Iterable[Parser]:
    for engine in ("dollar", "braces"):
        render = partial(template.render, values={"a": "1", "b": "$a"}, engine=engine, declared={"a", "b", "c"})
        yield Parser(f"template {engine}", b"A $a ${b} {{a}} {{ b }} $$a {{{{a}}}}", utf8(render))
    query = partial(read_query, speakers=["Ann"], now=1772359200.0, zone=UTC)
    yield Parser("query", b"What did Ann say last Tuesday at 5 pm, on 3 May 2024 or in 2 weeks?", utf8(query), ())
    secret = b"token = ghp_0123456789abcdefghijklmnopqrstuvwxyz and card 4111 1111 1111 1111 and https://a:b@c"
    yield Parser("text with secrets", secret, utf8(redaction.Redactor(b"k" * 32).text), ())
    yield Parser(
        "JSON with secrets", dump({"a": secret.decode(), "password": "hunter2"}), redaction.Redactor(b"k" * 32).json, ()
    )
    yield Parser("markdown", b"# A\n\n- *b* [c](http://d) `e`\n\n> f\n\n|a|b|\n|-|-|\n|1|2|\n", utf8(plain), ())
    yield Parser(
        "long JSON",
        dump({"rows": [{"id": n} for n in range(20)]}),
        text(lambda each: cut_json(each, 50, count=estimate)),
        (),
    )
    yield Parser(
        "tool result",
        b'{"error": "x", "exit_code": 1}\nTraceback (most recent call last):',
        utf8(machine_text.failed),
        (),
    )
    yield Parser("pasted text", b"> quote\n```\ncode\n```\nmy own words", utf8(machine_text.spoken), ())
