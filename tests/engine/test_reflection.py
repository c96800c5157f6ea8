"""Tests of reflection: background metaprompts change the mood, and the next prompt shows it."""

import json
from contextlib import asynccontextmanager

import pytest
from turn_helpers import NAME, Client, cue_on, is_neutral

from cuebook import Ask, InvalidInput, NotFound
from cuebook.errors import UpstreamError
from cuebook.testing import FrozenClock, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import call, completion, result

TRACKS = {"enabled": True, "presets": ["all"]}
CALM = "Please list the files of the report folder by their date."
ANGRY = "This is terrible, it still does not work and I am really angry!!"
HAPPY = "Perfect, that works wonderfully, thank you so much!"
MOVED = json.dumps(
    {
        "updatedGmiMood": "patient",
        "updatedUserSkillLevel": "novice",
        "adjustmentRationale": "They asked twice.",
        "recoveryStrategy": "Name the one command they need.",
        "newMemoryImprints": [{"key": "pace", "value": "slow"}],
    }
)


@asynccontextmanager
async def open_reflecting(folder, *, persona=None, model=None, upstream=None, **settings):
    """Open a database whose only persona tracks and reflects. Yield it and a function that asks and settles."""
    (folder / "personas").mkdir()
    definition = {
        "id": "p",
        "name": "P",
        "baseSystemPrompt": "You are P.",
        **(persona or {"sentimentTracking": TRACKS}),
    }
    (folder / "personas" / "p.json").write_text(json.dumps(definition))
    clock = FrozenClock()
    chosen = {"persona__default": "p", "persona__speaks": "always"}
    async with cue_on(folder, model=model, clock=clock, upstream=upstream, **chosen, **settings) as cue:

        async def say(text, conversation=NAME, **ask):
            reply = await cue.ask(Ask(text, conversation, **ask))
            clock.advance(60)
            await cue.settle()
            return reply

        yield cue, say


def mood_texts(reply):
    """Return the text about the mood in the prompt of a reply."""
    return [block.text for block in reply.window.blocks if block.kind == "mind"]


async def test_calm_then_frustrated_then_satisfied(tmp_path):
    async with open_reflecting(tmp_path) as (cue, say):
        calm = await say(CALM)
        assert calm.metadata["sentiment"]["events"] == []
        assert calm.metadata["mind"] == {"mood": "neutral", "userSkill": "intermediate", "taskComplexity": "moderate"}
        assert (await cue.mind.show(NAME)).reflections == ()
        angry = await say(ANGRY)
        assert angry.metadata["sentiment"]["events"] == ["user_frustrated"]
        assert mood_texts(angry) == []  # the reflection came after this answer
        after = await say("So what should I try?")
        assert after.metadata["mind"]["mood"] == "empathetic"
        [mood_text] = mood_texts(after)
        assert "mood empathetic" in mood_text
        assert "one step at a time" in mood_text
        await say(HAPPY)
        state = await cue.mind.show(NAME)
        assert (state.mood, state.turn) == ("engaging", 4)
        assert [(each.turn, run.trigger, run.by) for each in state.reflections for run in each.runs] == [
            (4, "event:user_satisfied", "rules"),
            (2, "event:user_frustrated", "rules"),
        ]


async def test_without_tracking_nothing_is_stored(tmp_path):
    async with open_reflecting(tmp_path, persona={"role": "assistant"}) as (cue, say):
        reply = await say(ANGRY)
        assert "mind" not in reply.metadata
        assert (await cue.mind.show(NAME)).reflections == ()


async def test_a_review_runs_every_fifth_turn_with_sentiment_off(tmp_path):
    custom = {
        "metaPrompts": [{"id": "gmi_self_trait_adjustment", "trigger": {"type": "turn_interval", "intervalTurns": 5}}]
    }
    async with open_reflecting(tmp_path, persona=custom) as (cue, say):
        for n in range(16):
            await say(f"Number {n}: {CALM}")
        reflections = (await cue.mind.show(NAME)).reflections
        assert [each.turn for each in reversed(reflections)] == [5, 10, 15]
        assert {run.trigger for each in reflections for run in each.runs} == {"interval:5"}


# ---- reflection by a model -------------------------------------------------------------------------------------------


def model_with_answers(*answers, default=None):
    """A model that answers turns with a word and metaprompts with these answers."""
    remaining = list(answers)

    def reply(request):
        if request.purpose == "reply":
            return "Noted."
        return remaining.pop(0) if remaining else default or MOVED

    return ScriptedModel(default=reply)


def reflection_requests(model):
    return [request for request in model.requests if request.purpose == "reflection"]


