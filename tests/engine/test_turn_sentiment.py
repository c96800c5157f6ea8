"""Tests of a turn's sentiment: its metadata, its storage on the path and the choice of prompts."""

import asyncio
import json

import pytest
from turn_helpers import NAME, Client, bot, config, cue_on, user

from cuebook import Ask, Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.engine.jobs.embedding import TASK_EXAMPLES
from cuebook.engine.jobs.job import DueQuery, run_due
from cuebook.engine.turn.turn_signals import signals_in
from cuebook.errors import BackendError
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.answer import to_wire
from cuebook.records.conversation import Part
from cuebook.signals.tasks import examples
from cuebook.testing import ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from hashing_embedder import HashingEmbedder
from scripted_answers import call, completion, result

ANGRY = "This is terrible, nothing works and I hate it!!"
CALM = "How do I rename a branch in git?"


@pytest.fixture
def project(tmp_path):
    """Create a folder with a persona that tracks sentiment and one that does not."""
    (tmp_path / "personas").mkdir()
    tracked = {"enabled": True, "cooldownTurns": 2}
    for name, more in (("tracker", {"sentimentTracking": tracked}), ("plain", {})):
        definition = {"id": name, "name": name, "model": "m", "baseSystemPrompt": f"You are {name}.", **more}
        (tmp_path / "personas" / f"{name}.json").write_text(json.dumps(definition))
    return tmp_path


def ask_of(text, conversation=NAME, persona="tracker", **more):
    return Ask(text, conversation, persona=persona, **more)


async def sentiments_of(cue, *texts, **more):
    """Ask in order. Return the sentiment in each turn's metadata."""
    return [(await cue.ask(ask_of(text, **more))).metadata.get("sentiment") for text in texts]


def events_of(sentiments):
    return [each["events"] for each in sentiments]


async def test_a_persona_without_tracking_has_no_sentiment(project):
    async with cue_on(project) as cue:
        assert await sentiments_of(cue, ANGRY, persona="plain") == [None]


async def test_sentiment_is_reported_and_stored(project):
    async with cue_on(project) as cue:
        [sentiment] = await sentiments_of(cue, ANGRY)
        assert sentiment["score"] < -0.3
        assert sentiment["polarity"] == "negative"
        assert sentiment["method"] == "lexicon_based"
        assert sentiment["events"] == ["user_frustrated"]
        assert sentiment["reasons"]["user_frustrated"]["severity"] == "medium"
        stored = to_wire(await cue.turns.show(NAME, 1))["metadata"]
        assert stored["sentiment"] == sentiment
        parsed = signals_in(stored)
        assert parsed is not None
        assert parsed.counters.frustration == 1
        assert [event.name for event in parsed.events] == ["user_frustrated"]


async def test_counters_survive_a_restart_and_events_have_a_cooldown(project):
    async with cue_on(project) as cue:
        first = await sentiments_of(cue, ANGRY, ANGRY)
    async with cue_on(project, dice=SystemDice()) as cue:
        more = await sentiments_of(cue, ANGRY, ANGRY, CALM)
    sentiments = first + more
    assert events_of(sentiments) == [["user_frustrated"], [], [], ["user_frustrated"], []]
    assert sentiments[3]["reasons"]["user_frustrated"]["severity"] == "high"
    assert [each["counters"].get("frustration", 0) for each in sentiments] == [1, 2, 3, 4, 0]


async def test_a_branch_continues_its_own_counters(project):
    async with cue_on(project) as cue:
        await sentiments_of(cue, CALM)
        fork = (await cue.conversations.posts(NAME))[-1].id
        await sentiments_of(cue, ANGRY)
        await cue.conversations.move_head(NAME, fork)
        [sentiment] = await sentiments_of(cue, ANGRY)
        assert sentiment["counters"]["frustration"] == 1
        assert sentiment["counters"]["turns"] == 2
        assert sentiment["events"] == ["user_frustrated"], "the other branch has its own cool-down"


async def test_another_language_fires_no_event_and_keeps_the_counters(project):
    async with cue_on(project) as cue:
        sentiments = await sentiments_of(cue, ANGRY, "Das funktioniert immer noch nicht, ich bin total genervt!", ANGRY)
        assert sentiments[1]["polarity"] == "unknown"
        assert sentiments[1]["score"] == 0
        assert [each["counters"]["frustration"] for each in sentiments] == [1, 1, 2]
        assert events_of(sentiments)[1] == []


async def test_errors_of_turns_are_counted_and_reported_once(project):
    away = ScriptedModel(BackendError("away"), BackendError("away"), default="Noted.")
    async with cue_on(project, model=away) as cue:
        for _ in range(2):
            with pytest.raises(BackendError):
                await cue.ask(ask_of(CALM))
        sentiments = await sentiments_of(cue, CALM, CALM, CALM, CALM)
        assert events_of(sentiments) == [["error_threshold_exceeded"], [], [], []]
        assert sentiments[0]["reasons"]["error_threshold_exceeded"]["reason"].startswith("2 of the last")


