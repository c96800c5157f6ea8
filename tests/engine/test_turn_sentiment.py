"""What a turn hears of its message: told in its metadata, kept by the path, passed on to the choice of prompts."""

import asyncio
import json

import pytest
from stage import NAME, Client, bot, config, cue_on, user

from cuebook import Ask, Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.engine.turn.message_signals import heard_of
from cuebook.engine.turn.task_examples import due, embed_kinds
from cuebook.errors import BackendError
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.conversation import Part
from cuebook.signals.task_examples import EXAMPLES
from cuebook.testing import ScriptedModel
from cuebook.testing.embedder import HashingEmbedder
from cuebook.testing.upstream import ScriptedUpstream, call, completion, result

ANGRY = "This is terrible, nothing works and I hate it!!"
CALM = "How do I rename a branch in git?"


@pytest.fixture
def place(tmp_path):
    """Make a folder with a persona that tracks sentiment and one that does not."""
    (tmp_path / "personas").mkdir()
    tracked = {"enabled": True, "cooldownTurns": 2}
    for name, more in (("tracker", {"sentimentTracking": tracked}), ("plain", {})):
        definition = {"id": name, "name": name, "model": "m", "baseSystemPrompt": f"You are {name}.", **more}
        (tmp_path / "personas" / f"{name}.json").write_text(json.dumps(definition))
    return tmp_path


def asked(text, conversation=NAME, persona="tracker", **more):
    return Ask(text, conversation, persona=persona, **more)


async def heard_in(cue, *texts, **more):
    """Ask one after the other; gives what each turn's metadata says of its sentiment."""
    return [(await cue.ask(asked(text, **more))).metadata.get("sentiment") for text in texts]


def fired(found):
    return [each["events"] for each in found]


async def test_a_persona_that_does_not_track_hears_nothing(place):
    async with cue_on(place) as cue:
        assert await heard_in(cue, ANGRY, persona="plain") == [None]


async def test_what_was_heard_is_told_and_kept(place):
    async with cue_on(place) as cue:
        [told] = await heard_in(cue, ANGRY)
        assert told["score"] < -0.3
        assert told["polarity"] == "negative"
        assert told["method"] == "lexicon_based"
        assert told["events"] == ["user_frustrated"]
        assert told["reasons"]["user_frustrated"]["severity"] == "medium"
        kept = (await cue.turns.show(NAME, 1))["metadata"]
        assert kept["sentiment"] == told
        heard = heard_of(kept)
        assert heard is not None
        assert heard.counters.frustration == 1
        assert [event.name for event in heard.events] == ["user_frustrated"]


async def test_counters_go_on_also_after_a_restart_and_what_fired_is_quiet_for_its_cooldown(place):
    async with cue_on(place) as cue:
        first = await heard_in(cue, ANGRY, ANGRY)
    async with cue_on(place, dice=SystemDice()) as cue:
        more = await heard_in(cue, ANGRY, ANGRY, CALM)
    found = first + more
    assert fired(found) == [["user_frustrated"], [], [], ["user_frustrated"], []]
    assert found[3]["reasons"]["user_frustrated"]["severity"] == "high"
    assert [each["counters"].get("frustration", 0) for each in found] == [1, 2, 3, 4, 0]


async def test_a_branch_goes_on_with_what_was_heard_on_it(place):
    async with cue_on(place) as cue:
        await heard_in(cue, CALM)
        fork = (await cue.conversations.posts(NAME))[-1].id
        await heard_in(cue, ANGRY)
        await cue.conversations.move_head(NAME, fork)
        [told] = await heard_in(cue, ANGRY)
        assert told["counters"]["frustration"] == 1
        assert told["counters"]["turns"] == 2
        assert told["events"] == ["user_frustrated"], "the other branch's cool-down is its own"


async def test_another_language_fires_nothing_and_leaves_the_counters(place):
    async with cue_on(place) as cue:
        found = await heard_in(cue, ANGRY, "Das funktioniert immer noch nicht, ich bin total genervt!", ANGRY)
        assert found[1]["polarity"] == "unknown"
        assert found[1]["score"] == 0
        assert [each["counters"]["frustration"] for each in found] == [1, 1, 2]
        assert fired(found)[1] == []


async def test_errors_of_turns_are_counted_and_told_once(place):
    away = ScriptedModel(BackendError("away"), BackendError("away"), default="Noted.")
    async with cue_on(place, model=away) as cue:
        for _ in range(2):
            with pytest.raises(BackendError):
                await cue.ask(asked(CALM))
        found = await heard_in(cue, CALM, CALM, CALM, CALM)
        assert fired(found) == [["error_threshold_exceeded"], [], [], []]
        assert found[0]["reasons"]["error_threshold_exceeded"]["reason"].startswith("2 of the last")


