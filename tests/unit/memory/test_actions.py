"""Tests of compaction actions: BrowserOS's three actions, each once, and what counts as a key fact."""

import pytest

from cuebook.memory.judgement import has_key_facts, suggest


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com", "it FAILED", "an Exception", "an xpath", "the css of it", "the REST API", "an endpoint",
        "API_TOKEN is set", "the key", "credentials", "step 3", "Phase 12",
    ],
)  # fmt: skip
def test_texts_with_key_facts(text: str) -> None:
    assert has_key_facts(text)


@pytest.mark.parametrize("text", ["a monkey in Capri", "the next step", "accessible", "tokenise it", "http"])
def test_texts_without_key_facts(text: str) -> None:
    assert not has_key_facts(text)


def actions(*entries: tuple[int, int, dict], least: int = 30) -> list[tuple[str, int]]:
    suggested = [suggest(number, score, least=least, **state) for number, score, state in entries]
    return [(each.type, each.number) for actions in suggested for each in actions]


def post(number: int, score: int, **state) -> tuple[int, int, dict]:
    return number, score, state


def test_each_post_gets_its_action() -> None:
    assert actions(post(1, 29), post(2, 30)) == [("compress", 1)]
    assert actions(post(1, 29, compressed=True), post(2, 30, compressed=True)) == [("drop", 1)]
    assert actions(post(1, 29, gone=True)) == []
    assert actions(post(1, 70, repeated_by=4), post(2, 70, repeated_by=4, compressed=True)) == [("compress", 1)]
    assert actions(post(1, 80, facts=True), post(2, 80), post(3, 79, facts=True)) == [("promote", 1)]
    assert actions(post(1, 90, facts=True, promoted=True)) == []
    assert actions(post(1, 40), least=45) == [("compress", 1)]


def test_a_valuable_repeated_post_is_compressed_and_promoted() -> None:
    assert actions(post(1, 90, facts=True, repeated_by=2)) == [("compress", 1), ("promote", 1)]
