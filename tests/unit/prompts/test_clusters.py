"""Tests of prompt clustering: groups do not depend on the order, and stay above the requested similarity."""

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


def test_similar_prompts_are_grouped_under_their_common_words() -> None:
    weights = weigh(TEXTS)
    groups, alone = group(TEXTS, weights, lambda a, b: by_words(weights, a, b), least=LEAST)
    assert [{each.name for each in one.members} for one in groups] == [{"late", "refund"}, {"sql/explain", "sql/write"}]
    assert alone == ["story"]
    assert "customers" in groups[0].words
    assert "query" in groups[1].words


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("one two three four five".split()))))
def test_each_prompt_is_in_a_group_above_the_threshold(said: dict[str, list[str]]) -> None:
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


def test_parameter_names_do_not_count_as_similarity() -> None:
    weights = weigh({"a": "Greet $customer_name and ${account_tier}.", "b": "Cook {{customer_name}} soup", "c": "x"})
    assert by_words(weights, "a", "b") == 0.0
