"""Tests of compaction actions: BrowserOS's three actions, each once, and what counts as a key fact."""

import pytest

from cuebook.memory.actions import JudgedPost, has_key_facts, suggest


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


def actions(*entries: JudgedPost, least: int = 30) -> list[tuple[str, int]]:
    return [(each.type, each.number) for each in suggest(entries, least=least)]


def test_each_post_gets_its_action() -> None:
    assert actions(JudgedPost(1, 29), JudgedPost(2, 30)) == [("compress", 1)]
    assert actions(JudgedPost(1, 29, compressed=True), JudgedPost(2, 30, compressed=True)) == [("drop", 1)]
    assert actions(JudgedPost(1, 29, gone=True)) == []
    assert actions(JudgedPost(1, 70, repeated_by=4), JudgedPost(2, 70, repeated_by=4, compressed=True)) == [
        ("compress", 1)
    ]
    assert actions(JudgedPost(1, 80, facts=True), JudgedPost(2, 80), JudgedPost(3, 79, facts=True)) == [("promote", 1)]
    assert actions(JudgedPost(1, 90, facts=True, promoted=True)) == []
    assert actions(JudgedPost(1, 40), least=45) == [("compress", 1)]


def test_a_valuable_repeated_post_is_compressed_and_promoted() -> None:
    assert actions(JudgedPost(1, 90, facts=True, repeated_by=2)) == [("compress", 1), ("promote", 1)]
