"""The provider's own count of prompts corrects the budget of the next ones."""

import json
from typing import Any

import pytest
from turn_helpers import bot, cue_on, user

from cuebook.app.cuebook import Cuebook, Head, RelayCall
from cuebook.app.turns.explanation import told_of
from cuebook.interfaces import RelayRequest
from cuebook.records.answer import to_wire
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import DONE, EVENTS, event

LIMIT, ROOM = 3_000, 2_500  # of the context window, and of the prompt in it
SETTINGS: dict[str, Any] = {"budget__context": LIMIT, "budget__reply": LIMIT - ROOM}


class Provider:
    """An upstream with a tokenizer of its own: a token for each `size` characters of the messages.

    It refuses longer prompts than ROOM, and reports `share` of a prompt's tokens.
    """

    base_url = "scripted:/v1"

    def __init__(self, size: float, *, share: float = 1.0, usage: Any = None) -> None:
        self.size, self.share, self.usage = size, share, usage
        self.prompts: list[int] = []
        self.messages: list[Any] = []

    async def send(self, request: Any) -> Any:
        body = json.loads(request.body)
        tokens = int(sum(len(str(each["content"])) for each in body["messages"]) / self.size)
        self.prompts.append(tokens)
        self.messages.append(body["messages"])
        if tokens > ROOM:
            message = (
                f"This model's maximum context length is {LIMIT} tokens. However, you requested {tokens + 500} tokens."
            )
            error = {"message": message, "code": "context_length_exceeded"}
            answer = HttpReply(pieces=(json.dumps({"error": error}).encode(),), status=400)
        else:
            usage = {"prompt_tokens": int(tokens * self.share), "completion_tokens": 1}
            answer = self.answer(request.path, body, usage if self.usage is None else self.usage)
        return await ScriptedUpstream(answer).send(request)

    async def aclose(self) -> None:
        """Do nothing."""

    @staticmethod
    def answer(path: str, body: Any, usage: Any) -> HttpReply:
        """Return an answer in the format of the request, with the usage where each provider reports it."""
        if path == "/messages":
            tokens = usage["prompt_tokens"]
            counts = {"input_tokens": tokens - 300, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 100}
            answer = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Ok."}]}
            return HttpReply(pieces=(json.dumps(answer | {"usage": counts | {"output_tokens": 1}}).encode(),))
        if body.get("stream"):
            chunks = (event({"content": "Ok."}), event({}, finish="stop"), event(usage=usage), DONE)
            return HttpReply(pieces=chunks, headers={"content-type": EVENTS})
        choice = {"index": 0, "message": {"role": "assistant", "content": "Ok."}, "finish_reason": "stop"}
        return HttpReply(pieces=(json.dumps({"choices": [choice], "usage": usage}).encode(),))


def history(length: int = 121, text: str = "The ferry leaves the harbor of Vlieland at noon. ") -> list[dict[str, Any]]:
    """Return a history too long for the model, of messages with about 50 tokens."""
    return [(user if n % 2 == 0 else bot)(f"{n}: {text * 5}") for n in range(length)]


async def send(
    cue: Cuebook, messages: list[Any], conversation: str = "c1", *, messages_wire: bool = False, **fields: Any
) -> int:
    """Send a request; return the status of its answer."""
    body = json.dumps({"model": "m", "max_tokens": LIMIT - ROOM, "messages": messages, **fields}).encode()
    call = RelayCall(body=body, headers={}, conversation=conversation)
    pieces = [piece async for piece in (cue.message(call) if messages_wire else cue.relay(call))]
    [head] = [piece for piece in pieces if isinstance(piece, Head)]
    return head.status


async def shown(cue: Cuebook, conversation: str = "c1") -> tuple[dict[str, Any], list[str]]:
    """Return the metadata of the newest turn's window, and the lines that explain the turn."""
    number = max(each.turn for each in (await cue.turns.list(conversation)).items)
    turn = to_wire(await cue.turns.show(conversation, number))
    return turn["metadata"]["window"], list(told_of(turn))


