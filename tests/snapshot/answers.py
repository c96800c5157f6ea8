"""Records the answers to about 280 requests: over HTTP, on the command line, and with OpenAI, Anthropic and MCP clients.

The clock, ids and models are doubles, so two runs give the same answers. `difference.mask` masks what still differs
between two runs: keys and signatures.
"""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from difference import VARIES

from cuebook import Cuebook
from cuebook.cli import main as command_line
from cuebook.config import build
from cuebook.server.app import create_app
from cuebook.testing.doubles import FrozenClock, LoadedDice, Script, ScriptedModel
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import call, completion, result, streamed

BASE = "http://127.0.0.1"
EVENTS = {"accept": "text/event-stream"}
#: Response headers that clients use.
HEADERS = ("content-type", "x-conversation-id", "retry-after", "location", "link", "www-authenticate", "allow")

#: Fields of an answer that the machine's clock measures.
TIMINGS = {"firstTokenMs"}

Recorded = dict[str, Any]

TALK = [
    {"id": "p1", "sendFrom": "ann", "message": "I moved to Lisbon in May, and I am allergic to shrimp."},
    {"id": "p2", "sendFrom": "assistant", "message": "Noted: Lisbon, and no shrimp."},
    {"id": "p3", "sendFrom": "ann", "message": "The ferry to Vlieland leaves at 9:45 on Friday."},
    {"id": "p4", "sendFrom": "assistant", "message": "Friday, 9:45.", "attachments": [{"type": "plan", "content": "1. pack"}]},
    {"id": "p5", "sendFrom": "ann", "message": "We decided to paint the boathouse blue. My budget is 300 euros."},
    {"id": "p6", "sendFrom": "assistant", "message": "Blue it is."},
]  # fmt: skip
MORE = [
    {"id": f"q{n}", "sendFrom": "ann" if n % 2 else "assistant", "message": f"Plank number {n} is {n * 7} cm long."}
    for n in range(1, 31)
]

