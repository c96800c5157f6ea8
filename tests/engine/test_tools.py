"""Tests of tool loops through the relay: any number of steps is one turn and one round."""

import json
from itertools import pairwise

import pytest
from turn_helpers import NAME, Client, check_accounted, cue_on, path, system, user

from cuebook.engine.core.context_limits import EXCESS
from cuebook.engine.jobs.compaction import compact_once
from cuebook.memory.rolling import STANDARD
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import call, completion, result, streamed


@pytest.fixture
def upstream():
    return ScriptedUpstream()


@pytest.fixture
async def cue(tmp_path, upstream):
    async with cue_on(tmp_path, upstream=upstream, memory__profile="standard", memory__user=True) as handle:
        yield handle


@pytest.fixture
def client(cue, upstream):
    return Client(cue, upstream)


async def step(client, answer, **fields):
    """Send the history. The answer's message is appended to it."""
    client.upstream.say(answer)
    body = await client.send(**fields)
    if not body.startswith(b"data:"):
        client.history.append(json.loads(body)["choices"][0]["message"])
    return body


async def loop(client, steps, *, start=0, text="found it"):
    """Ask for something that takes `n` tool calls."""
    for n in range(start, start + steps):
        await step(client, completion("", calls=[call(f"c{n}", "look", {"n": n})]))
        client.history.append(result(f"c{n}", f"{text} {n}"))


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.mark.slow
async def test_a_loop_of_forty_steps_is_one_turn_of_one_round(cue, client):
    for n in range(20):
        await client.say(f"The box of colour {n} holds {n} apples.")
    await cue.settle()
    client.history.append(user("Which box holds 3 apples? Look."))
    await loop(client, 39)
    mid = await cue.services.store.conversation(Scope(), NAME)
    assert (mid.open_round, mid.lease_until) == (41, 0), "the turn is open and holds no lease"
    await cue.work()
    assert await cue.settle() == {}
    assert (await cue.services.store.conversation(Scope(), NAME)).mark == mid.mark, "never compacted while open"
    await step(client, completion("The third."))
    turn = await cue.turns.get(NAME, 21)
    assert (turn.state, len(turn.steps), turn.round, turn.query_seq) == ("finished", 40, 41, 41)
    assert (await cue.conversations.get(NAME)).turns == 21
    rounds = await cue.conversations.rounds(NAME)
    assert len(rounds) == 21
    assert len(rounds[-1].posts) == 80
    volatile = {(step.manifest.volatile, step.manifest.fence, step.manifest.summary_version) for step in turn.steps}
    assert len(volatile) == 1, "recalled once, fenced once, under one summary"
    assert turn.steps[0].manifest.volatile, "something was recalled"
    for n in range(1, 41):
        assert (await cue.turns.replay(NAME, 21, step=n)).verdict == "identical"
    await cue.settle()
    assert (await cue.services.store.conversation(Scope(), NAME)).mark > mid.mark, "compacted after the end"


async def test_messages_of_earlier_steps_are_resent_unchanged(cue, client):
    """Every step's messages begin with all of the step before."""
    await client.say("Apples are in the third box.")
    client.history.append(user("Where are the apples? Look."))
    await loop(client, 8)
    await step(client, completion("There."))
    sent = [json.dumps(client.upstream.messages(n)) for n in range(1, 10)]
    for before, now in pairwise(sent):
        assert now.startswith(before[:-1])
    turn = await cue.turns.get(NAME, 2)
    assert turn.steps[-1].manifest.anchors[-1].after == len(client.upstream.messages()) - 1