async def test_a_disconnect_is_not_an_error(project):
    async with cue_on(project) as cue:
        for _ in range(3):
            stream = cue.stream(ask_of(CALM))
            await anext(stream)
            await stream.aclose()
        assert events_of(await sentiments_of(cue, CALM)) == [[]]


async def test_assemble_computes_the_same_sentiment_and_stores_nothing(project):
    async with cue_on(project) as cue:
        await sentiments_of(cue, CALM)
        windows = [await cue.assemble(ask_of(ANGRY)) for _ in range(2)]
        assert windows[0].messages == windows[1].messages
        [sentiment] = await sentiments_of(cue, ANGRY)
        assert sentiment["counters"]["frustration"] == 1


async def test_a_relayed_message_is_classified_once_a_round(project):
    upstream = ScriptedUpstream()
    async with cue_on(project, upstream=upstream) as cue:
        client = Client(cue, upstream)
        await client.say(CALM, model="tracker")
        client.history.append(user(ANGRY))
        upstream.say(completion(calls=[call("c1", "search")]))
        reply = json.loads(await client.send(model="tracker"))
        client.history += [reply["choices"][0]["message"], result("c1", "Error: no such index")]
        upstream.say(completion("Sorry."))
        await client.send(model="tracker")
        record = to_wire(await cue.turns.show(NAME, 2))
        sentiment = record["metadata"]["sentiment"]
        assert len(record["steps"]) == 2
        assert sentiment["events"] == ["user_frustrated"]
        assert sentiment["counters"]["turns"] == 2


async def test_tool_results_since_the_last_query_count_as_errors(project):
    upstream = ScriptedUpstream()
    async with cue_on(project, upstream=upstream) as cue:
        client = Client(cue, upstream)
        client.history.append(user(CALM))
        for n in range(2):
            upstream.say(completion(calls=[call(f"c{n}", "search")]))
            reply = json.loads(await client.send(model="tracker"))
            client.history += [reply["choices"][0]["message"], result(f"c{n}", '{"error": "no such index"}')]
        upstream.say(completion("It fails."))
        reply = json.loads(await client.send(model="tracker"))
        client.history.append(reply["choices"][0]["message"])
        await client.say("And with the other index?", model="tracker")
        sentiment = to_wire(await cue.turns.show(NAME, 2))["metadata"]["sentiment"]
        assert sentiment["events"] == ["error_threshold_exceeded"]
        assert sentiment["counters"]["trace"] == [True, True, False]


async def test_attachments_that_report_a_failed_run_count_as_errors(project):
    async with cue_on(project) as cue:
        await sentiments_of(cue, CALM)
        for kind, content in (
            ("execution_status", "FAILURE"),
            ("execution_status", "SUCCESS"),
            ("code_error", "NameError"),
        ):
            parts = (Part(kind, content),)
            await cue.append(NAME, [Posted(sender="CodeInterpreter", recipient="Planner", message="x", parts=parts)])
        [sentiment] = await sentiments_of(cue, CALM)
        assert sentiment["counters"]["trace"] == [True, False, True, False]
        assert sentiment["events"] == ["error_threshold_exceeded"]


async def test_a_regenerated_answer_does_not_count_the_message_twice(project):
    upstream = ScriptedUpstream()
    async with cue_on(project, upstream=upstream) as cue:
        client = Client(cue, upstream)
        await client.say(ANGRY, model="tracker")
        client.history.pop()
        upstream.say(completion("Otherwise."))
        await client.send(model="tracker")
        first, second = [to_wire(await cue.turns.show(NAME, n))["metadata"]["sentiment"] for n in (1, 2)]
        assert first == second
        client.history.append(bot("Otherwise."))
        await client.say(ANGRY, model="tracker")
        third = to_wire(await cue.turns.show(NAME, 3))["metadata"]["sentiment"]
        assert third["counters"]["frustration"] == 2


async def test_a_request_beside_the_path_is_not_classified(project):
    upstream = ScriptedUpstream()
    async with cue_on(project, upstream=upstream) as cue:
        client = Client(cue, upstream)
        await client.say(CALM, model="tracker")
        upstream.say(completion("A title"))
        await client.send([user(f"Give a title: {ANGRY}")], model="tracker")
        assert "sentiment" not in to_wire(await cue.turns.show(NAME, 2))["metadata"]
        await client.say(ANGRY, model="tracker")
        third = to_wire(await cue.turns.show(NAME, 3))["metadata"]["sentiment"]
        assert third["counters"]["turns"] == 2


async def add_two_variants(cue):
    """Give the persona `plain` a prompt with two variants: for frustrated users and for coders."""
    weights = {"main": {"task_coding": 1.0}, "calming": {"user_frustrated": 1.0}}
    slug = "persona/plain"
    await cue.prompts.save(slug, {"body": "Code."}, metadata={"context_weights": weights["main"]})
    await cue.prompts.fork(slug, "calming")
    text = {"body": "Stay calm."}
    await cue.prompts.save(slug, text, branch="calming", metadata={"context_weights": weights["calming"]})


