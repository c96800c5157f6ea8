"""Which metaprompts run when, what answers to them hold, and how they move the Mind."""

import json

import pytest
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.records.mind import Event, Mind
from cuebook.records.persona import Metaprompt, Tracking, Trigger
from cuebook.signals.metaprompts import (
    COMPLEXITIES,
    EXTRA_KEYS,
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
MIND = Mind(mood="focused", user_skill="expert", strategy="Be brief.", imprints={"likes": "tables"})


def answered(metaprompt=FRUSTRATION, mind=MIND, **keys):
    text = json.dumps({"adjustmentRationale": "because", **keys})
    return read_answer(text, metaprompt, mind)[0]


def every(n, id_="own"):
    return Metaprompt(id=id_, trigger=Trigger(type="turn_interval", interval_turns=n))


# ---- which there are, and when ---------------------------------------------------------------------------------------


def test_presets_run_while_sentiment_is_tracked_and_own_ones_always():
    own = [every(5)]
    some = Tracking(enabled=True, presets=("error_recovery", "engagement_boost"))
    assert [each.id for each in metaprompts_of(own, some)] == ["gmi_error_recovery", "gmi_engagement_boost", "own"]
    assert [each.id for each in metaprompts_of(own, replace(some, enabled=False))] == ["own"]
    everything = metaprompts_of([], Tracking(enabled=True, presets=("all",)))
    assert [each.id for each in everything] == [each.id for each in PRESETS.values()]


def test_one_that_ships_is_named_without_a_text_and_an_own_one_stands_for_its_preset():
    [named] = metaprompts_of([Metaprompt(id=SELF, trigger=Trigger(type="turn_interval", interval_turns=7))], Tracking())
    assert (named.key, named.trigger.interval_turns, named.strategy) == (SELF, 7, SHIPPED[SELF].strategy)
    own = replace(FRUSTRATION, key="", template="Only {{current_mood}}.")
    found = metaprompts_of([own], Tracking(enabled=True, presets=("frustration_recovery",)))
    assert [(each.key, each.template) for each in found] == [("", "Only {{current_mood}}.")]


def test_an_interval_of_five_fires_at_five_ten_and_fifteen():
    assert [n for n in range(21) if fires([every(5)], events=(), turns=n)] == [5, 10, 15, 20]


def test_events_fire_theirs_before_intervals_do():
    asked = fires([every(1), FRUSTRATION], events=(Event(name="user_frustrated"),), turns=3)
    assert [each.trigger for each in asked] == ["event:user_frustrated", "interval:1"]
    assert [each.event for each in asked] == ["user_frustrated", ""]
    assert fires([FRUSTRATION], events=(Event(name="user_confused"),), turns=3) == ()


def test_by_hand_nothing_fires_by_itself():
    assert fires([Metaprompt(id="m", trigger=Trigger(type="manual"))], events=(), turns=1) == ()


# ---- what answers hold -----------------------------------------------------------------------------------------------


def test_an_answer_moves_what_it_names_and_nothing_else():
    mind = answered(
        updatedGmiMood="Empathetic",
        updatedUserSkillLevel=" novice",
        recoveryStrategy="Say sorry.\nGive one step.",
        newMemoryImprints=[{"key": "imprint.pace", "value": "slow", "description": "said twice"}],
    )
    assert mind == Mind(
        mood="empathetic",
        user_skill="novice",
        strategy="Say sorry. Give one step.",
        imprints={"likes": "tables", "pace": "slow"},
    )
    assert answered() == MIND
    assert answered(updatedGmiMood=None, recoveryStrategy=None, newMemoryImprints=None) == MIND


@pytest.mark.parametrize("wrapped", ["```json\n{}\n```", "Here it is: {} I hope it helps.", "  {}  "])
def test_an_answer_may_stand_in_a_fence_or_among_words(wrapped):
    text = wrapped.replace("{}", '{"adjustmentRationale": "x", "updatedGmiMood": "playful"}')
    assert read_answer(text, FRUSTRATION, MIND)[0].mood == "playful"


def test_every_mood_the_prompts_name_is_one_that_holds():
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
        ({"updatedTaskComplexity": "ultra"}, "answer.updatedTaskComplexity"),
        ({"updatedTaskComplexity": 3}, "answer.updatedTaskComplexity"),
        ({"recoveryStrategy": ["be", "kind"]}, "answer.recoveryStrategy"),
        ({"recoveryStrategy": "x" * 5_000}, "answer.recoveryStrategy"),
        ({"adjustmentRationale": {"why": "so"}}, "answer.adjustmentRationale"),
        ({"newMemoryImprints": {"key": "a", "value": "b"}}, "answer.newMemoryImprints"),
        ({"newMemoryImprints": [{"key": "a"}]}, "answer.newMemoryImprints[0]"),
        ({"newMemoryImprints": [{"key": "a", "value": {"deep": 1}}]}, "answer.newMemoryImprints[0].value"),
        ({"newMemoryImprints": ["a"]}, "answer.newMemoryImprints[0]"),
        ({"newMemoryImprints": [{"key": "../state", "value": "b"}]}, "answer.newMemoryImprints[0].key"),
        ({"newMemoryImprints": [{"key": "{{current_mood}}", "value": "b"}]}, "answer.newMemoryImprints[0].key"),
        ({"newMemoryImprints": [{"key": f"k{n}", "value": "b"} for n in range(9)]}, "answer.newMemoryImprints"),
        ({f"k{n}": n for n in range(1000)}, "answer"),
    ],
)
def test_an_answer_that_does_not_hold_is_refused_whole_with_its_place(keys, where):
    with pytest.raises(InvalidInput) as refused:
        answered(**{"updatedGmiMood": "playful", **keys})
    assert refused.value.where == where


