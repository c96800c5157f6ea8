"""The budget of a request: the context window of its model, and the answer that the request asks for."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import structs
from turn_helpers import NAME, bot, cue_on, user

from cuebook import Ask
from cuebook.app.cuebook import Cuebook, Head, RelayCall
from cuebook.app.turns.explanation import told_of
from cuebook.engine.core.context_limits import EXCESS
from cuebook.errors import UpstreamError
from cuebook.providers.model_list import ModelList, read_contexts
from cuebook.records.answer import to_wire
from cuebook.testing import ScriptedModel
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import completion, output_text, response


async def send(cue: Cuebook, messages: list[dict[str, Any]], *, model: str, **fields: Any) -> tuple[int, bytes]:
    """Send a chat completion; return the answer's status and body."""
    body = json.dumps({"model": model, "messages": messages, **fields}).encode()
    pieces = [piece async for piece in cue.relay(RelayCall(body=body, headers={}, conversation=NAME))]
    [head] = [piece for piece in pieces if isinstance(piece, Head)]
    return head.status, b"".join(piece for piece in pieces if isinstance(piece, bytes))


async def window_of(cue: Cuebook, n: int = -1) -> dict[str, Any]:
    """Return the stored metadata of a turn's window, by default of the newest turn."""
    turns = (await cue.turns.list(NAME)).items
    numbers = sorted(each.turn for each in turns)
    shown = to_wire(await cue.turns.show(NAME, numbers[n]))
    return dict(shown["metadata"]["window"]) | {"lines": list(told_of(shown))}


@pytest.mark.parametrize(
    ("model", "fields", "budget", "source"),
    [
        ("claude-sonnet-4-5", {}, 200_000 - 4_096, "table"),
        ("openai/gpt-4o", {"max_tokens": 1_000}, 127_000, "table"),
        ("gpt-5-mini", {"max_completion_tokens": 100_000}, 272_000, "table"),  # the answer has its own limit
        ("gpt-4", {}, 8_192 - 2_048, "table"),  # a small model keeps most of its window for the prompt
        ("gpt-4", {"max_tokens": 9_000}, 1_024, "table"),
        ("nobodys-model", {}, 128_000 - 4_096, "default"),
    ],
)
async def test_the_budget_is_that_of_the_requested_model(model, fields, budget, source) -> None:
    async with cue_on(upstream=ScriptedUpstream(completion("Hi."))) as cue:
        assert (await send(cue, [user("hi")], model=model, **fields))[0] == 200
        window = await window_of(cue)
        shown = await cue.memory.budget(NAME)
    assert (window["budget"], window["context"]["source"]) == (budget, source)
    assert (shown.model, shown.source) == (model, source)
    assert budget - 1_500 <= shown.budget < budget or budget * 0.7 < shown.budget < budget
    assert window["lines"][0].startswith(f"context window of {model}: {window['context']['tokens']:,} tokens")


async def test_a_set_context_applies_to_every_model() -> None:
    async with cue_on(upstream=ScriptedUpstream(completion("Hi.")), budget__context=20_000) as cue:
        await send(cue, [user("hi")], model="gpt-4", max_tokens=500)
        window = await window_of(cue)
    assert (window["budget"], window["context"]["source"]) == (19_500, "setting")


async def test_a_turn_of_another_budget_replays_identically() -> None:
    history = [user(f"{number} " + "word " * 3_000) for number in range(4)]
    async with cue_on(upstream=ScriptedUpstream(completion("Hi."))) as cue:
        await send(cue, history, model="gpt-4")
        assert (await window_of(cue))["dropped"]
        assert (await cue.turns.replay(NAME, 1, as_of=1)).counterfactual.reproduced


# ---- Errors that teach the context window ---------------------------------------------------------------------------


