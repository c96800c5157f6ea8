import pytest

from cuebook.memory.extract import extract
from cuebook.memory.placed import placed
from cuebook.records.memory import Line, Place


@pytest.mark.parametrize(
    ("first", "later", "left"),
    [
        ("I'm allergic to nuts and cats.", "I'm no longer allergic to cats.", ["I'm allergic to nuts."]),
        ("I live in Utrecht and I work as a nurse.", "I moved to Ghent.", ["I work as a nurse."]),
        ("I work at Shell.", "I quit my job.", []),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_whichever_conversation_is_delivered_first_the_same_ends_and_the_same_is_left(first, later, left, late):
    said = [(first, 100.0), (later, 200.0)]
    held = {}
    for text, when in reversed(said) if late else said:
        line = Line(id=f"p{when}", seq=1, role="user", speaker="user", text=text, when=when)
        came = placed(Place("user", "ann"), [*held.values()], extract([line]), conversation=f"c{when}", now=300.0)
        held |= {each.id: each for each in came}
    assert {(each.text, each.valid_to) for each in held.values()} == {
        (first, 200.0),
        (later, None),
        *((text, None) for text in left),
    }