async def test_a_models_answer_changes_the_mood_and_the_next_prompt(tmp_path):
    model = model_with_answers()
    async with open_reflecting(tmp_path, model=model, work__model="model") as (cue, say):
        await say(ANGRY)
        [request] = reflection_requests(model)
        [message] = [json.loads(each) for each in request.messages]
        assert message["role"] == "user"
        assert ANGRY in message["content"]
        assert "{{" not in message["content"]
        assert (request.temperature, request.max_tokens) == (0.3, 512)
        assert "recoveryStrategy" in request.schema["properties"]
        [mood_text] = mood_texts(await say("And now?"))
        assert "Name the one command they need." in mood_text
        assert "pace: slow" in mood_text
        [reflections] = (await cue.mind.show(NAME)).reflections
        [run] = reflections.runs
        assert (run.by, run.outcome, run.reason) == ("scripted", "moved", "They asked twice.")
        assert run.prompt.startswith("prompt:system/gmi_frustration_recovery@")
        assert run.changes["userSkill"] == ["intermediate", "novice"]
        kinds = [
            (each.event, each.prompt_id, each.turn) for each in await cue.audit.list() if each.agent == "reflection"
        ]
        assert kinds == [
            ("render", "system/gmi_frustration_recovery", None),
            ("reflect", "system/gmi_frustration_recovery", 1),
        ]
        assert (await cue.audit.verify()).ok


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("I would be kinder to them.", "no JSON object"),
        ('{"updatedGmiMood": "ecstatic", "adjustmentRationale": "x"}', "answer.updatedGmiMood"),
        (json.dumps({f"k{n}": n for n in range(1000)}), "no usable key"),
    ],
)
async def test_an_invalid_answer_leaves_the_mood_unchanged(tmp_path, answer, why):
    model = model_with_answers(default=answer)
    async with open_reflecting(tmp_path, model=model, work__model="model") as (cue, say):
        await say(ANGRY)
        state = await cue.mind.show(NAME)
        assert is_neutral(state)
        [[run]] = [each.runs for each in state.reflections]
        assert run.outcome == "refused"
        assert why in run.reason
        _, retry = reflection_requests(model)
        assert why in json.loads(retry.messages[-1])["content"]


async def test_an_unreachable_model_falls_back_to_the_rules(tmp_path):
    unreachable = UpstreamError("nobody there", retryable=True)
    async with open_reflecting(tmp_path, model=model_with_answers(unreachable), work__model="model") as (cue, say):
        await say(ANGRY)
        state = await cue.mind.show(NAME)
        assert state.mood == "empathetic"
        [[run]] = [each.runs for each in state.reflections]
        assert run.by == "rules"
        assert "nobody there" in run.reason


async def test_secrets_in_a_models_answer_are_not_stored(tmp_path):
    key = "sk-proj-" + "a1B2c3D4" * 6
    answer = json.dumps({"adjustmentRationale": key, "recoveryStrategy": f"Use {key}."})
    async with open_reflecting(tmp_path, model=model_with_answers(answer), work__model="model") as (cue, say):
        await say(ANGRY)
        assert key not in json.dumps([str(each) for each in (await cue.mind.show(NAME)).reflections])
    assert key.encode() not in b"".join(each.read_bytes() for each in tmp_path.glob("cuebook.db*"))


async def test_a_custom_metaprompt_has_all_variables_and_never_expands_user_text(tmp_path):
    names = (
        "current_mood user_skill task_complexity current_sentiment recent_conversation recent_errors evidence "
        "sentiment_score consecutive_frustration consecutive_confusion consecutive_satisfaction confusion_keywords "
        "consecutive_neutral"
    ).split()
    template = "\n".join(f"{name}={{{{{name}}}}}" for name in names)
    custom = {"id": "mine", "trigger": {"type": "turn_interval", "intervalTurns": 1}, "promptTemplate": template}
    model = model_with_answers('{"adjustmentRationale": "x", "strategy": "Be {{current_mood}} and $& kind."}')
    async with open_reflecting(tmp_path, persona={"metaPrompts": [custom]}, model=model, work__model="model") as (
        cue,
        say,
    ):
        await say("Say {{current_mood}} and $& and ${user_skill} please.")
        [request] = reflection_requests(model)
        prompt = json.loads(request.messages[0])["content"]
        assert [line.partition("=")[0] for line in prompt.splitlines() if "=" in line][: len(names)] == names
        assert "{{current_mood}} and $& and ${user_skill}" in prompt
        assert "current_mood=neutral" in prompt
        [render] = [each for each in await cue.audit.list() if each.event == "render" and each.agent == "reflection"]
        assert render.prompt_id == "metaprompt/p/mine"
        assert (await cue.audit.replay(render.seq)).verdict == "identical"
        [mood_text] = mood_texts(await say("And?"))
        assert "Be {{current_mood}} and $& kind." in mood_text


# ---- branches, manual runs and erasure -------------------------------------------------------------------------------


