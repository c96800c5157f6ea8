"""Which prompts are alike: the same groups in whatever order they come, none joined below the likeness asked for."""

from itertools import combinations
from math import isclose

from hypothesis import given
from hypothesis import strategies as st

from cuebook.prompts.clusters import LEAST, by_words, group, weigh

TEXTS = {
    "sql/explain": "Explain a SQL query to somebody who knows none: tables, joins, filters, and what comes out.",
    "sql/write": "Write a SQL query for PostgreSQL from the question. Explain its joins and filters in one sentence.",
    "late": "You answer customers whose parcel is late. Ask for the order number, and say when the parcel arrives.",
    "refund": "You answer customers who want their money back. Ask for the order number, and say when it arrives.",
    "story": "Tell a bedtime story for a child of five: short sentences, a small animal, no danger, a calm ending.",
}


def test_prompts_about_the_same_stand_together_under_what_they_share() -> None:
    weights = weigh(TEXTS)
    groups, alone = group(TEXTS, weights, lambda a, b: by_words(weights, a, b), least=LEAST)
    assert [{each.name for each in one.members} for one in groups] == [{"late", "refund"}, {"sql/explain", "sql/write"}]
    assert alone == ["story"]
    assert "customers" in groups[0].words
    assert "query" in groups[1].words


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("one two three four five".split()))))
def test_each_prompt_stands_somewhere_and_no_group_is_looser_than_asked(said: dict[str, list[str]]) -> None:
    texts = {name: " ".join(words) for name, words in said.items()}
    weights = weigh(texts)
    groups, alone = group(texts, weights, lambda a, b: by_words(weights, a, b), least=0.3)
    names = [each.name for one in groups for each in one.members]
    assert sorted([*names, *alone]) == sorted(texts)
    for one in groups:
        pairs = [by_words(weights, a.name, b.name) for a, b in combinations(one.members, 2)]
        assert isclose(one.likeness, sum(pairs) / len(pairs), abs_tol=1e-3)
    turned = dict(reversed(texts.items()))
    assert group(turned, weigh(turned), lambda a, b: by_words(weights, a, b), least=0.3) == (groups, alone)


def test_the_names_of_what_is_filled_in_make_nothing_alike() -> None:
    weights = weigh({"a": "Greet $customer_name and ${account_tier}.", "b": "Cook {{customer_name}} soup", "c": "x"})
    assert by_words(weights, "a", "b") == 0.0