async def test_who_goes_away_is_no_error(place):
    async with cue_on(place) as cue:
        for _ in range(3):
            stream = cue.stream(asked(CALM))
            await anext(stream)
            await stream.aclose()
        assert fired(await heard_in(cue, CALM)) == [[]]


async def test_assembling_hears_as_asking_does_and_keeps_nothing(place):
    async with cue_on(place) as cue:
        await heard_in(cue, CALM)
        windows = [await cue.assemble(asked(ANGRY)) for _ in range(2)]
        assert windows[0].messages == windows[1].messages
        [told] = await heard_in(cue, ANGRY)
        assert told["counters"]["frustration"] == 1


async def test_a_client_of_the_openai_wire_is_heard_once_a_round(place):
    upstream = ScriptedUpstream()
    async with cue_on(place, upstream=upstream) as cue:
        client = Client(cue, upstream)
        await client.say(CALM, model="tracker")
        client.history.append(user(ANGRY))
        upstream.say(completion(calls=[call("c1", "search")]))
        reply = json.loads(await client.send(model="tracker"))
        client.history += [reply["choices"][0]["message"], result("c1", "Error: no such index")]
        upstream.say(completion("Sorry."))
        await client.send(model="tracker")
        shown = await cue.turns.show(NAME, 2)
        told = shown["metadata"]["sentiment"]
        assert len(shown["steps"]) == 2
        assert told["events"] == ["user_frustrated"]
        assert told["counters"]["turns"] == 2


async def test_what_tools_gave_since_counts_as_errors(place):
    upstream = ScriptedUpstream()
    async with cue_on(place, upstream=upstream) as cue:
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
        told = (await cue.turns.show(NAME, 2))["metadata"]["sentiment"]
        assert told["events"] == ["error_threshold_exceeded"]
        assert told["counters"]["trace"] == [True, True, False]


async def test_attachments_that_say_what_was_run_has_failed_count_as_errors(place):
    async with cue_on(place) as cue:
        await heard_in(cue, CALM)
        for kind, said in (
            ("execution_status", "FAILURE"),
            ("execution_status", "SUCCESS"),
            ("code_error", "NameError"),
        ):
            parts = (Part(kind, said),)
            await cue.append(NAME, [Posted(sender="CodeInterpreter", recipient="Planner", message="x", parts=parts)])
        [told] = await heard_in(cue, CALM)
        assert told["counters"]["trace"] == [True, False, True, False]
        assert told["events"] == ["error_threshold_exceeded"]


async def test_a_message_answered_anew_is_not_counted_twice(place):
    upstream = ScriptedUpstream()
    async with cue_on(place, upstream=upstream) as cue:
        client = Client(cue, upstream)
        await client.say(ANGRY, model="tracker")
        client.history.pop()
        upstream.say(completion("Otherwise."))
        await client.send(model="tracker")
        first, second = [(await cue.turns.show(NAME, n))["metadata"]["sentiment"] for n in (1, 2)]
        assert first == second
        client.history.append(bot("Otherwise."))
        await client.say(ANGRY, model="tracker")
        third = (await cue.turns.show(NAME, 3))["metadata"]["sentiment"]
        assert third["counters"]["frustration"] == 2


async def test_a_request_beside_the_path_is_not_heard(place):
    upstream = ScriptedUpstream()
    async with cue_on(place, upstream=upstream) as cue:
        client = Client(cue, upstream)
        await client.say(CALM, model="tracker")
        upstream.say(completion("A title"))
        await client.send([user(f"Give a title: {ANGRY}")], model="tracker")
        assert "sentiment" not in (await cue.turns.show(NAME, 2))["metadata"]
        await client.say(ANGRY, model="tracker")
        third = (await cue.turns.show(NAME, 3))["metadata"]["sentiment"]
        assert third["counters"]["turns"] == 2


async def two_voices(cue):
    """Give the persona `plain` a prompt with two variants: one for those who are frustrated, one for coders."""
    weights = {"main": {"task_coding": 1.0}, "calming": {"user_frustrated": 1.0}}
    slug = "persona/plain"
    await cue.prompts.save(slug, {"body": "Code."}, metadata={"context_weights": weights["main"]})
    await cue.prompts.fork(slug, "calming")
    text = {"body": "Stay calm."}
    await cue.prompts.save(slug, text, branch="calming", metadata={"context_weights": weights["calming"]})


