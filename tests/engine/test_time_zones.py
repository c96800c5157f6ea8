"""Tests of time zones: days are computed in the time zone of the conversation."""

import json
from datetime import UTC, datetime

import pytest
from turn_helpers import cue_on, user

from cuebook import Ask
from cuebook.app.cuebook import RelayCall
from cuebook.app.namespace import zone_of
from cuebook.errors import InvalidInput
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion

HERE = "Europe/Amsterdam"


def at(text):
    return datetime.fromisoformat(text).timestamp()


def clock_at(text):
    return FrozenClock(at(text))


def memory_text(window):
    return "\n".join(block.text for block in window.blocks if block.kind == "memory")


async def append_posts(cue, conversation, *statements, zone=None, user=None):
    posts = [{"role": "user", "content": text, "timestamp": at(when)} for when, text in statements]
    await cue.append(conversation, chat(at(statements[0][0])), user=user, time_zone=zone)
    await cue.append(conversation, posts, user=user, time_zone=zone)


def chat(when):
    """Return posts about other topics, from long before."""
    words = "bread cheese rain bus soap lamp chair stone paper glass".split()
    return [
        {"role": "user", "content": f"Nothing new but the {word}.", "timestamp": when - 9e6 - n}
        for n, word in enumerate(words)
    ]


async def first(cue, query, **where):
    hits = await cue.memory.search(query, conversation="c", **where)
    return hits[0].text if hits else ""


async def test_after_midnight_it_is_the_speakers_new_day(tmp_path):
    async with cue_on(tmp_path, clock=clock_at("2026-05-20T12:00+02:00")) as cue:
        await append_posts(
            cue,
            "c",
            ("2026-04-30T12:00+02:00", "The roof was painted green."),
            ("2026-05-01T00:30+02:00", "The roof was painted red."),
            ("2026-05-02T12:00+02:00", "The roof was painted blue."),
            zone=HERE,
        )
        assert await first(cue, "the roof on 1 May") == "The roof was painted red."
        assert (await cue.conversations.get("c")).metadata["timeZone"] == HERE
        window = await cue.assemble(Ask("What colour was the roof painted?", "c", token_budget=2_000))
        assert window.tokens


@pytest.mark.parametrize(
    ("zone", "now", "statements", "question"),
    [
        (HERE, "2026-05-02T09:00+02:00", "2026-05-01T00:30+02:00", "yesterday"),
        (HERE, "2026-05-02T00:20+02:00", "2026-05-01T23:50+02:00", "yesterday"),
        (HERE, "2026-05-11T00:10+02:00", "2026-05-04T00:10+02:00", "last week"),
        (HERE, "2026-05-01T00:10+02:00", "2026-04-01T00:10+02:00", "last month"),
        (HERE, "2026-05-09T12:00+02:00", "2026-05-08T00:10+02:00", "on Friday"),
        (HERE, "2026-06-09T12:00+02:00", "2026-05-01T00:10+02:00", "in May"),
        ("Asia/Kathmandu", "2026-05-02T12:00+05:45", "2026-05-01T02:00+05:45", "yesterday"),
        ("Pacific/Kiritimati", "2026-05-02T12:00+14:00", "2026-05-01T01:00+14:00", "yesterday"),
        ("America/St_Johns", "2026-05-02T23:30-02:30", "2026-05-01T22:00-02:30", "yesterday"),
        (HERE, "2026-03-30T12:00+02:00", "2026-03-29T23:30+02:00", "yesterday"),  # 23 hours long
        (HERE, "2026-10-26T12:00+01:00", "2026-10-25T23:30+01:00", "yesterday"),  # 25 hours long
        (HERE, "2026-10-26T12:00+01:00", "2026-10-25T00:10+02:00", "yesterday"),
    ],
)
async def test_a_day_in_a_question_is_the_askers_day(tmp_path, zone, now, statements, question):
    """The posts a minute before and after that day in the zone are about the same topic."""
    local = datetime.fromisoformat(statements)
    wide = {"last week": 8, "last month": 32, "in May": 32}.get(question, 1)
    before, after = (local.timestamp() + sign * wide * 93_600 for sign in (-1, 1))
    async with cue_on(tmp_path, clock=clock_at(now)) as cue:
        rows = [
            (before, "We sailed the dinghy to Texel."),
            (local.timestamp(), "We sailed the dinghy to Vlieland."),
            (after, "We sailed the dinghy on."),
        ]
        posts = [{"role": "user", "content": text, "timestamp": when} for when, text in rows]
        await cue.append("c", [*chat(before), *posts], time_zone=zone)
        assert await first(cue, f"Where did we sail the dinghy {question}?") == "We sailed the dinghy to Vlieland."


