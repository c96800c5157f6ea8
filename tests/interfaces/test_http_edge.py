"""Tests of request validation: hosts, origins, bodies, queries, paths, and the status of every error class."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_app import app_of

from cuebook import Cuebook
from cuebook.errors import (
    BackendError,
    Busy,
    Conflict,
    CuebookError,
    Denied,
    InvalidInput,
    KeyReused,
    LeaseLost,
    NotFound,
    StoreFull,
    TooLarge,
    Unproven,
    UpstreamError,
)
from cuebook.server.app import create_app
from cuebook.server.error_responses import failure_of
from cuebook.server.json_checks import DEPTH, check_json

CHAT = {"message": "Hi", "conversationId": "c1"}


async def nothing_stored(client: httpx.AsyncClient) -> bool:
    return (await client.get("/api/conversations")).json() == {"items": []}


def problem(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    fields = answer.json()
    assert {"type", "title", "status", "detail"} <= set(fields)
    assert fields["status"] == answer.status_code
    return fields


# ---- hosts and origins


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1", None, 200),
        ("127.0.0.1:8760", None, 200),
        ("localhost:8760", None, 200),
        ("LOCALHOST:8760", None, 200),
        ("[::1]:8760", None, 200),
        ("[::1]", None, 200),
        ("127.0.0.1:8760", "http://127.0.0.1:8760", 200),
        ("localhost:8760", "http://localhost:8760", 200),
        ("evil.example", None, 403),
        ("127.0.0.1.evil.example:8760", None, 403),
        ("localhost.:8760", None, 403),
        ("127.0.0.2:8760", None, 403),
        ("localhost:x", None, 403),
        ("", None, 403),
        ("::1", None, 403),
        ("localhost:8760", "http://evil.example", 403),
        ("localhost:8760", "http://localhost:3000", 403),
        ("localhost:8760", "http://127.0.0.1:8760", 403),
        ("localhost:8760", "null", 403),
        ("localhost:8760", "", 403),
        ("localhost:8760", "http://localhost:8760.evil.example", 403),
        ("localhost:8760", "file://localhost:8760/x", 403),
    ],
)
async def test_host_and_origin_are_checked(
    client: httpx.AsyncClient, host: str, origin: str | None, status: int
) -> None:
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    for path, form in (("/healthz", "detail"), ("/v1/models", "error")):
        answer = await client.get(path, headers=headers)
        assert answer.status_code == status
        if status == 403:
            assert form in answer.json()
    refused = await client.post("/api/chat", json=CHAT, headers=headers)
    assert refused.status_code == status
    assert await nothing_stored(client) == (status == 403)


async def test_only_the_bound_port_is_accepted(cue: Cuebook) -> None:
    transport = httpx.ASGITransport(app_of(cue, host="localhost", port=8760))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8760") as client:
        assert (await client.get("/healthz")).status_code == 200
        for host in ("localhost", "localhost:80", "localhost:8761"):
            assert (await client.get("/healthz", headers={"Host": host})).status_code == 403


# ---- bodies


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"NaN", "body"),
        (b'{"message": "\xff"}', "body"),
        (b'\xef\xbb\xbf{"message": "Hi"}', "body"),
        (b'{"message": "a\x00b"}', "body"),
        (b'{"message": "\\udc00\\ud800"}', "message"),
        (b'{"message": "\\ud83d\\ud83d\\ude00"}', "message"),
        (b'{"message": "Hi", "memoryControl": {"a": ["b", {"c": "\\u0000"}]}}', "memoryControl.a[1].c"),
        (b'{"message": "Hi", "memoryControl": {"k\\u0000": 1}}', "memoryControl.k\\x00"),
        (b'{"message": "Hi", "attachments": [{"type": "plan", "content": "x", "colour": 1}]}', "attachments[0].colour"),
        (b'{"message": ""}', "message"),
        (b'{"message": "Hi", "conversationId": ""}', "conversationId"),
        (b'{"message": "Hi", "tokenBudget": 0}', "tokenBudget"),
        (b'{"message": "Hi", "tokenBudget": 1e400}', "tokenBudget"),
        (b'{"message": "Hi", "tokenBudget": 99999999999999999999999}', "tokenBudget"),
        (b'{"message": "Hi", "personaId": "nobody"}', None),
    ],
)
async def test_invalid_chat_body_error_names_the_field(
    client: httpx.AsyncClient, body: bytes, where: str | None
) -> None:
    answer = await client.post("/api/chat", content=body)
    fields = problem(answer)
    assert answer.status_code in ((400,) if where else (400, 404))
    if where:
        assert fields["where"] == where, fields
        assert where.split("\\")[0] in fields["detail"]
    assert await nothing_stored(client)


async def test_unusual_valid_unicode_is_accepted(client: httpx.AsyncClient) -> None:
    for text in (
        "\u202egnp.exe",
        "\u200b\u200d",
        "\ufdd0",
        "\U0010ffff",
        "👩\u200d🚀",
        "\\u0000 in words",
        "\\ud800",
        "\x1f",
    ):
        for body in (json.dumps({"message": text}), json.dumps({"message": text}, ensure_ascii=False)):
            answer = await client.post("/api/chat", content=body.encode())
            assert answer.status_code == 200, text
            name = answer.json()["conversationId"]
            assert (await client.get(f"/api/conversations/{name}/posts")).json()["items"][0]["message"] == text


def nested(depth: int) -> bytes:
    """Return a body with this nesting depth."""
    extra = b'{"a": ' + b"[" * (depth - 6) + b"]" * (depth - 6) + b"}"
    attachment = b'{"type": "text", "content": "x", "extra": ' + extra + b"}"
    return b'{"posts": [{"sendFrom": "user", "message": "Hi", "attachments": [' + attachment + b"]}]}"


async def test_nesting_depth_is_limited(client: httpx.AsyncClient) -> None:
    posts = "/api/conversations/c/posts"
    assert (await client.post(posts, content=nested(DEPTH))).status_code == 201
    for depth in (DEPTH + 1, 5_000, 1_000_000):
        assert (await client.post(posts, content=nested(depth))).status_code == 400
    brackets = json.dumps({"message": '[{"' * 500 + "\\"}).encode()
    assert (await client.post("/api/chat", content=brackets)).status_code == 200


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=30,
)


@given(JSON, st.booleans(), st.integers(0, 100))
def test_validator_accepts_json_up_to_the_maximum_depth(value: Any, plain: bool, more: int) -> None:
    def depth(each: Any) -> int:
        if isinstance(each, list):
            return 1 + max(map(depth, each), default=0)
        if isinstance(each, dict):
            return 1 + max(map(depth, each.values()), default=0)
        return 0

    for _ in range(more):
        value = [value, {}] if more % 2 else {"]": value}
    body = json.dumps(value, ensure_ascii=plain).encode()
    if depth(value) <= DEPTH:
        check_json(body)
    else:
        with pytest.raises(InvalidInput, match="deeper"):
            check_json(body)


@given(st.text(max_size=20))
def test_validator_rejects_nul_and_lone_surrogates(text: str) -> None:
    bad = "\x00" in text or any("\ud800" <= each <= "\udfff" for each in text)
    for wanted in (bad, True):
        body = json.dumps({"a": [text if wanted is bad else text + "\ud800"]}).encode()
        if wanted:
            with pytest.raises(InvalidInput) as caught:
                check_json(body)
            assert caught.value.where == "a[0]"
        else:
            check_json(body)


@given(
    st.lists(
        st.sampled_from([r"\\\\", r"\ud83d", r"\uDC00", r"\"", "ud83d", "a", r"\n", r"\u0000", "[", "{"]), max_size=8
    )
)
def test_validator_parses_escape_sequences(pieces: list[str]) -> None:
    body = '["' + "".join(pieces) + '"]'
    text = json.loads(body)[0]
    if "\x00" in text or any("\ud800" <= each <= "\udfff" for each in text):
        with pytest.raises(InvalidInput):
            check_json(body.encode())
    else:
        check_json(body.encode())


async def test_post_over_two_megabytes_is_rejected(client: httpx.AsyncClient) -> None:
    limit = 2 * 1024 * 1024
    words = ("word " * (limit // 5 + 1))[:limit]
    answer = await client.post("/api/conversations/c1/posts", json={"posts": [{"sendFrom": "ann", "message": words}]})
    assert answer.status_code == 201, answer.text
    larger = {"posts": [{"sendFrom": "ann", "message": "Hi"}, {"sendFrom": "ann", "message": words + "!"}]}
    answer = await client.post("/api/conversations/c2/posts", json=larger)
    assert (answer.status_code, problem(answer)["where"]) == (413, "posts[1].message")
    assert (await client.get("/api/conversations/c2")).status_code == 404


@pytest.mark.parametrize(
    ("posts", "where"),
    [
        ([{"sendFrom": "ann", "message": "x"}] * 20_001, "posts"),
        (
            [{"sendFrom": "ann", "message": "x", "attachments": [{"type": "text", "content": ""}] * 5_001}],
            "attachments",
        ),
    ],
)
async def test_too_many_posts_or_attachments_are_rejected(
    client: httpx.AsyncClient, posts: list[Any], where: str
) -> None:
    answer = await client.post("/api/conversations/c1/posts", json={"posts": posts})
    assert (answer.status_code, problem(answer)["where"]) == (413, where)
    messages = [{"role": "user", "content": post["message"], **post} for post in posts]
    answer = await client.post("/v1/chat/completions", json={"messages": messages})
    assert (answer.status_code, answer.json()["error"]["param"]) == (413, where)
    assert await nothing_stored(client)


async def test_body_over_the_limit_is_rejected_before_it_is_read(client: httpx.AsyncClient) -> None:
    limit = 8 * 1024 * 1024
    read = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal read
        while read < 64 * 1024 * 1024:
            read += 65536
            yield b" " * 65536

    answer = await client.post("/api/chat", content=b" " * (limit + 1))
    assert (answer.status_code, problem(answer)["type"]) == (413, "urn:cuebook:problem:too-large")
    assert (await client.post("/api/chat", content=pieces())).status_code == 413
    assert read <= limit + 2 * 65536
    assert (
        await client.post("/api/chat", content=b" " * (limit - 30) + json.dumps(CHAT).encode()[:30])
    ).status_code == 400
    wire = await client.post("/v1/chat/completions", content=b'{"messages": [' + b" " * limit + b"]}")
    assert (wire.status_code, wire.json()["error"]["message"][:8]) == (400, "messages")
    wire = await client.post("/v1/chat/completions", content=b" " * (64 * 1024 * 1024 + 1))
    assert (wire.status_code, wire.json()["error"]["code"]) == (413, "too_large")
    assert await nothing_stored(client)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"posts": []}, "posts"),
        ({}, "posts"),
        ({"posts": [{"sendFrom": "a", "message": "x"}], "messages": []}, "posts"),
        ({"posts": [{"sendFrom": "a"}]}, "posts[0].message"),
        ({"posts": [{"sendFrom": "a", "message": ""}]}, "posts[0].message"),
        ({"posts": [{"sendFrom": "", "message": "x"}]}, "posts[0].sendFrom"),
        ({"posts": [{"message": "x"}]}, "posts[0].sendFrom"),
        ({"posts": [{"sendFrom": "a", "message": "x", "parts": []}]}, "posts[0].parts"),
        ({"posts": [{"sendFrom": "a", "message": "x", "timestamp": "yesterday"}]}, "posts[0].timestamp"),
        (
            {"posts": [{"sendFrom": "a", "message": "x", "timestamp": "0001-01-01T00:00:00+14:00"}]},
            "posts[0].timestamp",
        ),
        ({"posts": [{"sendFrom": "a", "message": "x", "timestamp": 5}]}, "posts[0].timestamp"),
        (
            {"posts": [{"sendFrom": "a", "message": "x"}, {"sendFrom": "a", "message": "y", "parent": "q"}]},
            "posts[1].parent",
        ),
        (
            {"posts": [{"sendFrom": "a", "message": "x", "attachments": [{"type": "plan"}]}]},
            "posts[0].attachments[0].content",
        ),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x", "timestamp": "soon"}]}, "messages[0].timestamp"),
        ({"messages": [{"role": "user", "content": "x", "id": 7}]}, "messages[0].id"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
    ],
)
async def test_invalid_post_error_names_the_field(client: httpx.AsyncClient, body: dict[str, Any], where: str) -> None:
    answer = await client.post("/api/conversations/c1/posts", json=body)
    assert (answer.status_code, problem(answer).get("where")) == (400, where), answer.text
    assert await nothing_stored(client)


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/api/memories/search", {"query": "x", "scopes": ["galaxy"]}, "scopes"),
        ("/api/settle", {"timeout": -1}, "timeout"),
        ("/api/settle", {"timeout": 1e9}, "timeout"),
    ],
)
async def test_invalid_search_and_settle_bodies_are_rejected(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], where: str
) -> None:
    answer = await client.post(path, json=body)
    assert (answer.status_code, problem(answer)["where"]) == (400, where)


# ---- queries and paths


async def test_invented_cursors_cause_no_server_error(client: httpx.AsyncClient) -> None:
    for cursor in ("x", "-1", "9" * 40, "[]"):
        answer = await client.get("/api/conversations", params={"cursor": cursor})
        assert answer.status_code in (200, 400), (cursor, answer.text)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/api", 404),
        ("GET", "/api/conversations/c1/nothing", 404),
        ("GET", "/c/x", 404),
        ("GET", "/api/conversations/nobody", 404),
        ("GET", "/api/chat", 405),
        ("PATCH", "/api/conversations/c1", 405),
        ("BREW", "/api/chat", 405),
        ("GET", "/v1", 404),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/models/big", 404),
        ("GET", "/c/x/v1/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/u/ann/v1/models", 405),
        ("GET", "/v1/conversations", 405),
        ("PUT", "/v1/responses/r", 405),
        ("GET", "/v1/%2e%2e/admin", 400),
        ("GET", "/v1/..%2f..%2fadmin", 400),
        ("GET", "/v1/a%2F%2e%2e", 400),
        ("GET", "/v1/..%5cadmin", 400),
        ("GET", "/c/x/v1/..~admin", 400),
        ("GET", "/v1/..a", 404),
    ],
)
async def test_unknown_paths_and_methods_have_a_standard_error(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == status, answer.text
    if "/v1" in path:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    else:
        problem(answer)
    if status == 405:
        assert answer.headers["allow"]


# ---- error classes


ERRORS: list[tuple[CuebookError, int, str | None]] = [
    (InvalidInput("no"), 400, None),
    (TooLarge("no"), 413, None),
    (KeyReused("no"), 422, None),
    (Unproven("no"), 401, None),
    (Denied("no"), 403, None),
    (NotFound("no"), 404, None),
    (Conflict("no"), 409, None),
    (LeaseLost(), 409, None),
    (Busy("no", retry_after=2.5), 429, "3"),
    (StoreFull("no"), 507, None),
    (UpstreamError("no"), 502, None),
    (UpstreamError("no", status=504), 504, None),
    (UpstreamError("no", status=429), 429, None),
    (UpstreamError("no", status=302), 502, None),
    (BackendError("no", retryable=True), 503, "1"),
    (BackendError("no"), 500, None),
    (CuebookError("no"), 500, None),
]


async def test_each_error_class_has_its_status(client: httpx.AsyncClient, cue: Cuebook) -> None:
    class Broken:
        async def list(self, **_: object) -> None:
            raise error

    parts = {"config": cue.config, "services": cue.services, "keys": cue.keys, "personas": []}
    failing = type("Failing", (), {"conversations": Broken(), **parts})()
    failing.upstream_url = None
    transport = httpx.ASGITransport(create_app(failing))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as broken:
        for error, status, retry_after in ERRORS:
            answer = await broken.get("/api/conversations")
            fields = problem(answer)
            assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after), repr(error)
            assert fields["detail"] == str(error)
            assert "Traceback" not in answer.text
            wire = failure_of(error).openai().error
            assert (wire.message, bool(wire.code)) == (str(error), True)


async def test_unexpected_error_hides_its_details(cue: Cuebook, caplog: pytest.LogCaptureFixture) -> None:
    failing = type("Failing", (), {"config": cue.config, "services": cue.services})()
    transport = httpx.ASGITransport(create_app(failing))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as broken:
        answer = await broken.get("/api/conversations")
    assert answer.status_code == 500
    assert "attribute" not in answer.text
    assert "attribute" in caplog.text


async def test_header_values_must_be_utf8(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/conversations", headers={"X-User-Id": b"\xff\xfe"})
    assert (answer.status_code, problem(answer)["where"]) == (400, "x-user-id")
    assert (await client.get("/api/conversations", headers={"X-User-Id": "ünï".encode()})).status_code == 200


async def test_wrong_type_error_names_the_expected_type(client: httpx.AsyncClient) -> None:
    search, whole = "/api/memories/search", "expected a whole number from 1 to 200, got"
    for answer, where, detail in (
        (await client.post(search, json={"query": "x", "limit": "many"}), "limit", f"{whole} 'many'"),
        (await client.post(search, json={"query": 7}), "query", "expected a string, got 7"),
        (await client.post(search, json=[]), "body", "expected an object, got a list"),
        (await client.get("/api/memories?limit=many"), "limit", "expected a whole number, got text"),
        (await client.get("/api/memories?ended=maybe"), "ended", "expected true or false, got text"),
        (
            await client.get("/api/conversations/c/rounds?includeFailed=1.5"),
            "includeFailed",
            "expected true or false, got text",
        ),
        (await client.get("/page/conversations/c/turns/1?with=0"), "with", "expected a whole number >= 1"),
    ):
        problem = answer.json()
        assert (answer.status_code, problem["where"], problem["detail"]) == (400, where, f"{where}: {detail}")


async def test_invalid_value_error_lists_the_allowed_values(client: httpx.AsyncClient) -> None:
    """The error lists the allowed values of an enum, and names the key of a mapping's value."""
    written = {"slug": "x", "sections": {"a": "Be kind."}}
    assert (await client.post("/api/prompts", json=written)).status_code == 201
    select, observe = "/api/prompts/x/select", "/api/prompts/x/observations"
    for path, body, where, detail in (
        (select, {"strategy": "guess"}, "strategy", "unknown value 'guess'. Available: epsilon_greedy, thompson."),
        (
            observe,
            {"sentiment": 1, "taskOutcome": "meh"},
            "taskOutcome",
            "unknown value 'meh'. Available: failure, partial, success",
        ),
        (
            "/api/prompts",
            written | {"engine": "jinja"},
            "engine",
            "unknown value 'jinja'. Available: braces, dollar, none",
        ),
        ("/api/prompts", {"slug": "x", "sections": {"a": "b", "c": 5}}, "sections.c", "expected a string, got 5"),
        (select, {"signals": {"a": 1, "task": "x"}}, "signals.task", "expected a number or true or false, got 'x'"),
        ("/api/prompts/migrate", {"document": 5}, "document", "expected an object or a list of them, got 5"),
    ):
        problem = (answer := await client.post(path, json=body)).json()
        assert (answer.status_code, problem["where"]) == (400, where)
        assert problem["detail"].startswith(f"{where}: {detail}")


