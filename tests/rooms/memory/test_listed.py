import pytest

from cuebook.memory.listed import without
from cuebook.memory.slots import stem


@pytest.mark.parametrize(
    ("text", "over", "left"),
    [
        ("I like tea and coffee.", "coffee", "I like tea."),
        ("I like tea and coffee.", "tea", "I like coffee."),
        ("I have a dog and a cat.", "dog", "I have a cat."),
        ("I speak Dutch, French and English.", "speak French", "I speak Dutch and English."),
        ("I speak Dutch, French, and English.", "speak Dutch", "I speak French and English."),
        ("I'm allergic to nuts and cats.", "allergic cats", "I'm allergic to nuts."),
        ("I play chess and bridge on Fridays.", "chess", "I play bridge on Fridays."),
        ("I work at Shell and Philips.", "work Shell", "I work at Philips."),
    ],
)
def test_of_a_list_what_is_over_goes_and_the_others_stay_in_their_own_words(text, over, left):
    assert without(text, frozenset(map(stem, over.split()))) == left


@pytest.mark.parametrize(
    ("text", "over"),
    [
        ("I like tea.", "tea"),
        ("I like tea and coffee.", "tea coffee"),
        ("I like tea and coffee.", "wine"),
        ("I live in Utrecht and I work as a nurse.", "nurse"),
        ("I have a meeting with Tom on Monday and one with Ann on Friday.", "meeting Tom"),
        ("", "tea"),
    ],
)
def test_what_lists_nothing_or_is_over_as_a_whole_leaves_nothing(text, over):
    assert without(text, frozenset(map(stem, over.split()))) == ""
