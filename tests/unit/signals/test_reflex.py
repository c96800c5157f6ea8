"""Tests of the rules that update the mood state without a model."""

import pytest

from cuebook.records.mind import NEUTRAL, Counters, Event, MoodState, TurnSignals
from cuebook.records.persona import EVENTS
from cuebook.signals.metaprompts import PRESETS, SELF, SHIPPED, by_rules, moves

OF_EVENT = {each.trigger.event: each for each in PRESETS.values()}
LOOK_BACK = (SHIPPED[SELF], "interval:5")


def task_for(event):
    return OF_EVENT[event], f"event:{event}"


def apply_rule(event, mind=NEUTRAL):
    return by_rules(task_for(event), mind, TurnSignals())[0]


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_changes_the_mood_and_suggests_help(event):
    mind, why = by_rules(task_for(event), MoodState(), TurnSignals())
    assert mind.mood == moves()[event].mood != "neutral"
    assert mind.strategy
    assert why


def test_frustration_and_confusion_simplify_the_answers():
    start = MoodState(user_skill="advanced", task_complexity="complex")
    assert apply_rule("user_frustrated", start).task_complexity == "moderate"
    assert apply_rule("user_frustrated", start).user_skill == "advanced"
    assert (apply_rule("user_confused", start).user_skill, apply_rule("user_confused", start).task_complexity) == (
        "intermediate",
        "moderate",
    )
    assert apply_rule("user_satisfied", start).task_complexity == "advanced"


def test_values_stay_within_their_range():
    low = MoodState(user_skill="novice", task_complexity="simple")
    assert (apply_rule("user_confused", low).user_skill, apply_rule("user_confused", low).task_complexity) == (
        "novice",
        "simple",
    )
    assert apply_rule("user_satisfied", MoodState(task_complexity="advanced")).task_complexity == "advanced"


def test_looking_back_resets_to_the_mood_of_the_task():
    after = apply_rule("user_frustrated")
    calm = TurnSignals(counters=Counters(neutral=3), task="coding")
    mind, why = by_rules(LOOK_BACK, after, calm)
    assert (mind.mood, mind.strategy, mind.task_complexity) == ("focused", "", after.task_complexity)
    assert "calm" in why


def test_looking_back_keeps_what_still_applies():
    after = apply_rule("user_frustrated")
    for heard in (
        TurnSignals(events=(Event(name="user_frustrated"),)),
        TurnSignals(counters=Counters(frustration=1)),
        TurnSignals(counters=Counters(confusion=1)),
    ):
        assert by_rules(LOOK_BACK, after, heard)[0] == after


def test_a_user_with_low_engagement_is_not_calm():
    bored = apply_rule("low_engagement")
    assert by_rules(LOOK_BACK, bored, TurnSignals(counters=Counters(neutral=5, idle=5)))[0] == bored
    assert by_rules(LOOK_BACK, bored, TurnSignals(counters=Counters(neutral=5, idle=0)))[0].mood == "neutral"


def test_looking_back_at_a_calm_conversation_changes_nothing():
    assert by_rules(LOOK_BACK, MoodState(), TurnSignals(counters=Counters(neutral=5)))[0] == MoodState()


def test_success_after_trouble_raises_the_skill_level():
    after = apply_rule("user_confused")
    heard = TurnSignals(counters=Counters(satisfaction=2, scores=(0.4, 0.5, 0.6)))
    assert by_rules(LOOK_BACK, after, heard)[0].user_skill == "intermediate"


def test_a_custom_metaprompt_uses_the_rule_of_its_event():
    own = (SHIPPED[SELF], "event:user_frustrated")
    assert by_rules(own, MoodState(), TurnSignals())[0] == apply_rule("user_frustrated")