async def test_a_summary_made_during_a_loop_applies_after_its_end(cue, client):
    for n in range(20):
        await client.say(f"The box of colour {n} holds {n} apples.")
    client.history.append(user("look"))
    store = cue.services.store
    read = await store.compaction(Scope(), NAME, limit=100)
    await loop(client, 1)

    class Late:
        """The pass read its posts before the round began."""

        def __getattr__(self, name):
            return getattr(store, name)

        async def compaction(self, *_, **__):
            return read

    cue.services.store = Late()
    assert await compact_once(cue.services, Scope(), NAME, STANDARD) == "stored"
    cue.services.store = store
    await loop(client, 2, start=1)
    await step(client, completion("done"))
    turn = await cue.turns.get(NAME, 21)
    assert [step.manifest.summary_version for step in turn.steps] == [0, 0, 0, 0]
    await client.say("and now?")
    assert (await cue.turns.get(NAME, 22)).steps[0].manifest.summary_version == 1


async def test_parallel_calls_and_their_results_are_one_step(cue, client):
    client.history.append(user("look at all three"))
    calls = [call(f"c{n}", "look", {"n": n}) for n in range(3)]
    await step(client, completion("", calls=calls), tools=TOOLS, parallel_tool_calls=True)
    client.history += [result(f"c{n}") for n in (2, 0, 1)]
    await step(client, completion("all there"), tools=TOOLS)
    turn = await cue.turns.get(NAME, 1)
    assert (turn.state, len(turn.steps)) == ("finished", 2)
    assert client.upstream.messages() == client.history[:-1]
    assert client.upstream.sent()["tools"] == TOOLS
    assert turn.steps[0].manifest.tools_tokens > 0


async def test_search_finds_the_arguments_of_a_call(cue):
    edit = {"path": "src/tides.py", "flags": "--dry-run", "text": "wave " * 500 + "unread"}
    calls = [call("1", name="edit", arguments=edit), call("2", name="run", arguments={"task": "lint gulls"})]
    posts = [user("Go on."), {"role": "assistant", "content": None, "tool_calls": calls}, result("1"), result("2")]
    large = {
        "role": "assistant",
        "content": "Reef. " * 4_000,
        "tool_calls": [call("3", name="sail", arguments={"to": "Fanø"})],
    }
    await cue.append(NAME, [*posts, large])
    [hit] = await cue.memory.search("Which file did we edit with the flag --dry-run?", conversation=NAME, limit=1)
    assert hit.speaker == "assistant"
    assert hit.text.startswith('edit {"path":"src/tides.py","flags":"--dry-run"')
    assert (await cue.memory.search("Were the gulls linted?", conversation=NAME))[0].seq == hit.seq
    assert "sail" in (await cue.memory.search("Who wanted to sail to Fanø?", conversation=NAME))[0].text
    assert await cue.memory.search("unread", conversation=NAME) == []


async def test_a_streamed_call_waits_for_results_too(cue, client):
    client.history.append(user("look"))
    await step(client, streamed("let me see ", calls=[call("c1", "look", {"deep": [1, "ä"]})], size=3), stream=True)
    assert (await cue.turns.get(NAME, 1)).waiting
    message = {"role": "assistant", "content": "let me see ", "tool_calls": [call("c1", "look", {"deep": [1, "ä"]})]}
    client.history += [message, result("c1")]
    await step(client, completion("there"))
    assert (await cue.turns.get(NAME, 1)).state == "finished"
    assert client.upstream.messages() == client.history[:-1]


async def test_a_client_that_rewrites_its_calls_continues_its_turn(cue, client):
    client.history.append(user("look"))
    await step(client, completion("", calls=[call("c1", "look", {"a": 1, "b": 2})]))
    rewritten = {
        "tool_calls": [{"type": "function", "function": {"arguments": '{"b":2,"a":1}', "name": "look"}, "id": "c1"}],
        "role": "assistant",
    }
    client.history[-1] = rewritten
    client.history.append(result("c1"))
    await step(client, completion("there"))
    assert (await cue.conversations.get(NAME)).turns == 1
    assert await path(cue) == ["look", "<look>", "found", "there"]


