"""The rules that move the Mind where no model is asked."""

import pytest

from cuebook.records.mind import NEUTRAL, Counters, Event, Mind, TurnSignals
from cuebook.records.persona import EVENTS
from cuebook.signals.metaprompts import PRESETS, SELF, SHIPPED, DueMetaprompt
from cuebook.signals.mood_rules import MOVES, by_rules

OF_EVENT = {each.trigger.event: each for each in PRESETS.values()}
LOOK_BACK = DueMetaprompt(metaprompt=SHIPPED[SELF], trigger="interval:5")


def asked(event):
    return DueMetaprompt(metaprompt=OF_EVENT[event], trigger=f"event:{event}")


def moved(event, mind=NEUTRAL):
    return by_rules(asked(event), mind, TurnSignals())[0]


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_has_a_rule_that_moves_the_mood_and_says_what_helps(event):
    mind, why = by_rules(asked(event), Mind(), TurnSignals())
    assert mind.mood == MOVES[event].mood != "neutral"
    assert mind.strategy
    assert why


def test_frustration_makes_it_simpler_and_confusion_starts_one_step_lower():
    start = Mind(user_skill="advanced", task_complexity="complex")
    assert moved("user_frustrated", start).task_complexity == "moderate"
    assert moved("user_frustrated", start).user_skill == "advanced"
    assert (moved("user_confused", start).user_skill, moved("user_confused", start).task_complexity) == (
        "intermediate",
        "moderate",
    )
    assert moved("user_satisfied", start).task_complexity == "advanced"


def test_no_step_leads_over_the_edge():
    low = Mind(user_skill="novice", task_complexity="simple")
    assert (moved("user_confused", low).user_skill, moved("user_confused", low).task_complexity) == ("novice", "simple")
    assert moved("user_satisfied", Mind(task_complexity="advanced")).task_complexity == "advanced"


def test_looking_back_lets_go_of_what_is_over_and_takes_the_mood_of_the_task():
    after = moved("user_frustrated")
    calm = TurnSignals(counters=Counters(neutral=3), task="coding")
    mind, why = by_rules(LOOK_BACK, after, calm)
    assert (mind.mood, mind.strategy, mind.task_complexity) == ("focused", "", after.task_complexity)
    assert "calm" in why


def test_looking_back_leaves_what_still_stands():
    after = moved("user_frustrated")
    for heard in (
        TurnSignals(events=(Event(name="user_frustrated"),)),
        TurnSignals(counters=Counters(frustration=1)),
        TurnSignals(counters=Counters(confusion=1)),
    ):
        assert by_rules(LOOK_BACK, after, heard)[0] == after


def test_who_still_says_little_is_not_calm():
    bored = moved("low_engagement")
    assert by_rules(LOOK_BACK, bored, TurnSignals(counters=Counters(neutral=5, idle=5)))[0] == bored
    assert by_rules(LOOK_BACK, bored, TurnSignals(counters=Counters(neutral=5, idle=0)))[0].mood == "neutral"


def test_looking_back_at_calm_talk_moves_nothing():
    assert by_rules(LOOK_BACK, Mind(), TurnSignals(counters=Counters(neutral=5)))[0] == Mind()


def test_what_went_well_after_trouble_raises_the_skill():
    after = moved("user_confused")
    heard = TurnSignals(counters=Counters(satisfaction=2, scores=(0.4, 0.5, 0.6)))
    assert by_rules(LOOK_BACK, after, heard)[0].user_skill == "intermediate"


def test_an_own_metaprompt_follows_the_rule_of_its_event():
    own = DueMetaprompt(metaprompt=SHIPPED[SELF], trigger="event:user_frustrated")
    assert by_rules(own, Mind(), TurnSignals())[0] == moved("user_frustrated")