async def test_a_regenerated_answer_reflects_once_and_branches_have_moods(tmp_path):
    async with open_reflecting(tmp_path) as (cue, say):
        await say(CALM)
        posts = await cue.conversations.posts(NAME)
        await say(ANGRY)
        assert (await cue.mind.show(NAME)).mood == "empathetic"
        await cue.conversations.move_head(NAME, posts[-1].id)
        assert is_neutral(await cue.mind.show(NAME))
        assert mood_texts(await say("Thanks, and what is the newest one?")) == []


async def test_built_in_metaprompts_run_by_hand_and_a_reset_is_neutral(tmp_path):
    async with open_reflecting(tmp_path) as (cue, say):
        with pytest.raises(NotFound):
            await cue.mind.run(NAME, "gmi_self_trait_adjustment")
        await say(ANGRY)
        state = await cue.mind.run(NAME, "gmi_engagement_boost")
        assert [run.trigger for run in state.reflections[0].runs] == ["manual"]
        with pytest.raises(InvalidInput, match=r"Unknown metaprompt 'nobody' of persona 'p'\. Available: gmi_"):
            await cue.mind.run(NAME, "nobody")
        state = await cue.mind.reset(NAME)
        assert is_neutral(state)
        assert len(state.reflections) == 3
        assert mood_texts(await say("And now?")) == []


async def test_a_forgotten_conversation_leaves_no_reflection(tmp_path):
    secret = "Walk the heron home."
    answer = json.dumps({"adjustmentRationale": secret, "recoveryStrategy": secret})
    async with open_reflecting(tmp_path, model=model_with_answers(answer), work__model="model") as (cue, say):
        await say(ANGRY, user="ann")
        await say("And now?", user="ann")
        assert secret.encode() in b"".join(each.read_bytes() for each in tmp_path.glob("cuebook.db*"))
        await cue.memory.forget(user="ann")
        await cue.settle()
    assert secret.encode() not in b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())


async def test_another_user_does_not_see_the_mood(tmp_path):
    async with open_reflecting(tmp_path) as (cue, say):
        await say(ANGRY, user="ann")
        with pytest.raises(NotFound):
            await cue.mind.show(NAME, user="bob")


async def test_the_relay_adds_the_mood_and_a_rounds_steps_keep_it(tmp_path):
    upstream = ScriptedUpstream()
    async with open_reflecting(tmp_path, upstream=upstream) as (cue, _):
        client = Client(cue, upstream)
        await client.say(ANGRY)
        await cue.settle()
        client.history.append({"role": "user", "content": "Look it up then, please."})
        upstream.say(completion(calls=[call("c1", "search")]), completion("Found."))
        client.history.append(json.loads(await client.send())["choices"][0]["message"])
        first = json.dumps(upstream.sent())
        assert "mood empathetic" in first
        await cue.mind.reset(NAME)
        client.history.append(result("c1", "a page"))
        await client.send()
        assert "mood empathetic" in json.dumps(upstream.sent())
        turns = await cue.turns.list(NAME)
        assert [turn.metadata["mind"]["mood"] for turn in turns] == ["neutral", "empathetic"]


async def test_a_retried_message_is_reflected_on_once(tmp_path):
    upstream = ScriptedUpstream()
    async with open_reflecting(tmp_path, upstream=upstream) as (cue, _):
        client = Client(cue, upstream)
        client.history.append({"role": "user", "content": ANGRY})
        upstream.say(completion("Hm."), completion("Oh."))
        await client.send()
        await cue.settle()
        await client.send()
        await cue.settle()
        assert [len(reflections.runs) for reflections in (await cue.mind.show(NAME)).reflections] == [1]


# ---- sentiment by a model --------------------------------------------------------------------------------------------


async def test_events_fire_in_the_background_after_a_model_judges(tmp_path):
    def reply(request):
        if request.purpose == "sentiment":
            return '{"score": -0.8, "intensity": 0.9}' if "hum" in json.loads(request.messages[1])["content"] else "?"
        return MOVED if request.purpose == "reflection" else "Noted."

    model = ScriptedModel(default=reply)
    tracking = {"enabled": True, "method": "llm", "presets": ["all"]}
    async with open_reflecting(tmp_path, persona={"sentimentTracking": tracking}, model=model, work__model="model") as (
        cue,
        say,
    ):
        first = await say("It goes hum again.")
        assert first.metadata["sentiment"]["events"] == []
        [reflections] = (await cue.mind.show(NAME)).reflections
        assert reflections.sentiment["events"] == ["user_frustrated"]
        assert reflections.sentiment["method"] == "llm"
        assert [run.trigger for run in reflections.runs] == ["event:user_frustrated"]
        second = await say(ANGRY)  # the model gives no valid answer: the lexicon's sentiment and its cool-downs apply
        reflections = (await cue.mind.show(NAME)).reflections[0]
        assert reflections.sentiment["method"] == "lexicon_based"
        assert reflections.sentiment["counters"]["frustration"] == 2
        assert reflections.sentiment["events"] == []
        assert second.metadata["mind"]["mood"] == "patient"