@pytest.mark.parametrize("answered", [True, False])
async def test_the_next_query_interrupts_an_abandoned_loop(cue, client, answered):
    client.history.append(user("look"))
    await step(client, completion("", calls=[call("c1")]))
    assert (await cue.turns.get(NAME, 1)).state == "running"
    client.history += [result("c1")] if answered else []
    await client.say("never mind", "fine")
    assert (await cue.turns.get(NAME, 1)).state == "interrupted"
    assert (await cue.turns.get(NAME, 2)).state == "finished"
    assert (await cue.services.store.conversation(Scope(), NAME)).open_round == 0
    for _ in range(20):
        await client.say("more", "ok")
    assert await cue.settle() == {}
    assert (await cue.conversations.summary(NAME)) is not None


async def start_abandoned_loop(client, *, rounds=14):
    """Store a conversation that is due for compaction and whose client leaves when results are requested."""
    for n in range(rounds):
        await client.say(f"The box of colour {n} holds {n} apples.")
    client.history.append(user("look"))
    await step(client, completion("", calls=[call("c1")]))


async def test_an_abandoned_loop_does_not_stop_compaction(cue, client):
    await start_abandoned_loop(client)
    assert await cue.settle() == {}
    assert await cue.conversations.summary(NAME) is None, "compaction waits"
    await cue.append(NAME, [result("c1")])
    assert (await cue.turns.get(NAME, 15)).waiting, "for what has come, and may go on"
    await cue.append(NAME, [result("c2"), user("never mind")])
    assert (await cue.turns.get(NAME, 15)).state == "interrupted"
    assert (await cue.conversations.rounds(NAME))[-2].state == "failed"
    assert (await cue.services.store.conversation(Scope(), NAME)).open_round == 0
    assert await cue.settle() == {}
    assert await cue.conversations.summary(NAME) is not None


@pytest.mark.parametrize(("setting", "seconds"), [({}, 3600), ({"work__wait_s": 60}, 60)])
async def test_a_loop_waits_for_results_until_its_timeout(tmp_path, upstream, setting, seconds):
    clock = FrozenClock()
    async with cue_on(tmp_path, upstream=upstream, clock=clock, memory__profile="standard", **setting) as cue:
        client = Client(cue, upstream)
        await start_abandoned_loop(client)
        clock.advance(seconds)
        assert await cue.settle() == {}
        assert await cue.conversations.summary(NAME) is None
        clock.advance(1)
        assert await cue.settle() == {}
        assert await cue.conversations.summary(NAME) is not None
        assert (await cue.turns.get(NAME, 15)).state == "interrupted"
        listed = (await cue.conversations.get(NAME)).updated_at
        assert listed == clock.now() - seconds - 1, "the end of the loop does not make it the most recent conversation"
        client.history.append(result("c1"))
        await step(client, completion("There."))
        assert (await path(cue))[-2:] == ["found", "There."], "late results are answered anyway"


async def test_a_forced_call_ends_its_turn(cue, client):
    """With tool_choice the wire says "stop" and the client sends no result: the call extracted data."""
    client.history.append(user("extract"))
    body = json.loads(completion("", calls=[call("c1")]).pieces[0])
    body["choices"][0]["finish_reason"] = "stop"
    answer = completion("")
    await step(client, type(answer)(pieces=[json.dumps(body).encode()]))
    assert (await cue.turns.get(NAME, 1)).state == "finished"


async def test_a_loop_in_two_processes_is_one_turn(tmp_path, upstream):
    async with cue_on(tmp_path, upstream=upstream) as mine, cue_on(tmp_path, upstream=upstream) as theirs:
        one, two = Client(mine, upstream), Client(theirs, upstream)
        one.history = two.history = [user("look")]
        theirs.services.dice = mine.services.dice
        for n in range(6):
            await loop((one, two)[n % 2], 1, start=n)
        await step(one, completion("there"))
        turn = await mine.turns.get(NAME, 1)
        assert (turn.state, len(turn.steps)) == ("finished", 7)
        for n in range(1, 8):
            ratios = {
                (await cue.turns.get(NAME, 1)).steps[n - 1].manifest.stable_prefix_ratio for cue in (mine, theirs)
            }
            assert len(ratios) == 1
        sent = [b"".join(json.dumps(m).encode() for m in upstream.messages(n)) for n in range(7)]
        ratio = turn.steps[-1].manifest.stable_prefix_ratio
        assert ratio > 0.7
        assert all(len(a) < len(b) for a, b in pairwise(sent))


