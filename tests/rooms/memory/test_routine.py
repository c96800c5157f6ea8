"""What of one's own days and things has one value at a time, and what is asked for, dropped or meets again."""

import pytest

from cuebook.memory.extract import extract
from cuebook.memory.merge import merge
from cuebook.memory.routine import owned, prices
from cuebook.records.memory import Line


def found(number, text):
    when = 1.75e9 + number * 86_400
    return extract([Line(id=f"p{number}", seq=number, role="user", speaker="user", text=text, when=when)])


def after(first, second):
    """Give what holds, and what ended, once both were said."""
    held = merge([], found(1, first)).added
    assert held, first
    outcome = merge(held, found(2, second))
    return [item.text for item in (*outcome.kept, *outcome.added)], [item.text for item in outcome.ended]


@pytest.mark.parametrize(
    "text",
    [
        "The choir rehearses on Thursdays at half seven, in the school hall.",
        "The book club gets together every third Sunday at Mina's.",
        "The council sits on the last Tuesday of the month.",
        "The farmers' market takes place on Saturdays behind the church.",
        "I don't have milk in my tea any more.",
        "We don't eat lunch in the canteen anymore, it's too loud.",
        "My mother doesn't drive at night any more.",
        "I'd like to have read fifty books by December.",
        "We'd like to open a second shop next spring.",
        "I'd like to run under four hours in Valencia.",
    ],
)
def test_what_meets_again_what_one_does_no_more_and_what_one_would_like_are_remembered(text):
    assert [item.text for item in merge([], found(1, text)).added] == [text]


@pytest.mark.parametrize(
    ("first", "second", "over"),
    [
        ("I'm on nights, I start at 22:00.", "From Monday I'm on days: start at 7:00.", "22:00"),
        ("My lessons begin at 9:15 and end at noon.", "From September my lessons begin at 10:00.", "9:15"),
        (
            "Our candles are called Lumo, 200 gram tins, 14 euros each.",
            "Prices went up: from May a tin of Lumo costs 16 euros.",
            "14",
        ),
        (
            "I sell eggs at the gate, boxes of ten, 3 euros a box.",
            "Feed got dearer, so a box of eggs is 3.60 euros now.",
            " 3 euros",
        ),
        ("My gym locker is number 114.", "New locker for me since today: 208.", "114"),
        (
            "My tram is the 9, from Halle to the centre.",
            "New tram for me from August: the 12, via the hospital.",
            "the 9",
        ),
        ("Our room is B2.04, on the second floor.", "New room for us from next week: C1.10.", "B2.04"),
        ("My classes are at 18:00.", "New time for my classes: 19:30.", "18:00"),
        ("A haircut costs 28 euros.", "We put the prices up, a haircut costs 32 euros from June.", "28"),
        (
            "I work the early shift and get up at 4:30.",
            "I'm on the late shift from October, so I get up at 8:00.",
            "4:30",
        ),
        ("I draw everything in AutoCAD.", "As of today I draw everything in Vectorworks.", "AutoCAD"),
    ],
)
def test_a_new_shift_number_tool_or_price_ends_the_one_before(first, second, over):
    holds, _ = after(first, second)
    assert any(text in second for text in holds)
    assert not any(over in text for text in holds)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I start at 5:20 on weekdays.", "My daughter's school starts at 8:30."),
        ("A jar of honey costs 7.50 euros.", "A jar of pollen costs 12 euros."),
        ("My bus line is the 53.", "My locker is number 81."),
        ("My desk is number 14.", "New phone for me from Monday: the 15."),
        ("The choir meets on Thursdays at seven.", "The bee course meets on Fridays at eight."),
        ("My lessons begin at 9:15.", "The concert begins at 20:00."),
        ("I want to run a marathon.", "I'd like to have twenty hives next year."),
        ("My train leaves at 7:12.", "From May my sister's train leaves at 8:05."),
        ("I work the early shift.", "My brother is on the late shift now."),
        ("We deploy with Terraform on Azure.", "We monitor everything with Grafana now."),
    ],
)
def test_what_is_another_s_or_of_another_thing_ends_nothing(first, second):
    assert after(first, second)[1] == []


def test_a_line_s_number_and_what_one_of_a_thing_costs_are_read():
    [own] = owned("New line for me from Monday: the 81, Almen to Zutphen.")
    assert (own.slot, own.value) == ("own lin", {"81"})
    [price] = prices("From April a jar of honey costs 8.25 euros.")
    assert price.amount == ("money", "8.25")
    assert {"jar", "honey"} == set(price.thing)
