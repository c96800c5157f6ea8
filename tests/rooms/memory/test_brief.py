import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.brief import brief

TEXT = st.text(alphabet=st.sampled_from("abc DEF 12.,;:!?-–' "), max_size=300)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Plot twist, the submission is now on Friday 19 June.", "the submission is now on Friday 19 June."),
        ("So you know: I eat no fish.", "I eat no fish."),
        (
            "We chose oak for the pergola in Brasschaat, untreated, because silver is nice, and it was fun to argue.",
            "We chose oak for the pergola in Brasschaat",
        ),
        ("Ana lives in Porto.", "Ana lives in Porto."),
    ],
)
def test_a_line_is_the_telling_stretch_of_a_text(text, line):
    assert brief(text) == line


@given(TEXT)
def test_a_line_is_the_text_s_own_words_in_order(text):
    assert brief(text) in " ".join(text.split())