@pytest.mark.parametrize("text", ["", "I would be kinder.", "[]", '"x"', "{", "{'a': 1}", "[" * 50_000, "null", "NaN"])
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(InvalidInput, match="no JSON object"):
        read_answer(text, FRUSTRATION, MIND)


def test_without_a_rationale_it_does_not_hold():
    with pytest.raises(InvalidInput, match="adjustmentRationale"):
        read_answer('{"updatedGmiMood": "playful"}', FRUSTRATION, MIND)


def test_some_keys_too_many_are_passed_over():
    assert answered(**{f"k{n}": n for n in range(EXTRA_KEYS)}, updatedGmiMood="playful").mood == "playful"


def test_keys_of_the_state_itself_are_imprints_like_any_other():
    names = ("mood", "user_skill", "gmi_sentiment_history", "manual_trigger_x", "strategy")
    mind = answered(newMemoryImprints=[{"key": name, "value": "mine"} for name in names])
    assert (mind.mood, mind.user_skill, mind.strategy) == (MIND.mood, MIND.user_skill, MIND.strategy)
    assert {name: mind.imprints[name] for name in names} == dict.fromkeys(names, "mine")


def test_the_newest_imprints_are_kept_and_a_key_said_again_is_new():
    mind = MIND
    for n in range(IMPRINTS + 4):
        mind = answered(
            mind=mind, newMemoryImprints=[{"key": f"k{n}", "value": str(n)}, {"key": "k0", "value": "again"}]
        )
    assert len(mind.imprints) == IMPRINTS
    assert "k0" in mind.imprints
    assert "k1" not in mind.imprints


def test_the_schema_names_the_strategy_s_own_key():
    assert "recoveryStrategy" in schema_of(FRUSTRATION)["properties"]
    assert "strategy" in schema_of(every(5))["properties"]
    with pytest.raises(InvalidInput, match="adjustmentRationale"):
        read_answer("{}", every(5), MIND)


# ---- how it is told --------------------------------------------------------------------------------------------------


def test_a_neutral_mind_says_nothing_and_another_says_all_that_moved():
    assert describe_mood(Mind()) == ""
    said = describe_mood(MIND)
    assert "mood focused" in said
    assert "skill: expert" in said
    assert "Be brief." in said
    assert "likes: tables" in said


def test_changes_name_what_moved_with_before_and_after():
    after = replace(MIND, mood="playful", imprints={"pace": "slow"})
    assert changes_of(MIND, after) == {
        "mood": ["focused", "playful"],
        "imprint.likes": ["tables", None],
        "imprint.pace": [None, "slow"],
    }
    assert changes_of(MIND, MIND) == {}
