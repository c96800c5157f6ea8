"""Tests of OpenTelemetry traces, with the SDK's exporter in memory: spans, their parents and attributes, no content."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from upstream import Upstream

from conftest import Live, config
from cuebook import Cuebook
from cuebook.config import MemoryConfig, TracesConfig
from cuebook.testing.doubles import ScriptedModel

EXPORTER = InMemorySpanExporter()
SAID = "My sister Ida lives in Vlieland"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module", autouse=True)
def _provider() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture(autouse=True)
def _empty() -> None:
    EXPORTER.clear()


@pytest.fixture
def live(upstream: Upstream, request: pytest.FixtureRequest) -> Iterator[Live]:
    base = config(upstream=upstream.url)
    traces = TracesConfig(exporter="global", content=getattr(request, "param", False))
    settings = replace(base.settings, traces=traces, memory=MemoryConfig(user=True))
    with ExitStack() as stack:
        server = Live(Cuebook.open(replace(base, settings=settings), model=ScriptedModel(default="Hm."), worker=False))
        stack.callback(server.stop)
        yield server


def spans(name: str) -> list[ReadableSpan]:
    return [each for each in EXPORTER.get_finished_spans() if each.name == name]


def named(name: str) -> ReadableSpan:
    until = time.monotonic() + 60
    while not spans(name) and time.monotonic() < until:
        time.sleep(0.01)  # a request's span ends after its answer
    [span] = spans(name)
    return span


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def ask(live: Live, **more: Any) -> httpx.Response:
    body = {"model": "big", "messages": [{"role": "user", "content": SAID}], "user": "ann"} | more
    return httpx.post(f"{live.url}/v1/chat/completions", json=body, headers={"traceparent": PARENT}, timeout=60)


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_has_spans_for_its_search_and_its_model_call(live: Live, upstream: Upstream, stream: bool) -> None:
    assert ask(live, stream=stream).status_code == 200
    server, turn = named("POST /v1/chat/completions"), named("invoke_agent cuebook")
    search, call = named("search_memory"), named("chat big")
    assert server.parent is not None
    assert f"{server.parent.trace_id:032x}-{server.parent.span_id:016x}" in PARENT
    assert parent_of(turn) == server.context.span_id
    assert {parent_of(each) for each in (search, call)} == {turn.context.span_id}
    assert (server.kind.name, turn.kind.name, call.kind.name) == ("SERVER", "INTERNAL", "CLIENT")
    assert dict(server.attributes or {}) == {
        "http.request.method": "POST", "http.route": "/v1/chat/completions", "http.response.status_code": 200,
    }  # fmt: skip
    attributes = dict(call.attributes or {})
    assert attributes.pop("gen_ai.response.time_to_first_chunk", 0.0) >= 0.0
    host, port = upstream.url.removeprefix("http://").removesuffix("/v1").split(":")
    conversation = (turn.attributes or {})["gen_ai.conversation.id"]
    assert attributes == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "big",
        "gen_ai.conversation.id": conversation, "server.address": host, "server.port": int(port),
        "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5 if stream else 3,
        "gen_ai.response.model": "scripted", "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
    }  # fmt: skip
    assert (turn.attributes or {})["gen_ai.operation.name"] == "invoke_agent"
    store = str((search.attributes or {})["gen_ai.memory.store.id"])
    assert store.startswith("user:")
    assert "ann" not in store
    assert not [each.name for each in EXPORTER.get_finished_spans() if "Ida" in each.to_json()]


@pytest.mark.parametrize("live", [True], indirect=True)
def test_content_is_in_spans_only_if_asked(live: Live) -> None:
    ask(live, messages=[{"role": "user", "content": f"{SAID}. My password is hunter2"}])
    call, search = named("chat big").attributes or {}, named("search_memory").attributes or {}
    assert SAID in str(call["gen_ai.input.messages"])
    assert "You said" in str(call["gen_ai.output.messages"])
    assert SAID in str(search["gen_ai.memory.query.text"])
    assert not [each.name for each in EXPORTER.get_finished_spans() if "hunter2" in each.to_json()]


def test_a_failed_call_has_its_error_type(live: Live) -> None:
    assert ask(live, model="limited").status_code == 429
    call = named("chat limited")
    assert (call.status.status_code.name, (call.attributes or {})["error.type"]) == ("ERROR", "upstream")
    assert not call.events  # an exception's message may have content


def test_memory_operations_have_spans(live: Live) -> None:
    with httpx.Client(base_url=live.url, timeout=60) as client:
        stored = client.post("/api/memories", json={"text": SAID, "userId": "ann"}).json()
        name = stored["id"]
        client.patch(f"/api/memories/{name}", json={"text": f"{SAID}.", "userId": "ann"}).raise_for_status()
        client.post("/api/memories/search", json={"query": "sister", "userId": "ann"}).raise_for_status()
        client.post("/api/memories/forget", json={"memoryIds": [name]}).raise_for_status()
    operations = ("upsert_memory", "update_memory", "search_memory", "delete_memory")
    found = [named(each).attributes or {} for each in operations]
    assert [each["gen_ai.operation.name"] for each in found] == list(operations)
    assert [each.get("gen_ai.memory.record.id") for each in found] == [name, name, None, name]
    assert found[2]["gen_ai.memory.record.count"] == 1
    assert all("gen_ai.memory.store.id" in each for each in found)


def test_a_background_job_is_the_parent_of_its_model_calls(live: Live) -> None:
    for number in range(3):
        ask(live, messages=[{"role": "user", "content": f"{SAID} in house {number}. " * 200}])
    EXPORTER.clear()
    live.ask_cue(live.cue.settle)
    jobs = {each.context.span_id: each for each in EXPORTER.get_finished_spans() if each.name.startswith("job ")}
    assert jobs
    assert all(each.parent is None for each in jobs.values())


def test_nothing_is_traced_by_default(upstream: Upstream) -> None:
    server = Live(Cuebook.open(config(upstream=upstream.url), worker=False))
    try:
        assert ask(server).status_code == 200
    finally:
        server.stop()
    assert not EXPORTER.get_finished_spans()
