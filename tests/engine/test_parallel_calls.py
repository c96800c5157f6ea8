"""Tests of parallel calls of one conversation: the first keeps the head, the others are side branches at once."""

import asyncio
import json
import random

import pytest
from turn_helpers import NAME, Client, bot, cue_on, path, user

from cuebook import Ask, Cuebook
from cuebook.errors import LeaseLost
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock, LoadedDice
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import call, completion, result, streamed

START = (user("start"), bot("Started."))


class EchoUpstream(ScriptedUpstream):
    """An upstream that answers each request by its last message, and hangs for some until `proceed` is set."""

    def __init__(self, *hangs: str, make=completion):
        super().__init__()
        self.hangs, self.make = hangs, make
        self.reached, self.proceed = asyncio.Event(), asyncio.Event()

    async def send(self, request):
        text = json.loads(request.body)["messages"][-1]["content"]
        answer: HttpReply = self.make(f"Re {text}")
        if text in self.hangs:
            self.reached.set()
            await self.proceed.wait()
        self.say(answer)
        return await super().send(request)


class OtherDice(LoadedDice):
    """Random numbers and ids of a second process."""

    def new_id(self, kind: str) -> str:
        return f"other-{super().new_id(kind)}"


async def send(cue: Cuebook, *messages, **fields) -> str:
    """Send a history to the conversation. Return "head" or "side"."""
    client = Client(cue, ScriptedUpstream())
    await client.send(list(messages), **fields)
    assert client.head.conversation == NAME
    return "side" if client.head.is_side_branch else "head"


async def hang(cue: Cuebook, upstream: EchoUpstream, text: str) -> asyncio.Task[str]:
    """Start a call that hangs. Return once the upstream has its request."""
    upstream.reached.clear()
    calling = asyncio.create_task(send(cue, *START, user(text)))
    await upstream.reached.wait()
    return calling


async def stored(cue: Cuebook) -> dict[str, str]:
    """Return each answer with the question that it follows."""
    posts = await cue.services.store.posts(Scope(), NAME, path=False)
    by_seq = {post.seq: post for post in posts}
    return {post.message: by_seq[post.parent].message for post in posts if post.role == "assistant"}


@pytest.mark.parametrize("make", [completion, streamed])
async def test_a_call_that_hangs_does_not_block_four_others(tmp_path, make):
    upstream = EchoUpstream("q0", make=make)
    async with cue_on(tmp_path, upstream=upstream) as cue:
        assert await send(cue, START[0]) == "head"
        start = (START[0], bot("Re start"))
        hanging = asyncio.create_task(send(cue, *start, user("q0")))
        await upstream.reached.wait()
        branches = await asyncio.gather(*(send(cue, *start, user(f"q{n}")) for n in range(1, 5)))
        assert branches == ["side"] * 4
        assert not hanging.done()
        assert await path(cue) == ["start", "Re start", "q0"]
        upstream.proceed.set()
        assert await hanging == "head"
        assert await path(cue) == ["start", "Re start", "q0", "Re q0"]
        assert await stored(cue) == {"Re start": "start", **{f"Re q{n}": f"q{n}" for n in range(5)}}
        turns = await cue.turns.list(NAME)
        assert {turn.state for turn in turns} == {"finished"}
        assert [turn.metadata.get("branch") for turn in turns].count("side") == 4


async def test_the_branch_that_the_client_continues_becomes_the_path(tmp_path):
    upstream = EchoUpstream("q0")
    async with cue_on(tmp_path, upstream=upstream) as cue:
        hanging = await hang(cue, upstream, "q0")
        assert [await send(cue, *START, user(f"q{n}")) for n in (1, 2)] == ["side", "side"]
        upstream.proceed.set()
        await hanging
        assert await send(cue, *START, user("q2"), bot("Re q2"), user("next")) == "head"
        assert await path(cue) == ["start", "Started.", "q2", "Re q2", "next", "Re next"]


async def test_a_continued_branch_becomes_the_path_while_another_call_hangs(tmp_path):
    upstream = EchoUpstream("q0")
    async with cue_on(tmp_path, upstream=upstream) as cue:
        hanging = await hang(cue, upstream, "q0")
        assert await send(cue, *START, user("q1")) == "side"
        history = [*START, user("q1"), bot("Re q1")]
        assert await send(cue, *history, user("next")) == "head"
        upstream.proceed.set()
        await hanging
        assert await path(cue) == ["start", "Started.", "q1", "Re q1", "next", "Re next"]
        assert (await stored(cue))["Re q0"] == "q0", "the late answer stays on its own branch"


async def test_a_retry_of_a_hanging_call_is_answered_beside_it(tmp_path):
    upstream = EchoUpstream("q0")
    async with cue_on(tmp_path, upstream=upstream) as cue:
        hanging = await hang(cue, upstream, "q0")
        upstream.hangs = ()
        assert await send(cue, *START, user("q0")) == "side"
        upstream.proceed.set()
        assert await hanging == "head"
        posts = await cue.services.store.posts(Scope(), NAME, path=False)
        assert [(post.message, post.parent) for post in posts[2:]] == [("q0", 2), ("Re q0", 3), ("Re q0", 3)]


