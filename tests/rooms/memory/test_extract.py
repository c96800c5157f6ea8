import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.memory.extract import MAX_ITEM, english, extract
from cuebook.memory.sentences import LONGEST, clean
from cuebook.memory.subject import item_id
from cuebook.records.memory import Line

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
SAID = st.sampled_from(
    [
        "My sister Lena lives in Oslo.",
        "The dentist is on 12 June at 4pm.",
        "thanks so much!",
        "We've decided on the oak floor, and my budget is €4,200.",
        "Maybe we should move to Lisbon.",
        "it's the 19th now",
        "What time is it?",
        "Remember that I'm allergic to nuts.",
        "> quoted by someone on 3 May",
        "\n\n",
        "```\ncode = 1\n```",
        "明日は12時に東京で会議です。",
        "Ich wohne in Köln, Hausnummer 14.",
        "- buy 3 bags, by Friday",
        "<recalled abc>My cat is called Miso.</recalled abc>",
        "the key is [[secret:openai_key#a1b2c3d4]], on 3 May",
        "Dr. Leroy rang; she needs us on 2026-05-04",
    ]
)
POST = st.one_of(st.text(max_size=300), st.lists(SAID, max_size=6).map(" ".join))
ROLES = st.sampled_from(["user", "user", "assistant", "tool", "system"])


def lines_of(*said, role="user"):
    """Make posts of (role, text) pairs or of one role's texts."""
    pairs = [(role, one) if isinstance(one, str) else one for one in said]
    return [
        Line(id=f"p{n}", seq=n, role=who, speaker=who, text=text, when=1e9 + n) for n, (who, text) in enumerate(pairs)
    ]


def texts(*said, role="user"):
    return [item.text for item in extract(lines_of(*said, role=role))]


def in_order(few, many):
    rest = iter(many)
    return all(word in rest for word in few)


@given(st.lists(st.tuples(ROLES, POST), max_size=6))
def test_an_item_is_made_of_its_sources_own_words_in_order(said):
    lines = lines_of(*said)
    by_id = {line.id: line for line in lines}
    for item in extract(lines):
        assert item.sources
        source = " ".join(by_id[source].text for source in item.sources)
        assert in_order(WORD.findall(item.text), WORD.findall(source))
        assert item.id == item_id(item.category, item.text)
        assert 0 <= item.weight <= 1
        assert len(item.text) <= max(MAX_ITEM, LONGEST)
        assert item.valid_to is None


@given(st.lists(st.tuples(ROLES, POST), max_size=6))
def test_no_secret_and_nothing_recalled_is_kept(said):
    for item in extract(lines_of(*said)):
        assert "[[secret:" not in item.text
        assert "recalled" not in item.text
        assert "Miso" not in item.text


@given(st.lists(st.tuples(ROLES, POST), max_size=6))
def test_trust_is_that_of_the_speaker_or_an_endorsement(said):
    lines = lines_of(*said)
    roles = {line.id: line.role for line in lines}
    for item in extract(lines):
        spoke = {roles[source] for source in item.sources}
        assert (item.trust == "user") == ("user" in spoke)
        assert spoke != {"system"}


@pytest.mark.parametrize(
    "said",
    [
        "Good morning!",
        "thanks, that was great",
        "lol what a night",
        "ok cool",
        "How are you?",
        "What should I watch tonight?",
        "Maybe we should get a dog one day.",
        "I might paint the kitchen blue.",
        "What if we moved to Lisbon in May?",
        "can you give me a recipe for pancakes?",
        "Write me a poem about a whippet in January, for Ilse.",
        "> My budget is 4,000 euro\n",
        "Please translate this:\nMy name is Anna and I live in Berlin since 2019.",
        'He wrote "we are moving the launch to 3 May and the budget is cut" to me.',
        "That's so nice of you!",
        "haha I'm the queen of England, my budget is a million dollars",
        "<recalled k3>My cat is called Miso.</recalled k3>",
    ],
)
def test_what_is_no_statement_gives_no_item(said):
    assert texts(said) == []