async def test_every_list_is_paginated(client: httpx.AsyncClient) -> None:
    for number in (1, 2):
        assert (await client.post("/api/prompts", json={"slug": f"p{number}", "sections": {"a": "x"}})).is_success
    for path in ("/api/audit", "/api/prompts"):
        whole = (await client.get(path)).json()["items"]
        first = (await client.get(path, params={"limit": 1})).json()
        rest = (await client.get(path, params={"limit": 200, "cursor": first["next"]})).json()
        assert (first["items"] + rest["items"], "next" in rest) == (whole, False), path
    for path in ("/api/experiences", "/api/personas", "/learning/optimizer/history"):
        assert (await client.get(path, params={"limit": 1})).status_code == 200
        assert problem(await client.get(path, params={"cursor": "x"}))["where"] == "cursor"


async def test_conversation_list_contains_the_heads(client: httpx.AsyncClient) -> None:
    posts = [{"id": "p1", "sendFrom": "ann", "message": "Hello"}, {"id": "p2", "sendFrom": "ann", "message": "again"}]
    assert (await client.post("/api/conversations/c1/posts", json={"posts": posts})).status_code == 201
    (listed,) = (await client.get("/api/conversations")).json()["items"]
    assert listed == (await client.get("/api/conversations/c1")).json()
    assert listed["head"] == "p2"


