"""Tests of metaprompts: when they run, how their answers are parsed, and how answers change the mood state."""

import json
import re

import pytest
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.records.mind import Event, MoodState
from cuebook.records.persona import Metaprompt, SentimentTracking, Trigger
from cuebook.signals.metaprompts import (
    COMPLEXITIES,
    IMPRINTS,
    MOODS,
    PRESETS,
    SELF,
    SHIPPED,
    SKILLS,
    changes_of,
    describe_mood,
    fires,
    metaprompts_of,
    read_answer,
    schema_of,
)

FRUSTRATION = PRESETS["frustration_recovery"]
MIND = MoodState(mood="focused", user_skill="expert", strategy="Be brief.", imprints={"likes": "tables"})


def answered(metaprompt=FRUSTRATION, mind=MIND, **keys):
    text = json.dumps({"adjustmentRationale": "because", **keys})
    return read_answer(text, metaprompt, mind)[0]


def every(n, id_="own"):
    return Metaprompt(id=id_, trigger=Trigger(type="turn_interval", interval_turns=n))


# ---- selection and triggers
# -------------------------------------------------------------------------------------------


def test_presets_need_sentiment_tracking_and_custom_metaprompts_do_not():
    own = [every(5)]
    some = SentimentTracking(enabled=True, presets=("error_recovery", "engagement_boost"))
    assert [each.id for each in metaprompts_of(own, some)] == ["gmi_error_recovery", "gmi_engagement_boost", "own"]
    assert [each.id for each in metaprompts_of(own, replace(some, enabled=False))] == ["own"]
    everything = metaprompts_of([], SentimentTracking(enabled=True, presets=("all",)))
    assert [each.id for each in everything] == [each.id for each in PRESETS.values()]


def test_a_custom_metaprompt_can_replace_its_preset():
    [named] = metaprompts_of(
        [Metaprompt(id=SELF, trigger=Trigger(type="turn_interval", interval_turns=7))], SentimentTracking()
    )
    assert (named.key, named.trigger.interval_turns, named.strategy) == (SELF, 7, SHIPPED[SELF].strategy)
    own = replace(FRUSTRATION, key="", template="Only {{current_mood}}.")
    found = metaprompts_of([own], SentimentTracking(enabled=True, presets=("frustration_recovery",)))
    assert [(each.key, each.template) for each in found] == [("", "Only {{current_mood}}.")]


def test_an_interval_of_five_runs_at_five_ten_fifteen():
    assert [n for n in range(21) if fires([every(5)], events=(), turns=n)] == [5, 10, 15, 20]


def test_event_metaprompts_run_before_interval_metaprompts():
    asked = fires([every(1), FRUSTRATION], events=(Event(name="user_frustrated"),), turns=3)
    assert [trigger for _, trigger in asked] == ["event:user_frustrated", "interval:1"]
    assert fires([FRUSTRATION], events=(Event(name="user_confused"),), turns=3) == ()


def test_manual_metaprompts_never_run_automatically():
    assert fires([Metaprompt(id="m", trigger=Trigger(type="manual"))], events=(), turns=1) == ()


# ---- parsing of answers
# -----------------------------------------------------------------------------------------------


def test_an_answer_changes_only_the_named_fields():
    mind = answered(
        updatedGmiMood="Empathetic",
        updatedUserSkillLevel=" novice",
        recoveryStrategy="Say sorry.\nGive one step.",
        newMemoryImprints=[{"key": "imprint.pace", "value": "slow", "description": "said twice"}],
    )
    assert mind == MoodState(
        mood="empathetic",
        user_skill="novice",
        strategy="Say sorry. Give one step.",
        imprints={"likes": "tables", "pace": "slow"},
    )
    assert answered() == MIND
    assert answered(updatedGmiMood=None, recoveryStrategy=None, newMemoryImprints=None) == MIND


@pytest.mark.parametrize("wrapped", ["```json\n{}\n```", "Here it is: {} I hope it helps.", "  {}  "])
def test_an_answer_may_be_inside_a_fence_or_text(wrapped):
    text = wrapped.replace("{}", '{"adjustmentRationale": "x", "updatedGmiMood": "playful"}')
    assert read_answer(text, FRUSTRATION, MIND)[0].mood == "playful"