async def test_the_same_question_in_another_zone_means_another_day(tmp_path):
    async with cue_on(tmp_path, clock=clock_at("2026-05-02T12:00+00:00")) as cue:
        await append_posts(
            cue, "c", ("2026-04-30T22:30+00:00", "We sailed to Texel."), ("2026-05-01T22:30+00:00", "We sailed home.")
        )
        assert await first(cue, "Where did we sail yesterday?") == "We sailed home."
        assert await first(cue, "Where did we sail yesterday?", time_zone=HERE) == "We sailed to Texel."


@pytest.mark.parametrize("query", ["What did I say yesterday?", "2026-05-01", "Was war am 1.5.2026?", "2026年5月1日"])
async def test_a_day_alone_finds_its_messages(tmp_path, query):
    days = [("2026-04-29T12:00+00:00", "We sailed."), ("2026-05-01T12:00+00:00", "The mast broke.")]
    async with cue_on(tmp_path, clock=clock_at("2026-05-02T12:00+00:00")) as cue:
        await append_posts(cue, "c", *days, ("2026-05-02T11:00+00:00", "A new one is on its way."))
        assert await first(cue, query) == "The mast broke."


async def test_a_recalled_line_shows_the_speakers_day(tmp_path):
    async with cue_on(tmp_path, clock=clock_at("2026-06-20T12:00+02:00"), memory__user=True) as cue:
        await append_posts(cue, "c", ("2026-05-01T00:30+02:00", "My boat is called Noordster."), zone=HERE, user="ann")
        await cue.settle()
        window = await cue.assemble(Ask("What is my boat called?", "other", user="ann", time_zone=HERE))
        assert "[2026-05-01] My boat" in memory_text(window)
        window = await cue.assemble(Ask("What is my boat called?", "other", user="ann"))
        assert "[2026-04-30] My boat" in memory_text(window)


async def test_a_turns_zone_is_stored_and_applies_until_another_is_named(tmp_path):
    clock = clock_at("2026-05-01T00:30+02:00")
    async with cue_on(tmp_path, clock=clock) as cue:
        await cue.ask(Ask("The cellar was flooded.", "c", time_zone=HERE))
        assert (await cue.conversations.get("c")).metadata["timeZone"] == HERE
        clock.advance(3_600)
        await cue.ask(Ask("The pump was lent by Wim.", "c"))
        clock.advance(86_400)
        reply = await cue.ask(Ask("What was flooded yesterday?", "c"))
        assert reply.text
        for date in ("on 1 May", "on 1 May 2026", "on 2026-05-01", "am 1. Mai"):  # all posts are of this day
            assert await first(cue, f"the cellar {date}") == "The cellar was flooded."
        assert await first(cue, "what was lent yesterday") == "The pump was lent by Wim."
        await cue.ask(Ask("I am in Tokyo now.", "c", time_zone="Asia/Tokyo"))
        assert (await cue.conversations.get("c")).metadata["timeZone"] == "Asia/Tokyo"


async def test_the_configured_zone_applies_by_default(tmp_path):
    clock = clock_at("2026-05-02T12:00+02:00")
    async with cue_on(tmp_path, clock=clock, memory__time_zone=HERE) as cue:
        await append_posts(
            cue, "c", ("2026-05-01T00:30+02:00", "We sailed to Texel."), ("2026-05-02T00:30+02:00", "We sailed home.")
        )
        assert await first(cue, "Where did we sail yesterday?") == "We sailed to Texel."
        assert await first(cue, "Where did we sail yesterday?", time_zone="UTC") == "We sailed home."
    with pytest.raises(InvalidInput, match=r"memory\.time_zone: unknown time zone 'Mars'"):
        async with cue_on(tmp_path, memory__time_zone="Mars"):
            pass