#: (name, method, path, body, headers). The requests of one caller without keys, in order.
HTTP: list[tuple[Any, ...]] = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("POST", "/api/conversations/c1/posts", {"posts": TALK, "userId": "ann"}),
    ("POST", "/api/conversations/c1/posts", {"posts": TALK, "userId": "ann"}),
    ("POST", "/api/conversations/c1/posts", {"posts": [TALK[0] | {"message": "Other."}], "userId": "ann"}),
    ("POST", "/api/conversations/c1/posts", {"messages": [{"role": "user", "content": "Bring a rope.", "id": "p7"}], "userId": "ann"}),
    ("POST", "/api/conversations/c1/posts", {"posts": [{"sendFrom": "ann", "message": "x", "text": "y"}]}),
    ("POST", "/api/conversations/c1/posts", {"posts": [], "messages": []}),
    ("POST", "/api/conversations/c1/posts", {"posts": [{"sendFrom": "ann", "message": "nul \x00"}]}),
    ("POST", "/api/conversations/long/posts", {"posts": MORE, "userId": "ann"}),
    ("GET", "/api/conversations"),
    ("GET", "/api/conversations?limit=1"),
    ("GET", "/api/conversations?q=ferry"),
    ("GET", "/api/conversations?colour=red"),
    ("GET", "/api/conversations?limit=0"),
    ("GET", "/api/conversations?cursor=nonsense"),
    ("GET", "/api/conversations/c1?userId=ann"),
    ("GET", "/api/conversations/nosuch"),
    ("GET", "/api/conversations/c1/rounds?userId=ann"),
    ("GET", "/api/conversations/c1/rounds?userId=ann&limit=1"),
    ("GET", "/api/conversations/c1/posts?userId=ann&last=2"),
    ("GET", "/api/conversations/c1/posts?userId=bob"),
    ("GET", "/api/conversations/c1/session?userId=ann"),
    ("GET", "/api/conversations/c1/shared-entries?userId=ann&type=plan"),
    ("POST", "/api/assemble", {"message": "When does the ferry leave?", "conversationId": "c1", "userId": "ann"}),
    ("POST", "/api/assemble", {"message": "And now?", "conversationId": "long", "userId": "ann", "tokenBudget": 400}),
    ("POST", "/api/assemble", {"message": "Hi", "tokenBudget": 1}),
    ("POST", "/api/chat", {"message": "When does the ferry leave?", "conversationId": "c1", "userId": "ann"}),
    ("POST", "/api/chat", {"message": "Plan the trip, step by step.", "conversationId": "c1", "userId": "ann", "mode": "planner", "personaId": "helper"}),
    ("POST", "/api/chat", {"message": "Hello", "conversationId": "c2", "userId": "bob", "stream": True}),
    ("POST", "/api/chat", {"message": "Hello again", "conversationId": "c2", "userId": "bob"}, EVENTS),
    ("POST", "/api/chat", {"message": "Once", "conversationId": "c2", "userId": "bob"}, {"idempotency-key": "k1"}),
    ("POST", "/api/chat", {"message": "Once", "conversationId": "c2", "userId": "bob"}, {"idempotency-key": "k1"}),
    ("POST", "/api/chat", {"message": "Twice", "conversationId": "c2", "userId": "bob"}, {"idempotency-key": "k1"}),
    ("POST", "/api/chat", {"message": "Hi", "personaId": "nobody"}),
    ("POST", "/api/chat", {"message": 5}),
    ("POST", "/api/chat", {"msg": "Hi"}),
    ("POST", "/api/chat", b"{not json"),
    ("GET", "/api/conversations/c1/turns?userId=ann"),
    ("GET", "/api/conversations/c1/turns/1?userId=ann"),
    ("GET", "/api/conversations/c1/turns/9?userId=ann"),
    ("GET", "/api/conversations/c1/turns/1/replay?userId=ann"),
    ("POST", "/api/conversations/c1/turns/2/replay", {"userId": "ann", "without": ["post:p3"]}),
    ("POST", "/api/conversations/c1/turns/1/feedback", {"userId": "ann", "thumb": "up", "comment": "good"}),
    ("POST", "/api/conversations/c1/turns/1/feedback", {"userId": "ann"}),
    ("PUT", "/api/conversations/c1/head?userId=ann", {"postId": "p6"}),
    ("PUT", "/api/conversations/c1/head?userId=ann", {"postId": "nosuch"}),
    ("PUT", "/api/conversations/c1/participants?userId=ann", {"participants": ["ann", "bob"]}),
    ("POST", "/api/settle", {}),
    ("GET", "/api/conversations/long/summary?userId=ann"),
    ("GET", "/api/conversations/long/items?userId=ann"),
    ("GET", "/api/conversations/nosuch/summary"),
    ("POST", "/api/conversations/c2/compress", {"olderThan": "nosuch", "summary": "They said hello.", "userId": "bob"}),
    ("POST", "/api/memories/search", {"query": "ferry", "conversationId": "c1", "userId": "ann"}),
    ("POST", "/api/memories/search", {"query": "boathouse colour", "conversationId": "c1", "userId": "ann", "limit": 2, "tokenBudget": 60}),
    ("POST", "/api/memories/search", {"query": "xylophone", "conversationId": "c1", "userId": "ann"}),
    ("POST", "/api/memories/search", {"query": "x", "scopes": ["galaxy"]}),
    ("POST", "/api/memories/search", {"query": ""}),
    ("GET", "/api/memories?userId=ann"),
    ("GET", "/api/memories/export?userId=ann"),
    ("GET", "/api/memories/nosuch"),
    ("PATCH", "/api/memories/nosuch", {"text": "x"}),
    ("POST", "/learning/knowledge", {"category": "domain", "key": "api.rate", "value": "100 a minute"}),
    ("POST", "/learning/knowledge", {"category": "domain", "key": "api.rate", "value": "100 a minute"}),
    ("POST", "/learning/knowledge", {"category": "user_preference", "key": "tone", "value": "brief", "userId": "ann", "confidence": 0.8}),
    ("POST", "/learning/knowledge", {"category": "gossip", "key": "k", "value": "v"}),
    ("POST", "/learning/knowledge", {"category": "domain", "key": "k", "value": "v", "extra": 1}),
    ("GET", "/learning/knowledge"),
    ("GET", "/learning/knowledge?userId=ann&category=user_preference"),
    ("GET", "/learning/knowledge?q=rate"),
    ("POST", "/learning/knowledge/nosuch/use"),
    ("POST", "/learning/memory/compress", {"text": "Step 1: open https://example.org/a\n" + "The pump hums. " * 30 + "\nTotal: $42.50"}),
    ("POST", "/learning/memory/digest", {"conversationId": "c1", "userId": "ann"}),
    ("POST", "/learning/memory/analyze", {"conversationId": "c1", "userId": "ann"}),
    ("GET", "/learning/memory/stats"),
    ("GET", "/learning/memory/budget?conversationId=c1&userId=ann"),
    ("GET", "/learning/optimizer/status"),
    ("POST", "/learning/optimizer/run", {"conversationId": "long"}),
    ("GET", "/learning/optimizer/history"),
    ("POST", "/api/memories/utility", {"conversationIds": ["c1"], "estimate": True, "userId": "ann"}),
    ("GET", "/api/shadow"),
    ("GET", "/api/conversations/c1/mind?userId=ann"),
    ("POST", "/api/conversations/c1/mind/run", {"metaprompt": "nosuch", "userId": "ann"}),
    ("POST", "/api/conversations/c1/mind/reset", {"userId": "ann"}),
    ("GET", "/api/experiences"),
    ("POST", "/api/experiences/select", {"query": "How do I start?"}),
    ("GET", "/api/personas"),
    ("GET", "/api/personas/assistant"),
    ("GET", "/api/personas/nosuch"),
    ("GET", "/api/organizations/acme/settings"),
    ("PATCH", "/api/organizations/acme/settings", {"memory": {"longTermMemory": {"allowWrites": False}}}),
    ("PATCH", "/api/organizations/acme/settings", {"memory": {"longTermMemory": {"allowedCategories": ["gossip"]}}}),
    ("POST", "/api/prompts", {"slug": "persona/kind", "type": "persona", "sections": {"body": "Be kind to $who."}, "params": ["who"], "author": "ann"}),
    ("POST", "/api/prompts", {"slug": "persona/kind", "sections": {"body": "Be very kind to $who."}, "base": 1}),
    ("POST", "/api/prompts", {"slug": "persona/kind", "sections": {"body": "Late."}, "base": 1}),
    ("POST", "/api/prompts", {"slug": "../etc", "sections": {"body": "x"}}),
    ("POST", "/api/prompts", {"slug": "persona/key", "sections": {"body": "x"}, "colour": "red"}),
    ("GET", "/api/prompts?prefix=persona/"),
    ("GET", "/api/prompts/persona~kind"),
    ("GET", "/api/prompts/persona~kind?version=1"),
    ("GET", "/api/prompts/nosuch"),
    ("GET", "/api/prompts/persona~kind/versions"),
    ("GET", "/api/prompts/persona~kind/versions/2"),
    ("GET", "/api/prompts/persona~kind/diff?a=1&b=2"),
    ("POST", "/api/prompts/persona~kind/branches", {"name": "warm", "from": {"branch": "main", "version": 2}}),
    ("POST", "/api/prompts/persona~kind/branches", {"name": "warm"}),
    ("GET", "/api/prompts/persona~kind/branches"),
    ("PUT", "/api/prompts/persona~kind/labels", {"name": "production", "version": 1}),
    ("GET", "/api/prompts/persona~kind/labels"),
    ("POST", "/api/prompts/persona~kind/render", {"params": {"who": "Alex"}, "log": True}),
    ("POST", "/api/prompts/persona~kind/render", {"params": {}}),
    ("POST", "/api/prompts/persona~kind/select", {"signals": {"user_pleased": 0.9}, "seed": 7}),
    ("POST", "/api/prompts/persona~kind/select", {"signals": {"user_pleased": 2}}),
    ("POST", "/api/prompts/persona~kind/observations", {"sentiment": 0.9, "taskOutcome": "success"}),
    ("POST", "/api/prompts/persona~kind/observations", {"sentiment": 7}),
    ("POST", "/api/prompts/persona~kind/merge", {"branch": "warm", "into": "main"}),
    ("POST", "/api/prompts/persona~kind/rollback", {"reason": "too kind", "to": 1}),
    ("POST", "/api/prompts/persona~kind/clear", {"version": 2}),
    ("GET", "/api/prompts/persona~kind/history"),
    ("GET", "/api/prompts/persona~kind/rating"),
    ("GET", "/api/prompts/persona~kind/lint"),
    ("GET", "/api/prompt-clusters"),
    ("POST", "/api/prompts/migrate", {"document": [{"slug": "greet", "sections": {"body": "Hi"}}], "dryRun": True}),
    ("POST", "/api/prompts/migrate", {"document": {"prompts": 5}}),
    ("GET", "/api/audit?limit=3"),
    ("GET", "/api/audit/1"),
    ("GET", "/api/audit/999"),
    ("POST", "/api/audit/verify"),
    ("POST", "/api/audit/1/replay"),
    ("GET", "/api/receipts/nosuch"),
    ("POST", "/api/memories/forget", {"conversationId": "c2", "dryRun": True}),
    ("POST", "/api/memories/forget", {"conversationId": "c2", "reason": "asked"}),
    ("POST", "/api/memories/forget", {}),
    ("DELETE", "/api/conversations/nosuch"),
    ("DELETE", "/api/conversations/long?userId=ann"),
    ("DELETE", "/healthz"),
    ("GET", "/api/nosuch"),
    ("GET", "/v1/models"),
    ("POST", "/v1/embeddings", {"input": "x"}),
]  # fmt: skip