async def ask_until_scored(cue, text, **more):
    """Ask in new conversations until a variant is selected by its score. Return that metadata."""
    for n in range(20):
        metadata = (await cue.ask(ask_of(text, f"{text[:4]}{n}", persona="plain", **more))).metadata
        if not metadata["promptVariants"]["persona/plain"]["explored"]:
            return metadata
    raise AssertionError("it always explores")


async def test_sentiment_selects_variants(project):
    async with cue_on(project) as cue:
        await add_two_variants(cue)
        for text, branch, signal in ((ANGRY, "calming", "user_frustrated"), (CALM, "main", "task_coding")):
            metadata = await ask_until_scored(cue, text)
            assert metadata["promptVariant"]["branch"] == branch
            assert metadata["promptVariant"]["signals"][signal] > 0.5
            assert metadata["sentiment"]["events"] == [], "classified for the selection only"


async def test_the_callers_signals_override_detected_ones(project):
    async with cue_on(project) as cue:
        await add_two_variants(cue)
        given_signals = {"user_frustrated": 0.0, "sentiment_high": 0.9, "task_coding": 1.0}
        metadata = await ask_until_scored(cue, ANGRY, signals=given_signals)
        assert metadata["promptVariant"]["branch"] == "main"
        used_signals = metadata["promptVariant"]["signals"]
        assert given_signals.items() <= used_signals.items()
        assert "user_pleased" not in used_signals, "it is the other name of a given signal"


async def test_topics_are_compared_by_meaning_or_by_words_without_an_embedder(project):
    far, near = "Which herbs grow on a shady balcony?", "Which branch does git rename?"
    embedder = HashingEmbedder()
    async with cue_on(project, embedder=embedder) as cue:
        for number, text in enumerate((near, far)):
            sentiment = (await sentiments_of(cue, CALM, CALM, text, conversation=f"c{number}"))[-1]
            assert (sentiment["signals"]["topic_shift_high"] > 0.9) is (text is far)
        call_count = len(embedder.asked)
        await sentiments_of(cue, far, conversation="c2")
        assert len(embedder.asked) == call_count, "vectors are cached"
        embedder.fails = True
        sentiment = (await sentiments_of(cue, CALM, "What wine goes with mushroom risotto?", conversation="c3"))[-1]
        assert 0.3 < sentiment["signals"]["topic_shift_high"] <= 0.4


async def test_an_unmatched_task_is_classified_by_meaning(project):
    embedder = HashingEmbedder(
        dimension=256, synonyms={"gadget": "function", "contraption": "loop", "thingy": "Python"}
    )
    text = "Explain this contraption over a gadget in thingy"
    async with cue_on(project, embedder=embedder) as cue:
        sentiment = [(await sentiments_of(cue, text, conversation="c0"))[0]["task"]]
        await cue.settle()
        sentiment += [
            each["task"] for each in await sentiments_of(cue, text, "Which wine goes with risotto?", conversation="c1")
        ]
        assert sentiment == ["", "coding", ""]
        before = len(embedder.asked)
        await cue.settle()
        assert not any(each in examples()["coding"] for each in embedder.asked[before:])


async def test_a_failing_embedder_leaves_task_rules(project):
    embedder = HashingEmbedder()
    async with cue_on(project, embedder=embedder) as cue:
        assert (await sentiments_of(cue, CALM))[0]["task"] == "coding"
        embedder.fails = True
        assert (await run_due(cue.services, TASK_EXAMPLES)).done == 0
        assert await TASK_EXAMPLES.due(cue.services, DueQuery()) == [], "it is not called repeatedly"
        embedder.fails = False
        assert (await sentiments_of(cue, CALM))[0]["task"] == "coding"
        assert await TASK_EXAMPLES.due(cue.services, DueQuery())


async def test_a_failing_method_stops_no_turn(project):
    class Broken:
        name = "broken"

        def read(self, text):
            raise ValueError(text)

    (project / "personas" / "odd.json").write_text(json.dumps({
        "id": "odd", "name": "odd", "baseSystemPrompt": "x",
        "sentimentTracking": {"enabled": True, "method": "broken"},
    }))  # fmt: skip
    handle = Cuebook.open(config(project), model=ScriptedModel(default="Noted."), worker=False, analyzers=[Broken()])
    async with handle as cue:
        [sentiment] = await sentiments_of(cue, ANGRY, persona="odd")
        assert sentiment["polarity"] == "unknown"
        assert sentiment["events"] == []


async def test_unreadable_metadata_is_started_anew(project):
    assert signals_in({}) is None
    assert signals_in({"sentiment": "sad"}) is None
    assert signals_in({"sentiment": {"score": "low"}}) is None
    assert signals_in({"sentiment": {"counters": {"turns": "many"}}}) is None
    async with cue_on(project) as cue:
        await asyncio.gather(*(sentiments_of(cue, ANGRY, conversation=f"c{n}") for n in range(3)))