async def test_long_ids_are_rejected_and_answers_are_not_cached(client: httpx.AsyncClient) -> None:
    long = "x" * 1_001
    posts = {"posts": [{"sendFrom": "ann", "message": "Hi"}]}
    for path, body in (
        ("/api/chat", {"message": "Hi", "conversationId": long}),
        ("/api/chat", {"message": "Hi", "conversationId": "c", "userId": long}),
        (f"/api/conversations/{long}/posts", posts),
        ("/api/conversations/c/posts", posts | {"userId": long}),
        ("/api/conversations/c/posts", {"posts": [{"sendFrom": long, "message": "Hi"}]}),
        ("/api/conversations/c/posts", {"posts": [{"sendFrom": "ann", "id": long, "message": "Hi"}]}),
        ("/v1/chat/completions", {"model": "m", "user": long, "messages": [{"role": "user", "content": "Hi"}]}),
    ):
        refused = await client.post(path, json=body)
        assert (refused.status_code, "the limit of 1,000" in refused.text) == (400, True), body
    answer = await client.get("/api/conversations")
    assert answer.json()["items"] == []
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        ("\x00", 400, "a NUL character"),
        ("\ud800", 400, "a lone surrogate"),
        ([{"type": "text", "text": "a"}] * 5_001, 413, "5,001 exceed the limit"),
        ("\\", 200, ""),
    ],
)
async def test_a_large_body_is_checked_like_a_small_one(content: Any, status: int, reason: str) -> None:
    messages = [{"role": "user", "content": "x" * 1_000_000}, {"role": "user", "content": content}]
    async with Cuebook.open(worker=False) as cue, cue.services.offload.child_process():
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.post("/v1/chat/completions", content=json.dumps({"messages": messages}))
    assert answer.status_code == status
    assert reason in answer.text
