"""Tests of the extractive summary: statements in order of date, selection by importance, and appends."""

import pytest

from cuebook.memory.quotes import quotes_of
from cuebook.memory.schema import compact
from cuebook.memory.summary import HEADING, fit, write
from cuebook.memory.supersede import merge
from cuebook.records.memory import Item, Line
from cuebook.window.tokens import estimate

DAY = 86_400.0


def items_of(*texts: str, first: int = 1) -> list[Item]:
    lines = [
        Line(id=f"p{n}", seq=n, role="user", speaker="ann", text=text, when=DAY * 20_000 + DAY * n)
        for n, text in enumerate(texts, start=first)
    ]
    return quotes_of(lines)


def summary(items: list[Item], *, previous: str = "", tokens: int = 900) -> str:
    return write(items, previous=previous, max_tokens=tokens, count=estimate)[0]


CHAT = tuple(f"The delivery number {n} of {n * 7} planks came on Monday." for n in range(60))


def test_a_summary_lists_all_statements_by_day() -> None:
    text = summary(items_of("I moved to Lisbon.", "My budget is 300 euros."))
    assert text == f"{HEADING}\n## 2024\n- 5 Oct: I moved to Lisbon.\n- 6 Oct: My budget is 300 euros."


def test_new_quotes_are_appended_to_unchanged_bytes() -> None:
    first = items_of("I moved to Lisbon.")
    before = summary(first)
    after = summary([*first, *items_of("My budget is 300 euros.", first=2)], previous=before)
    assert after.startswith(before)
    assert len(after) > len(before)


def test_health_facts_and_rules_are_kept_longest() -> None:
    items = [*items_of("I am allergic to peanuts.", "Never call me at work."), *items_of(*CHAT, first=3)]
    text = summary(items, tokens=200)
    assert estimate(text) <= 200
    assert "peanuts" in text
    assert "Never call me" in text


SUPPLIES = "rice tea soap paper salt flour glue rope wire tape milk wax sand paint cloth wool cord ink lime".split()


@pytest.mark.parametrize(
    ("fact", "choice", "trivia"),
    [
        ("Our cousin Ravi lives in Nairobi.", "I prefer window seats.", ("I bought some {}.", "I ordered {} again.")),
        ("Mi primo Julián vive en Quito.", "Prefiero viajar en tren.", ("Compré {}.", "Me encanta {}.")),
        ("Notre tante Odile habite à Brest.", "Je préfère le train.", ("J'ai acheté {}.", "J'adore {}.")),
    ],
)
def test_weak_choices_do_not_displace_a_plain_fact(fact: str, choice: str, trivia: tuple[str, ...]) -> None:
    said = [each.format(thing) for thing in SUPPLIES for each in trivia]
    text = summary(items_of(*said[:20], fact, *said[20:24], choice, *said[24:]), tokens=250)
    assert fact in text
    assert choice in text
    assert not all(each in text for each in said)


def test_a_superseded_quote_appears_only_with_the_newer_one() -> None:
    names = "Anna Bram Cleo Dirk Elsa Finn Gus Hugo Ines Jan Kim Lou".split()
    texts = [f"The meeting with {name} is on {n + 1} April." for n, name in enumerate(names)]
    items = merge([], items_of(*texts, *(text.replace("April", "May") for text in texts)))[1]
    for tokens in range(60, 400, 20):
        text = summary(items, tokens=tokens)
        for old, new in ((each, each.replace("April", "May")) for each in texts):
            if old in text and any(each.superseded_by for each in items if old in each.text):
                assert text.index(old) < text.index(new)


@pytest.mark.parametrize("tokens", [40, 90, 200, 600])
def test_a_written_summary_is_cut_to_its_most_important_lines(tokens: int) -> None:
    whole = summary([*items_of("I am allergic to peanuts."), *items_of(*CHAT[:30], first=2)])
    short = fit(whole, tokens, count=estimate)
    assert estimate(short) <= tokens
    assert "peanuts" in short
    assert set(short.split("\n")) <= set(whole.split("\n"))


def test_a_summary_written_by_a_model_is_not_cut() -> None:
    assert fit("The user lives in Oslo. " * 50, 20, count=estimate) == ""


def test_the_json_summary_has_its_own_cap_and_equal_quotes() -> None:
    items = items_of("I am allergic to peanuts.", *CHAT)
    _, memory_json, _ = write(items, previous="", max_tokens=300, count=estimate)
    assert memory_json["facts"][0]["text"] == "I am allergic to peanuts."
    assert estimate(compact(memory_json)) <= 300
    texts = {each.text for each in items}
    assert {entry["text"] for entry in memory_json["facts"]} <= texts


def test_an_assistants_line_is_fenced_and_marked() -> None:
    own = Item(id="a", category="facts", text="I ordered it, number 4711.", sources=("p9",), trust="assistant")
    markdown, _, tainted = write([own], previous="", max_tokens=300, count=estimate)
    assert markdown == ""
    assert tainted.startswith("- assistant: I ordered it")
