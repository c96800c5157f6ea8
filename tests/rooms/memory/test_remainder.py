from cuebook.memory.remainder import remainder
from cuebook.memory.subject import item_id, subject_of
from cuebook.records.memory import Item


def item(text):
    return Item(
        id=item_id("facts", text), category="facts", text=text, sources=("p1",), subject=subject_of(text), weight=0.6
    )


def rest_of(text, clause):
    left = remainder(item(text), clause)
    return left and (left.text, left.category, left.name)


def test_a_sister_stays_one_when_her_job_is_over():
    text = "My sister Maaike works at the town library and she does my labels for free."
    assert rest_of(text, text) == ("My sister Maaike", "people", "Maaike")
    assert rest_of("My sister Maaike", "My sister Maaike") is None


def test_a_daughter_stays_one_when_the_home_changes():
    text = "I live in Zutphen, on the Houtwal, with my daughter Fenna who is eleven."
    assert rest_of(text, text) == ("my daughter Fenna", "people", "Fenna")


def test_who_is_no_kin_goes_with_the_rest():
    text = "My landlord Piet lives downstairs."
    assert rest_of(text, text) is None
    assert rest_of("My sister's cat lives with us.", "My sister's cat lives with us.") is None


def test_an_opener_that_only_points_goes_and_what_it_announces_stays():
    text = (
        "New one, and it's a proper company for once: Kadex Logistics wants a roof garden on their head office, "
        "640 square metres, and facility manager Pieter Maes is my contact there."
    )
    left = "Kadex Logistics wants a roof garden on their head office, 640 square metres"
    assert rest_of(text, "and facility manager Pieter Maes is my contact there.") == (left, "facts", "")


def test_a_statement_that_shared_its_subject_stays_without_it():
    text = "I live in Utrecht and work as a nurse."
    assert rest_of(text, "I live in Utrecht") == ("work as a nurse.", "facts", "")
