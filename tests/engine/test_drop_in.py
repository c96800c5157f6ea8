"""Property of the proxy: the upstream gets what the client sent, in its order, and nothing that the client left out."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turn_helpers import NAME, Client, cue_on

from cuebook.testing.upstream import ScriptedUpstream, call, completion, result

#: What a client does to its history before it sends it.
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("trim front"), st.integers(1, 6)),
        st.tuples(st.just("trim middle"), st.integers(1, 4)),
        st.tuples(st.just("summary in front"), st.integers(1, 2)),
        st.tuples(st.just("pair before the last four"), st.just(0)),
        st.tuples(st.just("insert"), st.integers(0, 8)),
        st.tuples(st.just("edit"), st.integers(0, 8)),
        st.tuples(st.just("drop the last answer"), st.just(0)),
        st.tuples(st.just("other fields"), st.integers(0, 8)),
        st.tuples(st.just("repeat"), st.integers(0, 8)),
        st.tuples(st.just("go on"), st.integers(1, 3)),
        st.tuples(st.just("use a tool"), st.integers(1, 2)),
    ),
    min_size=1,
    max_size=7,
)


def edited(history: list[dict[str, Any]], name: str, size: int, number: int) -> list[dict[str, Any]]:
    """Return a client's history after an edit. Calls stay next to their results."""
    starts = [n for n, each in enumerate(history) if each["role"] == "user"] or [0]
    answers = [n for n, each in enumerate(history) if each["role"] == "assistant" and each.get("content")] or [-1]
    place, answer, last = starts[size % len(starts)], answers[size % len(answers)], starts[-1]
    pair = [{"role": "user", "content": f"p{number}"}, {"role": "assistant", "content": f"q{number}"}]
    summary = [
        {"role": "user", "content": f"Summary {number} of what was said."},
        {"role": "assistant", "content": "Understood."},
    ]
    again = [{"role": "user", "content": history[place]["content"]}, {"role": "assistant", "content": "Again."}]
    resent = [{"content": history[answer]["content"], "role": "assistant", "x": [1]}] if answer >= 0 else []
    changed = {
        "trim front": history[starts[min(size, len(starts) - 1)] :],
        "trim middle": history[: starts[1:2][0] if starts[1:] else 0]
        + history[starts[min(1 + size, len(starts) - 1)] :],
        "summary in front": [*summary[:size], *history[-4:]],
        "pair before the last four": history[: starts[-2:][0]] + pair + history[starts[-2:][0] :],
        "insert": [*history[:place], {"role": "user", "content": f"i{number}"}, *history[place:]],
        "edit": [*history[:place], {**history[place], "content": f"e{number}"}, *history[place + 1 :]],
        "drop the last answer": history[:last] if history[-1]["role"] == "assistant" else history,
        "other fields": [*history[:answer], *resent, *history[answer + 1 :]] if resent else history,
        "repeat": [*history, *again],
    }
    return changed.get(name, history)


def without_recall(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the text that memory added to it."""
    content = message["content"]
    if isinstance(content, str):
        message = {**message, "content": content.partition("\n\n<recalled ")[0]}
    return message


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(edits=EDITS, named=st.booleans(), owned=st.booleans())
async def test_chat_upstream_gets_what_the_client_sent(tmp_path_factory, edits, named, owned):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path_factory.mktemp("db"), upstream=upstream) as cue:
        client = Client(cue, upstream, conversation=NAME if named else None, user_id="ann" if owned else None)
        for n in range(4):
            await client.say(f"u{n}", f"a{n}")
        for number, (name, size) in enumerate(edits):
            client.history = edited(client.history, name, size, number)
            if name == "use a tool":
                calls = [call(f"c{number}{k}") for k in range(size)]
                client.history.append({"role": "user", "content": f"t{number}"})
                upstream.say(completion("", calls=calls))
                client.history.append(json.loads(await client.send())["choices"][0]["message"])
                client.history += [result(each["id"]) for each in calls]
                upstream.say(completion(f"r{number}"))
                client.history.append(json.loads(await client.send())["choices"][0]["message"])
            else:
                for n in range(size if name == "go on" else 1):
                    await client.say(f"n{number}.{n}", f"m{number}.{n}")
            assert [without_recall(each) for each in upstream.messages()] == client.history[:-1]
            assert owned or upstream.messages() == client.history[:-1], "memory is only for named users"
            head = client.head
            place = {"conversation": head.conversation, "n": head.turn, "step": head.step, "user": client.user_id}
            replay = await cue.turns.replay(**place)
            assert (replay.verdict, replay.window.dropped) == ("identical", ())
            shown = [json.loads(each) for each in replay.window.messages]
            assert [without_recall(each)["content"] for each in shown] == [
                each["content"] for each in client.history[:-1]
            ]


async def test_a_large_open_result_is_sent_whole_and_older_messages_are_left_out(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, budget__context=4500, budget__reply=500) as cue:
        client = Client(cue, upstream)
        for n in range(30):
            await client.say(f"Question {n} about the harbor. " * 6, f"Answer {n}. " * 6)
        client.history.append({"role": "user", "content": "List the boats."})
        upstream.say(completion("", calls=[call("c1")]))
        client.history.append(json.loads(await client.send())["choices"][0]["message"])
        boats = json.dumps([{"boat": n, "name": f"Boat {n}"} for n in range(150)])
        client.history.append(result("c1", boats))
        upstream.say(completion("Many."))
        await client.send()
        sent = upstream.messages()
        assert [each["role"] for each in sent[-3:]] == ["user", "assistant", "tool"]
        assert sent[-1]["content"] == boats
        replay = await cue.turns.replay(NAME, client.head.turn, step=client.head.step)
        assert replay.verdict == "identical"
        assert replay.window.tokens >= 0.85 * replay.window.budget
        assert {each.reason for each in replay.window.dropped if each.kind == "post"} == {
            "older than the token budget allows"
        }
