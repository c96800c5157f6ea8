"""Property tests of prompts: budget, each post accounted for exactly once, byte-for-byte replay."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook import Ask, Cuebook, InvalidInput, Part, Posted, Window
from cuebook.config import Config, build
from cuebook.records.memory import Scope
from cuebook.testing.doubles import ScriptedModel

NAME = "c"

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=60)
long = st.integers(1, 400).map(lambda n: "The budget for the garden is 1,200 euro, says Ilse. " * n)
texts = st.one_of(words, words, long)


def say_step(text: str, sender: str) -> dict[str, Any]:
    return {"kind": "say", "sender": sender, "text": text}


def tool_round(text: str, n: int) -> dict[str, Any]:
    return {"kind": "tools", "text": text, "n": n}


steps = st.one_of(
    st.builds(say_step, texts, st.sampled_from(["mara", "assistant", "Ilse", "system"])),
    st.builds(say_step, texts, st.sampled_from(["mara", "assistant"])),
    st.builds(tool_round, texts, st.integers(1, 3)),
    st.just({"kind": "settle"}),
    st.builds(lambda back: {"kind": "branch", "back": back}, st.integers(1, 8)),
    st.builds(lambda text: {"kind": "ask", "text": text}, texts),
)


async def play(cue: Cuebook, step: dict[str, Any], number: int) -> None:
    if step["kind"] == "say":
        await cue.append(NAME, [Posted(sender=step["sender"], message=step["text"])], user="mara")
    elif step["kind"] == "tools":
        await cue.append(NAME, called(step["text"], number, step["n"]), user="mara")
    elif step["kind"] == "settle":
        await cue.settle(conversation=NAME)
    elif step["kind"] == "ask":
        await cue.ask(Ask(step["text"], NAME, user="mara"))
    else:
        posts = [
            post for post in await cue.services.store.posts(Scope(), NAME) if post.role != "tool" and not post.calls
        ]
        if posts:
            await cue.conversations.move_head(NAME, posts[-min(step["back"], len(posts))].id)


def called(text: str, number: int, results: int) -> list[Posted]:
    ids = [f"call_{number}_{n}" for n in range(results)]
    calls = tuple(
        Part("function", '{"name":"look","arguments":"{}"}', {"callId": each, "name": "look"}) for each in ids
    )
    answers = [
        Posted(sender="tool", message=text, parts=(Part("execution_result", "", {"callId": each}),)) for each in ids
    ]
    return [
        Posted(sender="mara", message="look it up"),
        Posted(sender="assistant", parts=calls),
        *answers,
        Posted(sender="assistant", message="there it is"),
    ]


def run(
    script: Sequence[dict[str, Any]], callback: Callable[[Cuebook], Awaitable[None]], config: Config | None = None
) -> None:
    async def main() -> None:
        async with Cuebook.open(config, worker=False) as cue:
            await cue.append(NAME, [Posted(sender="mara", message="hello")], user="mara")
            for number, step in enumerate(script):
                await play(cue, step, number)
            await callback(cue)

    asyncio.run(main())


async def accounted_seqs(cue: Cuebook, window: Window) -> list[int]:
    """Return every seq of the path as often as the window accounts for it."""
    summary = await cue.services.store.summary(Scope(), NAME)
    path = [post.seq for post in await cue.conversations.posts(NAME)]
    reach = summary.upto_seq if summary else 0
    seqs = [seq for seq in path if seq <= reach]
    seqs += [block.seq for block in window.blocks if block.seq in path]
    for span in window.dropped:
        seqs += [seq for seq in range(span.first, span.last + 1) if span.first]
    return sorted(seqs)


@settings(settings.get_profile("database"))
@given(st.lists(steps, max_size=24), st.integers(300, 6000))
def test_every_post_is_included_summarized_or_dropped_exactly_once(script: list[dict[str, Any]], budget: int) -> None:
    async def check(cue: Cuebook) -> None:
        path = [post.seq for post in await cue.conversations.posts(NAME)]
        for token_budget in (None, budget):
            window = await cue.assemble(Ask("and the budget?", NAME, user="mara", token_budget=token_budget))
            assert await accounted_seqs(cue, window) == path

    run(script, check)


@settings(settings.get_profile("database"))
@given(st.lists(steps, max_size=16), st.integers(1, 3000), texts)
def test_a_window_is_within_its_budget_and_repeatable(script: list[dict[str, Any]], budget: int, query: str) -> None:
    async def check(cue: Cuebook) -> None:
        ask = Ask(query, NAME, user="mara", token_budget=budget)
        try:
            window = await cue.assemble(ask)
        except InvalidInput as refused:
            assert refused.where == "tokenBudget"  # noqa: PT017
            return
        assert window.tokens <= window.budget == budget
        assert sum(block.tokens for block in window.blocks) + window.tools_tokens == window.tokens
        fence = re.compile(rb"recalled \d{18}")
        both = [fence.sub(b"", b"".join(each.raw_messages)) for each in (window, await cue.assemble(ask))]
        assert both[0] == both[1], "equal except for the fence"

    run(script, check)


@settings(settings.get_profile("database"))
@given(st.lists(steps, max_size=16), st.sampled_from(["off", "standard", "budget"]))
def test_every_turn_replays_byte_for_byte(script: list[dict[str, Any]], profile: str) -> None:
    async def check(cue: Cuebook) -> None:
        await cue.ask(Ask("my password: hunter2!xyz, remember it", NAME, user="mara"))
        turns = (await cue.conversations.get(NAME)).turns
        for n in range(1, turns + 1):
            assert (await cue.turns.replay(NAME, n)).verdict == "identical"

    config = build(arguments={"store.url": ":memory:", "memory.profile": profile})
    run(script, check, config)


@settings(settings.get_profile("database"))
@given(st.lists(steps, max_size=16), st.integers(300, 3000))
def test_a_tool_call_and_its_results_stay_together(script: list[dict[str, Any]], budget: int) -> None:
    async def check(cue: Cuebook) -> None:
        window = await cue.assemble(Ask("so?", NAME, user="mara", token_budget=budget))
        call_ids: set[str] = set()
        for message in map(msgspec.json.decode, window.raw_messages):
            call_ids.update(call["id"] for call in message.get("tool_calls") or ())
            if message["role"] == "tool":
                assert message["tool_call_id"] in call_ids
        answered_ids = {m["tool_call_id"] for m in map(msgspec.json.decode, window.raw_messages) if m["role"] == "tool"}
        assert call_ids == answered_ids

    run(script, check)


@settings(settings.get_profile("database"))
@given(st.lists(st.tuples(texts, texts), min_size=2, max_size=6))
def test_an_unchanged_front_keeps_all_bytes_before_the_previous_query(
    rounds: list[tuple[str, str]],
) -> None:
    async def main() -> None:
        config = build(arguments={"store.url": ":memory:", "memory.profile": "off"})
        model = ScriptedModel(*(answer for _, answer in rounds))
        async with Cuebook.open(config, model=model, worker=False) as cue:
            before: tuple[bytes, ...] = ()
            for query, _ in rounds:
                reply = await cue.ask(Ask(query, NAME, user="mara"))
                assert reply.window is not None
                assert reply.window.raw_messages[: max(0, len(before) - 1)] == before[:-1]
                before = reply.window.raw_messages

    asyncio.run(main())


@pytest.mark.parametrize("profile", ["standard", "off"])
@pytest.mark.slow
async def test_a_window_of_many_posts_reports_the_dropped_ones(profile: str) -> None:
    config = build(arguments={"store.url": ":memory:", "memory.profile": profile})
    async with Cuebook.open(config, worker=False) as cue:
        posts = [Posted(sender="mara" if n % 2 else "assistant", message=f"Line {n}. " * 40) for n in range(400)]
        await cue.append(NAME, posts, user="mara")
        await cue.settle()
        window = await cue.assemble(Ask("what was first?", NAME, user="mara", token_budget=4000))
        assert window.tokens <= 4000
        assert await accounted_seqs(cue, window) == list(range(1, 401))
        assert all(span.reason for span in window.dropped)
