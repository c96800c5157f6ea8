"""Whose memory a conversation may read and write: the policy, its merge, and the places it means."""

import pytest

from cuebook.errors import InvalidInput
from cuebook.memory.knowledge import LEAST, PERIOD_S, decayed, raised
from cuebook.memory.scopes import (
    Policy,
    Whose,
    categories_for,
    effective,
    personal_places,
    policy_to_wire,
    published_place,
    read_control,
    read_places,
    read_policy,
)
from cuebook.records.memory import Memory, Place

ANN = Whose(user="ann", persona="helper", organization="acme")
ALL = Policy(user=True, persona=True, organization=True, share=True)


def control(**policy):
    return read_control({"longTermMemory": policy})


def test_a_request_goes_over_what_is_kept_and_that_over_the_defaults():
    defaults = Policy(user=True)
    assert effective({}, None, defaults).user
    kept = policy_to_wire(effective(control(scopes={"user": False}), None, defaults))
    assert not effective({}, kept, defaults).user, "defaults hold only while nothing is kept"
    assert effective(control(scopes={"persona": True}), kept, defaults) == Policy(user=False, persona=True)
    assert not effective({}, policy_to_wire(effective(control(enabled=False), None, ALL)), ALL).enabled


def test_a_policy_reads_back_what_it_was_written_as():
    for policy in (Policy(), ALL, Policy(enabled=False, categories=("facts",)), Policy(categories=(), items=False)):
        assert Policy(**read_policy(policy_to_wire(policy))) == policy


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
def test_what_is_no_policy_is_refused_by_its_place(given, where):
    with pytest.raises(InvalidInput) as refused:
        read_control(given)
    assert refused.value.where == where


def test_places_follow_policy_and_audience():
    user, persona, org = Place("user", "ann"), Place("persona", "helper\x1fann"), Place("organization", "acme")
    assert read_places(ALL, ANN) == (user, persona, org)
    assert read_places(Policy(), ANN) == ()
    assert read_places(Policy(enabled=False, user=True), ANN) == ()
    among = Whose(user="ann", persona="helper", organization="acme", alone=False)
    assert read_places(ALL, among) == (org,), "what is one person's is not read where others read along"
    assert personal_places(ALL, Whose(persona="helper")) == ()
    off = {"memory": {"longTermMemory": {"enabled": False}}}
    assert read_places(ALL, ANN, off) == (user, persona)


def test_publishing_needs_sharing_a_right_and_an_organization_that_allows_it():
    org = Place("organization", "acme")
    assert published_place(ALL, ANN, None, may_publish=True) == org
    assert published_place(ALL, ANN, None, may_publish=False) is None
    assert published_place(Policy(organization=True), ANN, None, may_publish=True) is None
    assert published_place(ALL, Whose(user="ann"), None, may_publish=True) is None
    closed = {"memory": {"longTermMemory": {"allowWrites": False}}}
    assert published_place(ALL, ANN, closed, may_publish=True) is None
    assert categories_for(org, ALL) == {"facts", "people", "projects", "decisions"}
    narrow = {"memory": {"longTermMemory": {"allowedCategories": ["facts", "todo"]}}}
    assert categories_for(org, ALL, narrow) == {"facts"}
    assert categories_for(Place("user", "ann"), Policy(categories=("todo",))) == {"todo"}


def known(**fields):
    return Memory(id="1", place=Place("user", "ann"), category="domain", text="x", **fields)


def test_knowledge_decays_once_a_period_however_often_it_is_asked():
    memory = known(confidence=0.6, used_at=1000.0)
    assert decayed(memory, 1000.0 + PERIOD_S - 1) is memory
    once = decayed(memory, 1000.0 + PERIOD_S + 5)
    assert once.confidence == 0.5
    assert decayed(once, 1000.0 + PERIOD_S + 9) is once
    assert decayed(once, 1000.0 + 2 * PERIOD_S).confidence == decayed(memory, 1000.0 + 2 * PERIOD_S).confidence == 0.4
    assert decayed(memory, 900.0) is memory, "a clock that was set back"
    assert decayed(known(confidence=LEAST, used_at=0.0), PERIOD_S) is None
    assert raised(0.97, 0.05) == 1.0