@pytest.mark.parametrize("budget", [1500, pytest.param(2500, marks=pytest.mark.slow)])
async def test_a_loop_longer_than_its_window_keeps_query_and_newest_results(tmp_path, upstream, budget):
    async with cue_on(
        tmp_path, upstream=upstream, budget__context=budget, budget__reply=100, budget__system=100
    ) as cue:
        client = Client(cue, upstream)
        query = "I would really like you to please find the very blue box that is just somewhere in there. " * 8
        client.history = [user(query)]
        await loop(client, 40, text="It is really a quite long result that says just very little, I would think. " * 3)
        await step(client, completion("found"))
        turn = await cue.turns.get(NAME, 1)
        assert len(turn.steps) == 41
        for number in range(5, 41):
            replay = await cue.turns.replay(NAME, 1, step=number + 1)
            assert replay.verdict == "identical"
            window = replay.window
            assert window.tokens <= window.budget * EXCESS
            kinds = [block.kind for block in window.blocks]
            assert kinds[0] == "query", "however far back it is"
            messages = [json.loads(message) for message in window.raw_messages]
            assert messages[0]["content"].startswith(query), "whole, not in the compact form of a recalled post"
            call_ids = {each["id"] for message in messages for each in message.get("tool_calls") or ()}
            assert call_ids == {message["tool_call_id"] for message in messages if message["role"] == "tool"}
            await check_accounted(cue, window, head=turn.steps[number].manifest.path[-1].last)


@pytest.mark.slow
async def test_a_result_of_two_megabytes_is_cut_and_stored_whole(cue, client):
    client.history.append(user("read the log"))
    await step(client, completion("", calls=[call("c1")]))
    log = "".join(f"line {n}: nothing happened here\n" for n in range(62_000))[: 2 * 1024 * 1024 - 200]
    client.history.append(result("c1", log))
    await step(client, completion("nothing happened"))
    [sent] = [message for message in client.upstream.messages() if message["role"] == "tool"]
    assert len(sent["content"]) < len(log) / 3
    assert sent["content"].startswith("line 0")
    assert sent["content"].endswith(log[-20:])
    assert (await path(cue))[2] == log, "stored unchanged"
    assert (await cue.turns.replay(NAME, 1)).verdict == "identical"
    await client.say("so?", "so")
    assert (await cue.turns.get(NAME, 2)).state == "finished"


async def test_arguments_are_never_cut(cue, client):
    client.history.append(user("write the file"))
    long = call("c1", "write", {"text": "word " * 60_000})
    await step(client, completion("", calls=[long]))
    client.history.append(result("c1", "written"))
    await step(client, completion("done"))
    assert client.upstream.messages()[1]["tool_calls"] == [long]


async def test_a_response_format_and_its_schema_are_counted(cue, client):
    schema = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object", "description": "word " * 200}},
    }
    client.history.append(user("hi"))
    await step(client, completion("{}"), response_format=schema)
    assert client.upstream.sent()["response_format"] == schema
    assert (await cue.turns.get(NAME, 1)).steps[0].manifest.tools_tokens > 180


async def test_system_notes_in_the_middle_keep_their_position(cue, client):
    await client.say("u1", "a1")
    client.history.append(system("The user has left the room."))
    await client.say("u2", "a2")
    assert [message["role"] for message in client.upstream.messages()] == ["user", "assistant", "system", "user"]
    assert await path(cue) == ["u1", "a1", "The user has left the room.", "u2", "a2"]