async def test_a_summarys_days_are_the_speakers(tmp_path):
    async with cue_on(tmp_path, clock=clock_at("2026-06-01T12:00+02:00")) as cue:
        statements = [
            ("2026-05-01T00:30+02:00", f"We decided to order {n} oak planks for room {n}.") for n in range(20, 60)
        ]
        await append_posts(cue, "c", *statements, zone=HERE)
        await cue.settle()
        summary = await cue.services.store.summary(Scope(), "c")
        assert "- 1 May: " in summary.markdown
        assert "30 Apr" not in summary.markdown
        window = await cue.assemble(Ask("And now?", "c"))
        assert "summarized up to 2026-05-01" in "".join(each.text for each in window.blocks if each.kind == "summary")


async def test_the_window_does_not_change_with_the_time_of_day(tmp_path):
    clock = clock_at("2026-05-01T00:30+02:00")
    async with cue_on(tmp_path, clock=clock) as cue:
        await cue.ask(Ask("The cellar was flooded.", "c", time_zone=HERE))
        one = await cue.assemble(Ask("What was flooded?", "c"))
        clock.advance(5_000)
        assert (await cue.assemble(Ask("What was flooded?", "c"))).raw_messages == one.raw_messages


async def test_the_openai_wire_takes_a_zone_with_the_request(tmp_path):
    clock = clock_at("2026-05-01T00:30+02:00")
    async with cue_on(tmp_path, clock=clock, upstream=ScriptedUpstream(completion("Noted."))) as cue:

        async def send(zone):
            body = json.dumps({"model": "m", "messages": [user("The cellar was flooded.")]}).encode()
            async for _ in cue.relay(RelayCall(body=body, headers={}, conversation="c", time_zone=zone)):
                pass

        with pytest.raises(InvalidInput, match="X-Time-Zone: unknown time zone"):
            await send("Nowhere/Land")
        await send(HERE)
        assert await first(cue, "the cellar on 1 May") == "The cellar was flooded."
        assert (await cue.conversations.get("c")).metadata["timeZone"] == HERE


@pytest.mark.parametrize(
    "zone",
    ["", "Mars", "Europe", "europe/nowhere", "../etc/passwd", "/etc/localtime", "right/Europe/Berlin", "localtime",
     "Europe/Berlin\n", "+02:00", "x" * 500, "Eur\x00ope", "Factory", "Europe/Berlin/"],
)  # fmt: skip
async def test_an_unknown_zone_is_refused_by_name(tmp_path, zone):
    async with cue_on(tmp_path) as cue:
        for refused in (
            cue.ask(Ask("Hi.", "c", time_zone=zone)),
            cue.assemble(Ask("Hi.", "c", time_zone=zone)),
            cue.append("c", [{"role": "user", "content": "Hi."}], time_zone=zone),
            cue.memory.search("Hi", time_zone=zone),
        ):
            with pytest.raises(InvalidInput) as caught:
                await refused
            assert caught.value.where in ("timeZone", "time_zone")
        assert not (await cue.conversations.list()).items


async def test_a_stored_zone_unknown_to_this_machine_is_ignored(tmp_path):
    async with cue_on(tmp_path, clock=clock_at("2026-05-02T12:00+00:00")) as cue:
        await append_posts(cue, "c", ("2026-05-01T12:00+00:00", "We sailed to Texel."), zone="UTC")
        conversation = await cue.services.store.conversation(Scope(), "c")
        assert conversation.metadata == {"timeZone": "UTC"}
        assert await zone_of(cue.services, "c", user=None, time_zone=None) is UTC
        assert await zone_of(cue.services, "unknown", user=None, time_zone=None) is UTC