#: The same routes where keys are needed: (role of the caller, method, path, body).
KEYED: list[tuple[Any, ...]] = [
    (None, "GET", "/api/conversations"),
    ("wrong", "GET", "/api/conversations"),
    ("viewer", "GET", "/api/conversations"),
    ("viewer", "POST", "/learning/knowledge", {"category": "domain", "key": "k", "value": "v"}),
    ("editor", "POST", "/learning/knowledge", {"category": "user_preference", "key": "k", "value": "v"}),
    ("editor", "POST", "/learning/knowledge", {"category": "domain", "key": "k", "value": "v", "userId": "bob"}),
    ("editor", "GET", "/api/audit"),
    ("editor", "PATCH", "/api/organizations/acme/settings", {"memory": {"longTermMemory": {"allowWrites": False}}}),
    ("owner", "GET", "/api/audit?limit=1"),
    ("editor", "POST", "/v1/chat/completions", {"model": "big", "messages": [{"role": "user", "content": "Hi"}]}),
    (None, "POST", "/v1/chat/completions", {"model": "big", "messages": [{"role": "user", "content": "Hi"}]}),
    (None, "POST", "/v1/messages", {"model": "big", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
]

#: The command line in one project directory, in order; `{tmp}` is a directory beside it.
COMMANDS = [
    "config --json",
    "config",
    "doctor",
    "doctor --json",
    "conversation import {tmp}/talk.json --conversation c1 --user ann",
    "conversation import {tmp}/talk.json --conversation c1 --user ann --json",
    "conversation import {tmp}/nosuch.json",
    "conversation list",
    "conversation list --json",
    "conversation show c1",
    "conversation show c1 --json --last 2",
    "conversation show nosuch",
    "conversation export c1",
    "conversation export c1 --format openai",
    "conversation session c1 --json",
    "conversation participants c1",
    "settle",
    "settle --json",
    "chat --conversation c1 --user ann < When does the ferry leave?",
    "chat --conversation c2 --json < Hello\n/show\n/quit",
    "turn list c1",
    "turn show c1 1",
    "turn show c1 1 --json",
    "turn replay c1 1",
    "turn feedback c1 1 --good",
    "memory search ferry --conversation c1 --user ann",
    "memory search ferry --conversation c1 --user ann --json",
    "memory search xylophone",
    "memory list c1",
    "memory list --user ann --json",
    "memory show c1",
    "memory show c1 --json",
    "memory stats",
    "memory budget --json",
    "memory analyze c1 --json",
    "memory forget --user zoe --dry-run",
    "memory forget",
    "memory receipt list",
    "knowledge put domain api.rate 100",
    "knowledge put domain api.rate 100 --json",
    "knowledge put gossip k v",
    "knowledge list",
    "knowledge list --json",
    "knowledge decay --as-of 2100-01-01",
    "persona list",
    "persona show helper --json",
    "persona show nosuch",
    "persona check",
    "prompt list",
    "prompt list --json",
    "prompt show persona/helper",
    "prompt show persona/helper --json",
    "prompt new greet --text Hi --json",
    "prompt new greet --text Hello",
    "prompt log greet",
    "prompt diff greet 1 2",
    "prompt test greet --text",
    "prompt test nosuch",
    "prompt branch greet warm",
    "prompt rollback greet --reason brief",
    "prompt lint",
    "prompt rate greet",
    "prompt drift",
    "prompt select greet --seed 7 --json",
    "prompt observe greet --sentiment 0.9",
    "prompt push",
    "prompt pull",
    "experience list",
    "experience test start --json",
    "organization show acme --json",
    "organization set acme --no-writes",
    "mind show c1",
    "optimizer status",
    "optimizer status --json",
    "optimizer history",
    "shadow report",
    "audit tail",
    "audit verify",
    "audit verify --json",
    "key list",
    "key new --role king",
    "eval {tmp}/talk.json",
    "conversation delete c1 --yes",
    "conversation list",
    "nosuch",
    "turn show",
]

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


async def record() -> dict[str, list[Recorded]]:
    """Return every answer of a server, by the surface that gave it."""
    return {
        "http": await record_http(),
        "keyed": await record_keyed(),
        "openai": await record_wire(chat_requests()),
        "responses": await record_wire(responses_requests()),
        "anthropic": await record_wire(anthropic_requests()),
        "mcp": await record_mcp(),
    }


def in_memory(**settings: Any) -> Any:
    """Return the configuration of a project in memory."""
    return build(
        arguments={"store.url": ":memory:"} | {name.replace("__", "."): each for name, each in settings.items()}
    )


@contextlib.asynccontextmanager
async def serving(config: Any, **parts: Any) -> Any:
    """Yield an open project and a client of its HTTP server, both in this process."""
    doubles = {"clock": FrozenClock(), "dice": LoadedDice()}
    # Without a worker, background jobs run where a request asks for them, and the answers do not depend on timing.
    async with Cuebook.open(config, **doubles, **parts, worker=False) as cue:
        transport = httpx.ASGITransport(create_app(cue))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            yield cue, client


async def send(client: httpx.AsyncClient, method: str, path: str, body: Any = None, headers: Any = None) -> Recorded:
    """Send one request and return it with its answer."""
    given: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    answer = await client.request(method, path, headers=headers, **given)
    kept = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    call_ = f"{method} {path}" + (f" {json.dumps(body)[:90]}" if isinstance(body, dict) else "")
    return {"call": call_, "status": answer.status_code, "headers": kept, "body": readable(answer.text)}


def readable(text: str) -> Any:
    """Return a JSON text as its value, a stream as its events, and any other text by its lines."""
    with contextlib.suppress(ValueError):
        return json.loads(text, object_hook=mask_timings)
    if text.startswith(("event:", "data:", ":")):
        return {"events": [read_event(block) for block in text.strip().split("\n\n")]}
    with contextlib.suppress(ValueError):
        return {"lines": [json.loads(line) for line in text.splitlines()]}
    return {"text": text.splitlines()}


def mask_timings(value: dict[str, Any]) -> dict[str, Any]:
    """Mask values that the real clock measured."""
    return {key: VARIES if key in TIMINGS else each for key, each in value.items()}


def read_event(block: str) -> Any:
    name, _, data = block.rpartition("data: ")
    with contextlib.suppress(ValueError):
        return {"event": name.strip(), "data": json.loads(data)}
    return {"event": name.strip(), "data": data}


async def record_http() -> list[Recorded]:
    model = ScriptedModel(default=Script(text="I will **remember** that.", size=9))
    async with serving(in_memory(), model=model) as (_, client):
        return [await send(client, *each) for each in HTTP]


async def record_keyed() -> list[Recorded]:
    upstream = ScriptedUpstream(default=completion("Hello."))
    async with serving(in_memory(), upstream=upstream) as (cue, client):
        tokens: dict[str | None, str] = {"wrong": "cue_wrong_key"}
        for role, user in (("owner", None), ("viewer", "ann"), ("editor", "ann")):
            tokens[role] = (await cue.keys.new(role, user=user)).token
        found = []
        for role, *request in KEYED:
            headers = {"authorization": f"Bearer {tokens[role]}"} if role else {}
            method, path, *body = request
            answer = await send(client, method, path, *(body or [None]), headers)
            found.append(answer | {"call": f"as {role}: {answer['call']}"})
        return found


# ---- the three wires


def chat_requests() -> Iterator[tuple[Any, ...]]:
    """Yield what the upstream answers, and the request a client sends."""
    path = "/c/trip/v1/chat/completions"
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is the ferry?"}]
    told = {"role": "assistant", "content": "At the pier."}
    second = [*first, told, {"role": "user", "content": "And when?"}]
    yield (
        completion("At the pier.", usage={"prompt_tokens": 9, "completion_tokens": 3}),
        path,
        {"model": "big", "messages": first},
    )
    yield streamed("At 9:45."), path, {"model": "big", "messages": second, "stream": True}
    called = [*second, {"role": "assistant", "content": None, "tool_calls": [call("call_1")]}, result("call_1")]
    yield completion(calls=[call("call_1")]), path, {"model": "big", "messages": second, "tools": TOOLS}
    yield completion("Found it."), path, {"model": "big", "messages": called, "tools": TOOLS}
    edited = [first[0], {"role": "user", "content": "Where is the bus?"}]
    yield completion("At the square."), path, {"model": "big", "messages": edited}
    plain = {"model": "big", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.2, "x_new": {"a": [1]}}
    yield completion("Hello."), "/v1/chat/completions", plain
    yield completion("Hi Ann."), "/u/ann/v1/chat/completions", plain | {"user": "zoe"}
    limited = HttpReply(
        status=429,
        headers={"content-type": "application/json", "retry-after": "7"},
        pieces=(b'{"error": {"message": "slow down"}}',),
    )
    yield limited, path, {"model": "big", "messages": [*first, told, {"role": "user", "content": "Once more?"}]}
    yield completion("x"), path, {"model": "big", "messages": []}
    yield completion("x"), path, {"model": "big"}
    yield completion("x"), path, b"{not json"
    yield completion("x"), path, {"model": "big", "messages": [{"role": "user", "content": 5}]}
    yield completion("one", "two"), "/c/two/v1/chat/completions", plain | {"n": 2}
    yield (
        completion("ok"),
        "/c/kept/v1/chat/completions",
        {"model": "big", "messages": [{"role": "user", "content": "Only this."}]},
        {"x-history": "server"},
    )
    yield (
        completion("ok"),
        "/c/kept/v1/chat/completions",
        {"model": "big", "messages": [{"role": "user", "content": "And this."}]},
        {"x-history": "server"},
    )


def responses_requests() -> Iterator[tuple[Any, ...]]:
    yield (
        completion("At the pier."),
        "/v1/responses",
        {"model": "big", "input": "Where is the ferry?", "instructions": "Be brief."},
    )
    yield streamed("At 9:45."), "/v1/responses", {"model": "big", "input": "When?", "stream": True}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Look it up."}]}]
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
    yield completion(calls=[call("call_1")]), "/v1/responses", {"model": "big", "input": items, "tools": [tool]}
    yield completion("x"), "/v1/responses", {"model": "big", "input": "x", "previous_response_id": "resp_nosuch"}
    yield completion("x"), "/v1/responses", {"model": "big"}
    yield completion("x"), "/v1/conversations", {"metadata": {"topic": "ferries"}}
    yield None, "GET /v1/conversations/conv_nosuch"
    yield None, "GET /v1/responses/resp_nosuch"


def anthropic_requests() -> Iterator[tuple[Any, ...]]:
    body = {
        "model": "claude",
        "max_tokens": 50,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Where is the ferry?"}],
    }
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn", "stop_sequence": None,
        "content": [{"type": "text", "text": "At the pier."}], "usage": {"input_tokens": 9, "output_tokens": 3},
    }  # fmt: skip
    whole = HttpReply(pieces=(json.dumps(answer).encode(),))
    yield whole, "/c/trip/v1/messages", body
    again = body | {
        "messages": [
            *body["messages"],
            {"role": "assistant", "content": "At the pier."},
            {"role": "user", "content": "When?"},
        ]
    }
    yield whole, "/c/trip/v1/messages", again
    yield (
        HttpReply(pieces=tuple(anthropic_stream()), headers={"content-type": "text/event-stream"}),
        "/c/trip/v1/messages",
        again | {"stream": True},
    )
    yield (
        HttpReply(status=529, pieces=(b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',)),
        "/c/trip/v1/messages",
        body,
    )
    yield (
        HttpReply(pieces=(b'{"input_tokens": 14}',)),
        "/v1/messages/count_tokens",
        {"model": "claude", "messages": body["messages"]},
    )
    yield whole, "/v1/messages", {"model": "claude", "messages": []}
    yield whole, "/v1/messages", b"{not json"


def anthropic_stream() -> Iterator[bytes]:
    start = {
        "type": "message_start",
        "message": {
            "id": "msg_2",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [],
            "usage": {"input_tokens": 9, "output_tokens": 1},
        },
    }
    events = [
        start,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "At 9:45."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ]
    for each in events:
        yield f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode()


async def record_wire(requests: Iterator[tuple[Any, ...]]) -> list[Recorded]:
    """Return each answer and what reached the upstream for it."""
    upstream = ScriptedUpstream(default=completion("Anything."))
    found = []
    async with serving(in_memory(upstream__responses="chat"), upstream=upstream) as (_, client):
        for answer, path, *rest in requests:
            seen = len(upstream.requests)
            upstream._answers = [answer] if answer is not None else []  # noqa: SLF001  # an answer that was not requested is dropped
            method, _, where = path.rpartition(" ")
            recorded = await send(client, method or "POST", where, *rest)
            sent = [{"path": each.path, "body": readable(each.body.decode())} for each in upstream.requests[seen:]]
            found.append(recorded | {"upstream": sent})
    return found


async def record_mcp() -> list[Recorded]:
    """Return what `/mcp` lists and answers."""
    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "snapshot", "version": "1"}}
    calls: list[tuple[str, Any]] = [
        ("initialize", version),
        ("tools/list", {}),
        ("resources/templates/list", {}),
        ("prompts/list", {}),
        ("tools/call", {"name": "remember", "arguments": {"text": "Ann is allergic to shrimp.", "key": "allergies"}}),
        ("tools/call", {"name": "recall", "arguments": {"query": "shrimp"}}),
        ("tools/call", {"name": "history", "arguments": {"conversation": "nosuch"}}),
        ("tools/call", {"name": "forget", "arguments": {}}),
        ("tools/call", {"name": "why", "arguments": {"conversation": "nosuch"}}),
        ("resources/list", {}),
    ]
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    async with serving(in_memory(), model=ScriptedModel(default="Fine.")) as (_, client):
        found = []
        for n, (method, params) in enumerate(calls, start=1):
            body = {"jsonrpc": "2.0", "id": n, "method": method, "params": params}
            found.append(await send(client, "POST", "/mcp", body, headers))
        return found


# ---- command line

#: Here the clock and the ids are real.
MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?"), "<time>"),
    (re.compile(r"\b\d{10}\.\d+\b"), "0"),  # Unix seconds, a number in JSON
    (re.compile(r"\b[0-9a-f]{10,}\b"), "<hex>"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)\b"), "<seconds>"),
    (re.compile(r"[█▏▎▍▌▋▊▉]+ *"), "<bar> "),
    (re.compile(r"\b\d+(?:\.\d+)? [GM]B free"), "<size> free"),
    (re.compile(r"Python \d\S*|SQLite \d\S*"), "<version>"),
]  # fmt: skip