def test_every_mood_in_the_prompts_is_valid():
    for mood in MOODS:
        assert answered(updatedGmiMood=mood).mood == mood
    for skill in SKILLS:
        assert answered(updatedUserSkillLevel=skill).user_skill == skill
    for complexity in COMPLEXITIES:
        assert answered(updatedTaskComplexity=complexity).task_complexity == complexity


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"updatedGmiMood": "ecstatic"}, "answer.updatedGmiMood"),
        ({"updatedUserSkillLevel": "<script>"}, "answer.updatedUserSkillLevel"),
        ({"updatedTaskComplexity": 3}, "answer.updatedTaskComplexity"),
        ({"recoveryStrategy": ["be", "kind"]}, "answer.recoveryStrategy"),
        ({"adjustmentRationale": {"why": "so"}}, "answer.adjustmentRationale"),
        ({"newMemoryImprints": [{"key": "a"}]}, "answer.newMemoryImprints[0]"),
        ({"newMemoryImprints": [{"key": "a", "value": {"deep": 1}}]}, "answer.newMemoryImprints[0].value"),
        ({"newMemoryImprints": ["a"]}, "answer.newMemoryImprints[0]"),
        ({"newMemoryImprints": [{"key": "../state", "value": "b"}]}, "answer.newMemoryImprints[0].key"),
        ({"newMemoryImprints": [{"key": "{{current_mood}}", "value": "b"}]}, "answer.newMemoryImprints[0].key"),
    ],
)
def test_an_invalid_part_is_ignored_and_named(keys, where):
    with pytest.raises(InvalidInput, match=re.escape(where)):
        read_answer(json.dumps(keys), FRUSTRATION, MIND)
    valid = {"updatedGmiMood": "playful", "updatedUserSkillLevel": "novice"}
    mind, why = read_answer(json.dumps(valid | keys), FRUSTRATION, MIND)
    assert mind != MIND
    assert f"ignored {where}: " in why


@pytest.mark.parametrize("text", ["", "I would be kinder.", "[]", '"x"', "[" * 50_000, "null", "NaN"])
def test_an_answer_without_json_object_is_rejected(text):
    with pytest.raises(InvalidInput, match="no JSON object"):
        read_answer(text, FRUSTRATION, MIND)


def test_a_short_broken_answer_is_repaired():
    mind, why = read_answer(
        "```json\n{'updatedGmiMood': ' Playful', 'recoveryStrategy': null,}\n```", FRUSTRATION, MIND
    )
    assert (mind, why) == (replace(MIND, mood="playful"), "")
    with pytest.raises(InvalidInput, match="no usable key"):
        read_answer(json.dumps({f"k{n}": n for n in range(1000)}), FRUSTRATION, MIND)


def test_state_field_names_are_ordinary_imprint_keys():
    names = ("mood", "user_skill", "gmi_sentiment_history", "manual_trigger_x", "strategy")
    mind = answered(newMemoryImprints=[{"key": name, "value": "mine"} for name in names])
    assert (mind.mood, mind.user_skill, mind.strategy) == (MIND.mood, MIND.user_skill, MIND.strategy)
    assert {name: mind.imprints[name] for name in names} == dict.fromkeys(names, "mine")


def test_the_newest_imprints_are_kept():
    mind = MIND
    for n in range(IMPRINTS + 4):
        mind = answered(
            mind=mind, newMemoryImprints=[{"key": f"k{n}", "value": str(n)}, {"key": "k0", "value": "again"}]
        )
    assert len(mind.imprints) == IMPRINTS
    assert "k0" in mind.imprints
    assert "k1" not in mind.imprints


def test_the_schema_names_the_strategys_own_key():
    assert "recoveryStrategy" in schema_of(FRUSTRATION)["properties"]
    assert "strategy" in schema_of(every(5))["properties"]
    with pytest.raises(InvalidInput, match="adjustmentRationale"):
        read_answer("{}", every(5), MIND)


# ---- rendering
# --------------------------------------------------------------------------------------------------------


def test_the_rendered_mood_lists_only_changed_fields():
    assert describe_mood(MoodState()) == ""
    said = describe_mood(MIND)
    assert "mood focused" in said
    assert "skill: expert" in said
    assert "Be brief." in said
    assert "likes: tables" in said


def test_changes_list_old_and_new_values():
    after = replace(MIND, mood="playful", imprints={"pace": "slow"})
    assert changes_of(MIND, after) == {
        "mood": ["focused", "playful"],
        "imprint.likes": ["tables", None],
        "imprint.pace": [None, "slow"],
    }
    assert changes_of(MIND, MIND) == {}