def too_long(limit: int, length: int) -> HttpReply:
    """Return OpenAI's error for a prompt that is too long."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {length} tokens."
    )
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return HttpReply(pieces=(json.dumps({"error": error}).encode(),), status=400)


def history(words: int = 1_000) -> list[dict[str, Any]]:
    """Return a history of nine messages."""
    texts = [f"{number} " + "word " * words for number in range(9)]
    return [{"role": "assistant" if number % 2 else "user", "content": text} for number, text in enumerate(texts)]


async def test_a_prompt_that_is_too_long_is_retried_once_with_a_window_that_fits() -> None:
    upstream = ScriptedUpstream(too_long(4_096, 9_900), completion("Hi."), completion("Again."))
    async with cue_on(upstream=upstream) as cue:
        status, body = await send(cue, history(), model="my-model", max_tokens=500)
        assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "Hi.")
        assert len(upstream.requests) == 2
        assert upstream.messages(0) == history()
        assert upstream.messages(1)[-1] == history()[-1]
        assert len(upstream.messages(1)) < 6
        window = await window_of(cue)
        assert (window["context"]["source"], window["dropped"][0]["kind"]) == ("error", "post")
        shown = await cue.turns.show(NAME, 1)
        assert (len(shown.steps), shown.replay, shown.window.tokens) == (1, "identical", window["tokens"])
        await send(cue, [*history(), {"role": "assistant", "content": "Hi."}, user("And?")], model="my-model")
        assert len(upstream.requests) == 3, "the limit is known now"
        assert (await window_of(cue))["budget"] < 4_096


@pytest.mark.parametrize("stream", [True, False])
async def test_a_second_error_is_returned_as_the_provider_sent_it(stream: bool) -> None:
    upstream = ScriptedUpstream(too_long(4_096, 9_900), too_long(2_048, 4_000))
    async with cue_on(upstream=upstream) as cue:
        answer = await send(cue, history(), model="my-model", stream=stream)
        assert (await cue.turns.show(NAME, 1)).state == "failed"
    assert answer == (400, b"".join(too_long(2_048, 4_000).pieces))
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("error", "messages"),
    [
        (HttpReply(pieces=(b'{"error":{"message":"Invalid temperature."}}',), status=400), history()),
        (HttpReply(pieces=(b'{"error":{"code":"context_length_exceeded"}}',), status=400), history()),  # names no limit
    ],
)
async def test_other_errors_are_not_retried(error: HttpReply, messages: list[dict[str, Any]]) -> None:
    upstream = ScriptedUpstream(error)
    async with cue_on(upstream=upstream) as cue:
        assert await send(cue, messages, model="my-model") == (400, error.pieces[0])
    assert len(upstream.requests) == 1


async def test_an_error_that_names_no_limit_is_retried_if_the_table_does() -> None:
    error = HttpReply(pieces=(b'{"error":{"code":"context_length_exceeded"}}',), status=400)
    upstream = ScriptedUpstream(error, completion("Hi."))
    async with cue_on(upstream=upstream) as cue:
        assert (await send(cue, history(600), model="gpt-4"))[0] == 200
    assert len(upstream.messages(1)) < len(upstream.messages(0))


async def test_messages_and_responses_are_retried_too() -> None:
    message = "prompt is too long: 9900 tokens > 4096 maximum"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    answer = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi."}]}
    refusal = HttpReply(pieces=(json.dumps(error).encode(),), status=400)
    upstream = ScriptedUpstream(
        refusal,
        HttpReply(pieces=(json.dumps(answer).encode(),)),
        too_long(4_096, 9_900),
        response("r", output_text("Hi.")),
    )
    async with cue_on(upstream=upstream) as cue:
        body = json.dumps({"model": "claude-x", "max_tokens": 500, "messages": history()}).encode()
        pieces = [piece async for piece in cue.message(RelayCall(body=body, headers={}, conversation=NAME))]
        assert json.loads(b"".join(piece for piece in pieces if isinstance(piece, bytes))) == answer
        assert len(upstream.messages(1)) < len(upstream.messages(0))
        body = json.dumps({"model": "my-model", "max_output_tokens": 500, "input": history()}).encode()
        pieces = [piece async for piece in cue.respond(RelayCall(body=body, headers={}, conversation="other"))]
        assert b'"Hi."' in b"".join(piece for piece in pieces if isinstance(piece, bytes))
        assert len(upstream.sent(3)["input"]) < len(upstream.sent(2)["input"])


async def test_a_prompt_that_is_too_long_for_the_configured_model_is_retried_once() -> None:
    error = UpstreamError("The model's server answered 400: " + str(too_long(4_096, 9_900).pieces[0]), status=400)
    model = ScriptedModel(*["Noted."] * 4, error, "Hi.", error, error)
    async with cue_on(model=model) as cue:
        cue.services.settings = structs.replace(cue.services.settings, model_url="http://127.0.0.1:1/v1")
        for _ in range(4):
            await cue.ask(Ask("word " * 2_000, NAME))
        reply = await cue.ask(Ask("And now?", NAME))
        assert (reply.text, reply.metadata["window"]["context"]["source"]) == ("Hi.", "error")
        refused, sent = (b"".join(each.messages) for each in model.requests[-2:])
        assert len(sent) < len(refused) / 2
        assert (await cue.turns.show(NAME, 5)).replay == "identical"
        with pytest.raises(UpstreamError):
            await cue.ask(Ask("And now?", "other"))
        assert len(model.requests) == 7, "one message alone is no shorter"


# ---- The upstream's list of models ----------------------------------------------------------------------------------

LIST = {
    "object": "list",
    "data": [
        {"id": "openrouter/model", "context_length": 64_000},
        {"id": "vllm", "max_model_len": 4_096},
        {"id": "mistral", "max_context_length": 32_768},
        {"id": "groq", "context_window": 8_192},
        {"id": "none"},
        {"id": "odd", "context_length": "8k", "max_model_len": 0},
        "odd",
    ],
}
SIZES = {"openrouter/model": 64_000, "vllm": 4_096, "mistral": 32_768, "groq": 8_192}


@pytest.mark.parametrize(
    ("body", "contexts"),
    [
        (json.dumps(LIST).encode(), SIZES),
        (json.dumps(LIST["data"]).encode(), SIZES),  # Together
        (b"", {}),
        (b'{"data": 3}', {}),
        (b"[" * 100_000, {}),
    ],
)
def test_a_list_of_models_is_read(body: bytes, contexts: dict[str, int]) -> None:
    assert read_contexts(body) == contexts


async def test_an_upstream_is_asked_once_and_its_list_precedes_the_table() -> None:
    upstream = ScriptedUpstream(HttpReply(pieces=(b'{"data":[{"id":"gpt-4","context_length":6000}]}',)))
    models = ModelList(upstream)
    async with cue_on(upstream=ScriptedUpstream(completion("Hi."))) as cue:
        contexts = cue.services.caches.listed_contexts
        for _ in range(2):
            models.ask({"Authorization": "Bearer k", "Cookie": "c"}, contexts)
            await asyncio.sleep(0.01)
        assert [(each.method, each.path, each.headers) for each in upstream.requests] == [
            ("GET", "/models", {"Authorization": "Bearer k", "user-agent": "cuebook"})
        ]
        await send(cue, [user("hi")], model="gpt-4", max_tokens=1_000)
        window = await window_of(cue)
    assert (window["budget"], window["context"]["source"]) == (5_000, "upstream")
    await models.aclose()


async def test_a_failure_to_list_models_is_silent_and_not_repeated_at_once() -> None:
    contexts: dict[tuple[str, str], int] = {}
    failures = (UpstreamError("down"), HttpReply(pieces=(b"{}",), status=401), HttpReply(error=UpstreamError("broken")))
    for failure in failures:
        upstream = ScriptedUpstream(failure)
        models = ModelList(upstream)
        for _ in range(2):
            models.ask({}, contexts)
            await asyncio.sleep(0.01)
        assert len(upstream.requests) == 1
        await models.aclose()
    assert contexts == {}


async def test_a_slow_list_of_models_delays_neither_a_request_nor_the_end() -> None:
    upstream = ScriptedUpstream(HttpReply(pieces=(b"{}",), delay=60))
    models = ModelList(upstream)
    models.ask({}, {})
    await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        await models.aclose()
    assert upstream.closed == 1


@pytest.mark.parametrize("length", [2_450, 2_600])
async def test_a_history_just_above_the_estimated_room_is_sent_whole_first(length: int) -> None:
    """The estimate exceeds most tokenizers' counts. What a provider refuses is sent once more, shorter."""
    fits = length <= 2_500
    upstream = ScriptedUpstream(*([] if fits else [too_long(3_000, length + 500)]), completion("Hi."))
    async with cue_on(upstream=upstream, budget__context=3_000, budget__reply=500) as cue:
        record = json.dumps([{"id": n, "city": "Bergen", "harbour": True, "berths": n * 3} for n in range(21)])
        history = [user(f"{n} {record}") if n % 2 == 0 else bot(f"{n} {record}") for n in range(5)]
        assert 2_500 < sum(cue.services.count(each["content"]) for each in history) < 2_500 * EXCESS
        assert (await send(cue, history, model="m", max_tokens=500))[0] == 200
        sent = [json.loads(request.body)["messages"] for request in upstream.requests]
        lines = (await window_of(cue))["lines"]
        assert ("sent whole, because the estimate exceeds the budget by less than its error" in lines) is fits
        assert sent[0] == history
        assert len(sent) == (1 if fits else 2)
        assert fits or (len(sent[-1]) < len(history) and sent[-1][-1] == history[-1])
