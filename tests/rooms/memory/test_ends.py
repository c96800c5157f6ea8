"""Which fact a new statement ends, in everyday words, and which it leaves alone."""

import pytest
from over_pairs import ENDS, STAYS

from cuebook.memory.extract import extract
from cuebook.memory.merge import merge
from cuebook.records.memory import Line


def after(*said):
    """Say each in a pass of its own and return the items that hold and those that ended."""
    held, ended = [], []
    for seq, text in enumerate(said):
        line = Line(id=f"p{seq}", seq=seq, role="user", speaker="user", text=text, when=float(seq))
        merged = merge([*held, *ended], extract([line]))
        held, ended = merged.kept + merged.added, ended + merged.ended
    return held, ended


@pytest.mark.parametrize(("old", "new"), ENDS)
def test_a_plain_end_ends_what_it_is_of(old, new):
    before = [one.text for one in after(old)[0]]
    held, ended = after(old, new)
    assert before
    assert ended
    assert not set(before) & {one.text for one in held}


@pytest.mark.parametrize(("old", "new"), STAYS)
def test_what_is_of_somebody_or_something_else_ends_nothing(old, new):
    assert after(old)[0]
    assert after(old, new)[1] == []


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("I live in Utrecht and I work as a nurse at St. Anna.", "I moved to Ghent.", "I work as a nurse at St. Anna."),
        ("I live in Utrecht and I work as a nurse.", "I moved to Ghent.", "I work as a nurse."),
        ("I live in Utrecht and work as a nurse at St. Anna.", "I moved to Ghent.", "work as a nurse at St. Anna."),
        ("I live in Utrecht and work as a nurse at St. Anna.", "I no longer work at St. Anna.", "I live in Utrecht"),
        ("I work as a nurse at St. Anna and I live in Utrecht.", "I quit my job at St. Anna.", "I live in Utrecht."),
    ],
)
def test_of_two_statements_in_one_sentence_only_the_changed_one_ends(old, new, left):
    held, ended = after(old, new)
    assert [one.text for one in ended] == [old]
    assert left in [one.text for one in held]


def test_other_days_and_other_cousins_are_other_facts():
    posts = [f"On day {n} I paid {28 + n} euro for lunch and my cousin Nr{n} lives in Town{n}." for n in range(1, 31)]
    held, ended = after(*posts)
    assert len(held) == len(posts)
    assert ended == []


def test_what_was_to_be_forgotten_is_not_taken_for_the_wish_itself():
    held, _ = after("Please use metric units.", "Forget what I said about metric units.")
    assert [one.text for one in held] == ["Forget what I said about metric units."]


@pytest.mark.parametrize(
    ("text", "category", "kept"),
    [
        ("I like tea, and please use metric units.", "preferences", "please use metric units."),
        ("yesterday I bought 3 lamps", "facts", "yesterday I bought 3 lamps"),
        ("The deadline is 3 March", "projects", "The deadline is 3 March"),
    ],
)
def test_what_is_said_in_passing_is_filed_as_what_it_is(text, category, kept):
    assert (category, kept) in [(one.category, one.text) for one in after(text)[0]]


def test_of_a_habit_one_day_is_called_off_and_the_habit_given_up():
    assert after("I do yoga every Thursday.", "Yoga is cancelled this Thursday.")[1] == []
    assert after("I do yoga every Thursday.", "I quit yoga today.")[1] != []


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("My fiancée Zoë lives in Liège.", "Zoë moved to Köln.", "My fiancée Zoë"),
        ("My boyfriend Tim lives in Delft.", "Tim and I split up.", None),
        ("My wife Karin works at a bank.", "Karin is no longer my wife.", None),
    ],
)
def test_who_moves_stays_who_they_are_and_who_parted_does_not(old, new, left):
    held, ended = after(old, new)
    assert [one.text for one in ended] == [old]
    assert [one.text for one in held if one.text != new] == ([left] if left else [])


def test_with_whom_one_parted_is_the_partner_that_is_no_more():
    assert after("My wife is Karin.", "Lotte and I broke up.")[1] == []


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("My fiancé is Pieter.", "people"),
        ("I live in Liège.", "facts"),
        ("answer in French", "preferences"),
        ("Show prices in euros from now on.", "preferences"),
    ],
)
def test_a_short_statement_is_kept_with_its_accents_and_a_wish_without_please(text, category):
    assert [(one.category, one.text) for one in after(text)[0]] == [(category, text)]


@pytest.mark.parametrize("text", ["Mein Name ist Jürgen.", "Je suis né à Liège.", "Vivo en Málaga.", "Żyję w Łodzi."])
def test_a_short_statement_of_another_language_is_not_read_as_english(text):
    assert after(text)[0] == []


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("I'm allergic to nuts and cats.", "I'm no longer allergic to cats.", "I'm allergic to nuts."),
        ("We use Jira and Slack for work.", "We stopped using Jira.", "We use Slack for work."),
        ("I have a dog and a cat.", "The cat died.", "I have a dog."),
        ("I live in Ghent and my sister lives in Lier.", "I moved to Bruges.", "my sister lives in Lier."),
    ],
)
def test_of_several_things_in_one_statement_the_others_stay(old, new, left):
    held, ended = after(old, new)
    assert [one.text for one in ended] == [old]
    assert [one.text for one in held] == [left, new]