def record_commands(folder: Path) -> list[Recorded]:
    """Return what each command prints in a new project below `folder`."""
    project, beside = folder / "project", folder / "beside"
    beside.mkdir()
    (beside / "talk.json").write_text(
        json.dumps({"posts": [each | {"timestamp": "2024-05-01T10:00:00Z"} for each in TALK + MORE]})
    )
    given = {name: value for name, value in os.environ.items() if name.startswith("CUEBOOK_")}
    for name in given:
        del os.environ[name]
    os.environ["COLUMNS"] = "120"
    found = [run_command("init", str(project), folder=folder)]
    for each in COMMANDS:
        line, _, typed = each.partition(" < ")
        arguments = [word.replace("{tmp}", str(beside)) for word in line.split()]
        found.append(run_command("-C", str(project), *arguments, folder=folder, typed=typed))
    os.environ.update(given)
    return found


def run_command(*arguments: str, folder: Path, typed: str = "") -> Recorded:
    """Run one command in this process and return its output, with times and ids masked."""
    out, err, terminal = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(typed)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command_line.run(list(arguments))
    finally:
        sys.stdin = terminal
    shown = [each for each in arguments if each not in ("-C", str(folder / "project"))]
    return {
        "call": masked("cuebook " + " ".join(shown), folder),
        "code": code,
        "out": readable(masked(out.getvalue(), folder)),
        "err": masked(err.getvalue(), folder).splitlines(),
    }


def masked(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "<folder>").replace(sys.prefix, "<prefix>")
    for pattern, name in MASKS:
        text = pattern.sub(name, text)
    return text