@pytest.mark.parametrize(
    ("said", "category"),
    [
        ("I prefer trains to planes.", "preferences"),
        ("Please keep your answers in bullet points.", "preferences"),
        ("Please write to me without bullet points.", "preferences"),
        ("My favourite tea is oolong.", "preferences"),
        ("I'm training for the Leeds marathon.", "projects"),
        ("I'd like to learn queen rearing, that's my plan for the summer.", "projects"),
        ("We've decided on the oak floor.", "decisions"),
        ("Anya is allergic to eggs.", "people"),
        ("Still waiting for the visa.", "open_loops"),
        ("I need to renew my passport.", "todo"),
        ("My sister Lena lives in Oslo.", "people"),
        ("My blood type is O negative.", "facts"),
        ("I live in Ghent now.", "facts"),
        ("yeah, the rent is 950 euro a month.", "facts"),
    ],
)
def test_category_of(said, category):
    assert [item.category for item in extract(lines_of(said))] == [category]


def test_openers_are_dropped_and_the_rest_stays_word_for_word():
    assert texts("Oh, by the way, my blood type is O negative!") == ["my blood type is O negative!"]


def test_an_answer_joins_the_question_it_belongs_to():
    said = [("assistant", "Noted. When is Lena's birthday?"), ("user", "the 19th of May")]
    assert texts(*said) == ["When is Lena's birthday? the 19th of May"]


def test_a_sentence_with_a_pronoun_joins_the_one_before():
    assert texts("The dentist is on 12 June. It's at 4pm.") == ["The dentist is on 12 June. It's at 4pm."]


def test_a_confirmed_question_of_the_assistant_has_the_user_s_trust():
    said = [("assistant", "So the wedding is at Villa Rosa on 14 June, right?"), ("user", "Yes exactly.")]
    [item] = extract(lines_of(*said))
    assert (item.trust, item.sources) == ("user", ("p0", "p1"))


def test_what_the_assistant_did_is_kept_unless_the_user_denies_it():
    did = ("assistant", "I've booked a table at Lume for 14 June.")
    assert [item.trust for item in extract(lines_of(did, ("user", "thanks!")))] == ["assistant"]
    assert extract(lines_of(did, ("user", "No, wrong day."))) == []


def test_a_long_answer_of_the_assistant_is_no_memory():
    recipe = "Here is a recipe: 200 g flour, 300 ml milk. Bake at 180 degrees for 20 minutes. Serve with 2 lemons."
    assert texts(recipe, role="assistant") == []


def test_tool_results_give_one_short_line_of_tool_trust():
    assert [item.trust for item in extract(lines_of("Invoice 2026-019 was paid on 21 Aug 2026", role="tool"))] == [
        "tool"
    ]
    assert texts('{"paid": true, "on": "2026-08-21", "amount": 4307}', role="tool") == []


def test_a_text_of_another_language_gives_what_carries_numbers_or_names():
    assert texts(
        "Der Termin mit Frau Krause ist am 14. Mai um 9 Uhr. Mir geht es sonst ganz gut heute, alles ist fein."
    ) == ["Der Termin mit Frau Krause ist am 14. Mai um 9 Uhr."]
    assert texts("会議は6月12日の15時です。") == ["会議は6月12日の15時です。"]


def test_english_is_told_by_its_function_words():
    assert english("I live in the old house by the river with my dog")
    assert not english("ich wohne mit meinem Hund in einem alten Haus am Fluss")


def test_the_subject_is_what_the_statement_is_about():
    pairs = {
        "I moved to Porto in May.": "home",
        "The dentist appointment is on 12 June.": "dentist appoint",
        "My hourly rate is 72 euro.": "hourly rat",
    }
    assert {said: extract(lines_of(said))[0].subject for said in pairs} == pairs


def test_another_speaker_s_subject_is_marked():
    line = Line(id="a", seq=1, role="user", speaker="Tom", text="I moved to Porto in May.", when=0.0)
    assert extract([line])[0].subject == "@tom home"


def test_material_code_and_quotes_are_not_the_speaker_s():
    assert clean("Fix this:\nmy_rate = 5") == ""
    assert clean("a\n> b\nc").split() == ["a", "c"]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "hostile",
    [
        "a" * 20_000,
        "a " * 10_000,
        "1," * 10_000,
        "I " * 10_000,
        "my a's " * 3_000,
        "A" * 20_000,
        "<" * 20_000,
        "..." * 7_000,
    ],
)
def test_a_hostile_post_is_read_in_time(hostile):
    extract(lines_of(hostile))