@pytest.mark.parametrize("size", [2.5, 4.0, 6.0])
@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"messages_wire": True}], ids=["chat", "stream", "messages"])
async def test_prompts_fill_the_model_by_its_own_count(size: float, fields: dict[str, Any]) -> None:
    provider = Provider(size)
    async with cue_on(upstream=provider, **SETTINGS) as cue:
        assert await send(cue, history(), **fields) == 200
        first = len(provider.prompts)
        assert first <= 2, "one retry at most"
        assert await send(cue, [*history(), bot("Ok."), user("And then?")], **fields) == 200
        assert len(provider.prompts) == first + 1
        assert 0.85 * ROOM <= provider.prompts[-1] <= ROOM
        window, lines = await shown(cue)
        counted = provider.prompts[-1] / window["tokens"]
        assert window["context"]["ratio"] == pytest.approx(counted, rel=0.05)
        assert window["budget"] == int(ROOM / window["context"]["ratio"])
        said = f"the provider counts {window['context']['ratio']:.2f} times the tokens that Cuebook counts"
        assert any(line.startswith(said) for line in lines)
        assert lines[0].startswith(f"context window of m: {LIMIT:,} tokens")
        assert (await cue.turns.replay("c1", 2)).verdict == "identical"
        assert (await cue.turns.replay("c1", 2, as_of=2)).counterfactual.reproduced


@pytest.mark.parametrize("tokens", [None, 0, -5, 1, 10**9, 1 << 70, "900", True, 1.5, {}])
async def test_an_implausible_report_changes_nothing(tokens: Any) -> None:
    provider = Provider(5.0, usage={"prompt_tokens": tokens, "completion_tokens": 1})
    async with cue_on(upstream=provider, **SETTINGS) as cue:
        for length in (121, 123):
            assert await send(cue, history(length)) == 200
            window, _ = await shown(cue)
            assert (window["budget"], "ratio" in window["context"]) == (ROOM, False)


async def test_a_short_prompt_teaches_nothing() -> None:
    async with cue_on(upstream=Provider(2.0), **SETTINGS) as cue:
        assert await send(cue, history(3)) == 200
        assert await send(cue, history(5)) == 200
        assert "ratio" not in (await shown(cue))[0]["context"]


@pytest.mark.parametrize("shadow", [False, True])
async def test_a_restart_keeps_what_the_provider_reported(tmp_path: Any, shadow: bool) -> None:
    mode: dict[str, Any] = {"upstream__shadow": shadow, "upstream__url": "http://127.0.0.1:9/v1"}
    async with cue_on(tmp_path, upstream=Provider(2.5), **SETTINGS, **mode) as cue:
        body = json.dumps({"model": "m", "messages": history(15)}).encode()
        call = RelayCall(body=body, headers={}, conversation="c1")
        if shadow:
            request = RelayRequest(method="POST", path="/chat/completions", headers={}, body=body, verbatim=True)
            assert [piece async for piece in cue.pass_through(request, call)]
            await cue.settle()
        else:
            assert [piece async for piece in cue.relay(call)]
        [ratio] = cue.services.caches.token_ratios.values()
    async with cue_on(tmp_path, upstream=Provider(2.5), **SETTINGS) as cue:
        await send(cue, history(17))
        assert (await shown(cue))[0]["context"]["ratio"] == round(ratio.value, 4)
        await send(cue, history(17), "c2")
        assert (await shown(cue, "c2"))[0]["context"]["ratio"] == pytest.approx(ratio.value, rel=0.05)
        await send(cue, history(17), "c3", model="other")
        assert "ratio" not in (await shown(cue, "c3"))[0]["context"], "each model counts in its own way"


async def test_each_conversation_has_its_own_ratio() -> None:
    provider = Provider(3.0)
    async with cue_on(upstream=provider, **SETTINGS) as cue:
        await send(cue, history(15, "Паром отходит от причала острова Влиланд в полдень. "), "russian")
        await send(cue, history(15), "english")
        ratios = {name: each.value for (_, name), each in cue.services.caches.token_ratios.items()}
        assert ratios["russian"] != pytest.approx(ratios["english"], rel=0.1)
        await send(cue, history(), "english")
        assert provider.prompts[-1] >= 0.85 * ROOM


async def test_a_report_that_is_too_low_is_corrected_by_the_error_it_causes() -> None:
    provider = Provider(4.5, share=0.55)  # as if it did not report cached tokens
    async with cue_on(upstream=provider, **SETTINGS) as cue:
        assert await send(cue, history(15)) == 200
        assert await send(cue, history(121)) == 200
        assert provider.prompts[1] > ROOM >= provider.prompts[2], "refused, and one retry"
        window, _ = await shown(cue)
        assert provider.prompts[2] >= 0.8 * ROOM
        assert window["context"]["ratio"] >= provider.prompts[2] / window["tokens"]
        for length in (123, 125, 127):
            assert await send(cue, history(length)) == 200
        assert len(provider.prompts) == 6, "no other prompt is refused, although the reports stay too low"
        assert (await cue.turns.replay("c1", 2)).verdict == "identical"
