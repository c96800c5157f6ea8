import pytest

from cuebook.memory.relations import gone, reached, relations, to_reach


@pytest.mark.parametrize(
    ("text", "slot", "holder"),
    [
        ("a landlady called Greet Baeten who smiled", "role landlord", {"greet", "baeten"}),
        ("sarah is our treasurer", "role treasurer", {"sarah"}),
        ("Mr Okafor will be the one minding Moss", "duty moss", {"okafor", "mr"}),
        ("I run a practice from my flat in Antwerp", "home", {"antwerp"}),
        ("we get the coffee from Old Town Roasters", "source coffe", {"town", "roaster"}),
        ("our opening hours are 8 til 4", "hours", {"8-4"}),
        ("the meeting's in room 4", "where meet", {"room", "4"}),
    ],
)
def test_a_text_tells_who_or_what_fills_a_place(text, slot, holder):
    assert [set(found.holder) for found in relations(text) if found.slot == slot] == [holder]


def test_who_leaves_is_named():
    assert gone("Marek left the company, Ida does the frontend now") == {"marek"}
    assert not gone("I left the keys on the table")


def test_whom_one_has_to_reach_and_whom_one_reached():
    assert to_reach("need to tell Ms Okonjo we're off") & reached("told Ms Okonjo, she smiled")
    assert not to_reach("I told Ms Okonjo")
