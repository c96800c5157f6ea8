"""Tests of how a new quote supersedes or repeats stored quotes, without removing them."""

from itertools import permutations

import pytest

from cuebook.memory.quotes import quotes_of
from cuebook.memory.supersede import companions, merge, unmarked
from cuebook.records.memory import Item, Line


def quotes(*texts: str) -> list[Item]:
    lines = [
        Line(id=f"p{n}", seq=n, role="user", speaker="ann", text=text, when=86_400.0 * n)
        for n, text in enumerate(texts, start=1)
    ]
    return quotes_of(lines)


def superseded_texts(*texts: str) -> list[str]:
    return [each.text for each in merge([], quotes(*texts))[1] if each.superseded_by]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The exam is on 12 April.", "The exam is on 26 April."),
        ("Our rent is 900 euros a month.", "Our rent is 950 euros a month now."),
        ("Start function names with 'n_'.", "From now on start function names with 'x_'."),
        ("Die Prüfung ist am 12. April.", "Die Prüfung ist jetzt am 26. April."),
        ("考试时间是4月12日。", "考试时间改到4月26日。"),
    ],
)
def test_a_changed_value_supersedes_the_older_quote(old: str, new: str) -> None:
    assert superseded_texts(old, new) == [old]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Lena's dentist is on Tuesday.", "Tom's dentist is on Friday."),
        ("I also rent a desk for 90 euros.", "I also rent a locker for 12 euros."),
        ("The exam is on 12 April.", "The party is on 26 April."),
        ("Plank number 3 is 21 cm long.", "Plank number 5 is 35 cm long."),
    ],
)
def test_statements_about_different_things_are_independent(one: str, other: str) -> None:
    assert superseded_texts(one, other) == []


def test_a_repeat_raises_confidence_and_adds_its_post() -> None:
    first, again = quotes("I am allergic to peanuts.", "I am allergic to peanuts.")
    [kept], _ = merge([first], [again])
    assert (kept.sources, kept.confidence, kept.text) == (("p1", "p2"), 0.6, first.text)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_message_order_decides_not_arrival_order(order: tuple[int, ...]) -> None:
    texts = ("My exam is on 4 March.", "My exam moved to 9 March.", "My exam is on 12 March.")
    found, stored = quotes(*texts), []
    for at in order:
        kept, added = merge(stored, [found[at]])
        stored = [*kept, *added]
    by_text = {each.text: each for each in stored}
    first, second, third = (by_text[text] for text in texts)
    assert (first.superseded_by, second.superseded_by, third.superseded_by) == (second.id, third.id, None)


def test_a_superseded_quote_appears_only_with_the_newer_one() -> None:
    items = merge([], quotes("The exam is on 12 April.", "The exam is on 26 April."))[1]
    assert items[1].id in companions(items)[items[0].id]


def test_a_deleted_newer_quote_supersedes_nothing() -> None:
    old, new = merge([], quotes("The exam is on 12 April.", "The exam is on 26 April."))[1]
    assert unmarked([old, new]) == [old, new]
    assert unmarked([old])[0].superseded_by is None