async def test_parallel_calls_of_two_processes(tmp_path):
    upstream = EchoUpstream("q0")
    async with (
        cue_on(tmp_path, upstream=upstream) as mine,
        cue_on(tmp_path, upstream=upstream, dice=OtherDice()) as theirs,
    ):
        hanging = await hang(mine, upstream, "q0")
        calls = [send((mine, theirs)[n % 2], *START, user(f"q{n}")) for n in range(1, 9)]
        assert await asyncio.gather(*calls) == ["side"] * 8
        upstream.proceed.set()
        assert await hanging == "head"
        assert len(await stored(mine)) == 1 + 9
        for turn in await mine.turns.list(NAME, limit=20):
            assert (await mine.turns.replay(NAME, turn.turn)).verdict == "identical"


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))])
async def test_many_simultaneous_calls_are_all_answered_and_stored(tmp_path, seed):
    dice = random.Random(seed)
    upstream = EchoUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        await send(cue, user("start"))
        start, texts = (user("start"), bot("Re start")), [f"q{n}" for n in range(24)]
        dice.shuffle(texts)
        branches = await asyncio.gather(*(send(cue, *start, user(text)) for text in texts))
        assert "head" in branches
        assert await stored(cue) == {"Re start": "start", **{f"Re {text}": text for text in texts}}
        assert {turn.state for turn in await cue.turns.list(NAME, limit=50)} == {"finished"}
        chosen = dice.choice(texts)
        assert await send(cue, *start, user(chosen), bot(f"Re {chosen}"), user("next")) == "head"
        assert await path(cue) == ["start", "Re start", chosen, f"Re {chosen}", "next", "Re next"]


async def test_history_on_the_server_waits_for_the_running_turn(tmp_path):
    upstream = EchoUpstream("q0")
    async with cue_on(tmp_path, upstream=upstream) as cue:
        hanging = await hang(cue, upstream, "q0")
        waiting = [
            asyncio.create_task(send(cue, user("queued"), server_history=True)),
            asyncio.create_task(cue.ask(Ask("asked", NAME))),
        ]
        assert await send(cue, *START, user("q1")) == "side"
        assert not any(task.done() for task in waiting)
        upstream.proceed.set()
        await asyncio.gather(hanging, *waiting)
        assert (await path(cue))[:4] == ["start", "Started.", "q0", "Re q0"]
        assert set((await path(cue))[4:]) == {"queued", "Re queued", "asked", "Noted."}


async def test_a_parallel_turn_of_a_dead_process_keeps_its_partial_answer(tmp_path, clock: FrozenClock):
    upstream = EchoUpstream("q0", "q1", make=lambda text: streamed(text, delay=0.05))
    async with cue_on(tmp_path, clock=clock, upstream=upstream) as cue:
        hanging = await hang(cue, upstream, "q0")
        other = await hang(cue, upstream, "q1")
        turn = (await cue.turns.list(NAME))[-1]
        assert (turn.state, turn.metadata["branch"]) == ("running", "side")
        clock.advance(60)  # its process renews nothing
        assert await cue.services.expire() == 2
        turns = await cue.turns.list(NAME)
        assert [each.state for each in turns] == ["interrupted", "interrupted"]
        upstream.proceed.set()
        for task in (hanging, other):
            with pytest.raises(LeaseLost):
                await task
        assert await send(cue, *START, user("q2")) == "head"


async def test_erasure_ends_a_parallel_turn(tmp_path):
    upstream = EchoUpstream("q0", "q1")
    async with cue_on(tmp_path, upstream=upstream) as cue:
        calls = [await hang(cue, upstream, "q0"), await hang(cue, upstream, "q1")]
        assert (await cue.memory.forget(conversation=NAME)).state == "done"
        upstream.proceed.set()
        for task in calls:
            with pytest.raises(LeaseLost):
                await task


async def test_a_title_call_leaves_a_turn_that_waits_for_tools(tmp_path):
    upstream = ScriptedUpstream(completion("", calls=[call("x")]), completion("A title"), completion("Done."))
    async with cue_on(tmp_path, upstream=upstream) as cue:
        calling = bot(None, tool_calls=[call("x")])
        assert await send(cue, *START, user("Look.")) == "head"
        assert await send(cue, user("Write a title.")) == "side"
        assert await send(cue, *START, user("Look."), calling, result("x")) == "head"
        turns = await cue.turns.list(NAME)
        assert [(turn.turn, turn.state, turn.calls) for turn in turns] == [(1, "finished", 2), (2, "finished", 1)]
        assert await path(cue) == ["start", "Started.", "Look.", "<look>", "found", "Done."]


async def test_a_tool_call_on_a_side_branch_is_continued(tmp_path):
    upstream = EchoUpstream("q0")
    async with cue_on(tmp_path, upstream=upstream) as cue:
        hanging = await hang(cue, upstream, "q0")
        upstream.make = lambda _: completion("", calls=[call("x")])
        assert await send(cue, *START, user("q1")) == "side"
        upstream.make = completion
        calling = bot(None, tool_calls=[call("x")])
        assert await send(cue, *START, user("q1"), calling, result("x")) == "head"
        upstream.proceed.set()
        await hanging
        assert await path(cue) == ["start", "Started.", "q1", "<look>", "found", "Re found"]
