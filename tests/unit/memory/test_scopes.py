"""Tests of memory policies: whose memory a conversation may read and write, and how policies merge."""

import pytest

from cuebook.errors import InvalidInput
from cuebook.memory.owner_memories import LEAST, PERIOD_S, decayed, raised
from cuebook.memory.scopes import (
    PROJECT,
    SHARING_ALLOWED,
    Participants,
    Policy,
    categories_for,
    effective,
    personal_places,
    policy_to_wire,
    published_place,
    read_control,
    read_places,
    read_policy,
)
from cuebook.records.key import LongTermMemory
from cuebook.records.memory import Memory, Place

ANN = Participants(user="ann", persona="helper", organization="acme")
ALL = Policy(user=True, persona=True, organization=True, share=True)


def control(**policy):
    return read_control({"longTermMemory": policy})


def test_a_request_overrides_the_stored_policy_and_defaults():
    defaults = Policy(user=True)
    assert effective({}, None, defaults).user
    kept = policy_to_wire(effective(control(scopes={"user": False}), None, defaults))
    assert not effective({}, kept, defaults).user, "defaults apply only without a stored policy"
    assert effective(control(scopes={"persona": True}), kept, defaults) == Policy(user=False, persona=True)
    assert not effective({}, policy_to_wire(effective(control(enabled=False), None, ALL)), ALL).enabled


def test_a_policy_round_trips():
    for policy in (Policy(), ALL, Policy(enabled=False, categories=("facts",)), Policy(categories=(), items=False)):
        assert read_policy(policy_to_wire(policy)) == policy


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"longTerm": {}}, "memoryControl.longTerm"),
        ({"longTermMemory": {"scope": {}}}, "memoryControl.longTermMemory.scope"),
        ({"longTermMemory": {"scopes": {"galaxy": True}}}, "memoryControl.longTermMemory.scopes.galaxy"),
        ({"longTermMemory": {"enabled": "yes"}}, "memoryControl.longTermMemory.enabled"),
        ({"longTermMemory": {"allowedCategories": ["secrets"]}}, "memoryControl.longTermMemory.allowedCategories[0]"),
        ([], "memoryControl"),
    ],
)
def test_an_invalid_policy_is_rejected_with_its_path(given, where):
    with pytest.raises(InvalidInput) as refused:
        read_control(given)
    assert refused.value.where == where


def test_memory_owners_follow_policy_and_audience():
    user, persona, org = Place("user", "ann"), Place("persona", "helper\x1fann"), Place("organization", "acme")
    assert read_places(ALL, ANN) == (user, persona, PROJECT, org)
    assert read_places(Policy(), ANN) == (PROJECT,)
    assert read_places(Policy(conversation=False), ANN) == ()
    assert read_places(Policy(enabled=False, user=True), ANN) == ()
    among = Participants(user="ann", persona="helper", organization="acme", alone=False)
    assert read_places(ALL, among) == (PROJECT, org), "private memories are not read in shared conversations"
    assert personal_places(ALL, Participants(persona="helper")) == ()
    off = LongTermMemory(enabled=False)
    assert read_places(ALL, ANN, off) == (user, persona, PROJECT)


def test_publishing_needs_sharing_permission_and_organization():
    org = Place("organization", "acme")
    assert published_place(ALL, ANN, SHARING_ALLOWED, may_publish=True) == org
    assert published_place(ALL, ANN, SHARING_ALLOWED, may_publish=False) is None
    assert published_place(Policy(organization=True), ANN, SHARING_ALLOWED, may_publish=True) is None
    assert published_place(ALL, Participants(user="ann"), SHARING_ALLOWED, may_publish=True) is None
    closed = LongTermMemory(allow_writes=False)
    assert published_place(ALL, ANN, closed, may_publish=True) is None
    assert categories_for(org, ALL) == {"facts", "people", "projects", "decisions"}
    narrow = LongTermMemory(allowed_categories=("facts", "todo"))
    assert categories_for(org, ALL, narrow) == {"facts"}
    assert categories_for(Place("user", "ann"), Policy(categories=("todo",))) == {"todo"}


def knowledge_item(**fields):
    return Memory(id="1", kind="user", owner="ann", category="domain", text="x", **fields)


def test_knowledge_decays_once_per_period():
    memory = knowledge_item(confidence=0.6, used_at=1000.0)
    assert decayed(memory, 1000.0 + PERIOD_S - 1) is memory
    once = decayed(memory, 1000.0 + PERIOD_S + 5)
    assert once.confidence == 0.5
    assert decayed(once, 1000.0 + PERIOD_S + 9) is once
    assert decayed(once, 1000.0 + 2 * PERIOD_S).confidence == decayed(memory, 1000.0 + 2 * PERIOD_S).confidence == 0.4
    assert decayed(memory, 900.0) is memory, "a clock that was set back"
    assert decayed(knowledge_item(confidence=LEAST, used_at=0.0), PERIOD_S) is None
    assert raised(0.97, 0.05) == 1.0
