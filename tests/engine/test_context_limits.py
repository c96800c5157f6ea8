"""The budget of a request: the context window of its model, and the answer that the request asks for."""

import json
from typing import Any

import pytest
from turn_helpers import NAME, cue_on, user

from cuebook.app.cuebook import Cuebook, Head, RelayCall
from cuebook.app.turns.explanation import told_of
from cuebook.records.answer import to_wire
from cuebook.testing.upstream import ScriptedUpstream, completion


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
    assert (window["budget"], window["context"]["source"]) == (budget, source)
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
