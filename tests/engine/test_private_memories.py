"""Tests of private memories: personal facts reach no organization, whatever a turn shares."""

import pytest
from turn_helpers import cue_on

from cuebook import Ask
from cuebook.memory.claims import items_of
from cuebook.memory.schema import parse_answer
from cuebook.testing import FrozenClock

SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}


@pytest.mark.parametrize(
    "statement",
    [
        "I am allergic to nuts.",
        "I've decided to go gluten-free because of my stomach.",
        "My sister Lena has cancer.",
        "I'm gay, and my colleagues at Fjordwell have known it since March.",
        "Since January 2026 we are trying for a baby.",
        "I'm going to therapy on Tuesdays now.",
        "I earn 4000 euro a month.",
        "We are two months behind with our mortgage of 1,400 euros.",
        "I live at Oudegracht 12.",
        "I vote for the Greens.",
    ],
)
async def test_an_organization_never_gets_personal_memories(tmp_path, statement):
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock) as cue:
        for text in (statement, "We decided to ship on Monday."):
            await cue.ask(Ask(text, "c1", user="ann", organization="acme", memory_control=SHARES))
            clock.advance(60)
        await cue.settle()
        shared = [each.text for each in (await cue.memory.list(organization="acme")).items]
        assert shared == ["We decided to ship on Monday."]
        user_memories = [each.text for each in (await cue.memory.list(user="ann")).items]
        assert statement in user_memories


async def test_facts_about_people_are_shared_where_sharing_is_on(tmp_path):
    async with cue_on(tmp_path, clock=FrozenClock()) as cue:
        await cue.ask(
            Ask("My sister Lena works at the port.", "c1", user="ann", organization="acme", memory_control=SHARES)
        )
        await cue.settle()
        assert [each.category for each in (await cue.memory.list(organization="acme")).items] == ["people"]


def test_a_model_decision_about_health_is_stored_as_a_fact():
    answer_text = (
        '{"summary_markdown": "x", "memory_json": {"facts": [], "preferences": [], "people": [], "projects": [], '
        '"decisions": [{"text": "I am allergic to nuts", "sources": ["p1"]}, '
        '{"text": "We chose Kafka", "sources": ["p1"]}], "open_loops": [], "todo": [], "tags": []}}'
    )
    memory = parse_answer(answer_text, posts=["p1"], known=(), max_tokens=900, count=len).memory
    assert [item.category for item in items_of(memory, when=1.0)] == ["facts", "decisions"]