async def unexplored(cue, text, **more):
    """Ask in one new conversation after the other until a variant is chosen by its score; gives that metadata."""
    for n in range(20):
        metadata = (await cue.ask(asked(text, f"{text[:4]}{n}", persona="plain", **more))).metadata
        if not metadata["promptVariants"]["persona/plain"]["explored"]:
            return metadata
    raise AssertionError("it always explores")


async def test_variants_are_chosen_by_what_was_heard(place):
    async with cue_on(place) as cue:
        await two_voices(cue)
        for text, branch, signal in ((ANGRY, "calming", "user_frustrated"), (CALM, "main", "task_coding")):
            metadata = await unexplored(cue, text)
            assert metadata["promptVariant"]["branch"] == branch
            assert metadata["promptVariant"]["signals"][signal] > 0.5
            assert metadata["sentiment"]["events"] == [], "heard for the choice alone"


async def test_signals_of_the_caller_go_before_those_that_were_read(place):
    async with cue_on(place) as cue:
        await two_voices(cue)
        given = {"user_frustrated": 0.0, "sentiment_high": 0.9, "task_coding": 1.0}
        metadata = await unexplored(cue, ANGRY, signals=given)
        assert metadata["promptVariant"]["branch"] == "main"
        said = metadata["promptVariant"]["signals"]
        assert given.items() <= said.items()
        assert "user_pleased" not in said, "it is the other name of a signal that was given"


async def test_topics_are_compared_by_meaning_and_by_words_where_the_embedder_is_out_of_order(place):
    far, near = "Which herbs grow on a shady balcony?", "Which branch does git rename?"
    embedder = HashingEmbedder()
    async with cue_on(place, embedder=embedder) as cue:
        for number, text in enumerate((near, far)):
            told = (await heard_in(cue, CALM, CALM, text, conversation=f"c{number}"))[-1]
            assert (told["signals"]["topic_shift_high"] > 0.9) is (text is far)
        asked_for = len(embedder.asked)
        await heard_in(cue, far, conversation="c2")
        assert len(embedder.asked) == asked_for, "what was embedded is remembered"
        embedder.fails = True
        told = (await heard_in(cue, CALM, "What wine goes with mushroom risotto?", conversation="c3"))[-1]
        assert 0.3 < told["signals"]["topic_shift_high"] <= 0.4


async def test_a_task_no_rule_names_is_told_by_meaning_once_its_examples_are_embedded(place):
    embedder = HashingEmbedder(
        dimension=256, synonyms={"gadget": "function", "contraption": "loop", "thingy": "Python"}
    )
    text = "Explain this contraption over a gadget in thingy"
    async with cue_on(place, embedder=embedder) as cue:
        told = [(await heard_in(cue, text, conversation="c0"))[0]["task"]]
        await cue.settle()
        told += [each["task"] for each in await heard_in(cue, text, "Which wine goes with risotto?", conversation="c1")]
        assert told == ["", "coding", ""]
        before = len(embedder.asked)
        await cue.settle()
        assert not any(each in EXAMPLES["coding"] for each in embedder.asked[before:])


async def test_an_embedder_that_is_out_of_order_leaves_tasks_to_the_rules(place):
    embedder = HashingEmbedder()
    async with cue_on(place, embedder=embedder) as cue:
        assert (await heard_in(cue, CALM))[0]["task"] == "coding"
        embedder.fails = True
        await embed_kinds(cue.desk)
        assert await due(cue.desk) == 0, "it is not asked again and again"
        embedder.fails = False
        assert (await heard_in(cue, CALM))[0]["task"] == "coding"
        assert await due(cue.desk) == 1


async def test_a_method_that_breaks_stops_no_turn(place):
    class Broken:
        name = "broken"

        def read(self, text):
            raise ValueError(text)

    (place / "personas" / "odd.json").write_text(json.dumps({
        "id": "odd", "name": "odd", "baseSystemPrompt": "x",
        "sentimentTracking": {"enabled": True, "method": "broken"},
    }))  # fmt: skip
    opened = Cuebook.open(config(place), model=ScriptedModel(default="Noted."), worker=False, analyzers=[Broken()])
    async with opened as cue:
        [told] = await heard_in(cue, ANGRY, persona="odd")
        assert told["polarity"] == "unknown"
        assert told["events"] == []


async def test_metadata_nobody_can_read_begins_anew(place):
    assert heard_of({}) is None
    assert heard_of({"sentiment": "sad"}) is None
    assert heard_of({"sentiment": {"score": "low"}}) is None
    assert heard_of({"sentiment": {"counters": {"turns": "many"}}}) is None
    async with cue_on(place) as cue:
        await asyncio.gather(*(heard_in(cue, ANGRY, conversation=f"c{n}") for n in range(3)))
