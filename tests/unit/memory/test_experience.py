"""Tests of experiences: how files are parsed, and which experiences fit a query by words and by similarity."""

import array
import asyncio
from collections.abc import Mapping

import pytest
from experience_pairs import ADVICE, HELD_OUT, PAIRS, SET_ON
from experience_second import ADVICE as SECOND
from experience_second import PAIRS as SECOND_PAIRS
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.memory.experience import choose, clauses, offered, read_experience, score
from cuebook.providers.minilm.embedder import MiniLM
from cuebook.records.persona import Experience

FILE = "experience/handcrafted_exp_x.yaml"
FULL = {"exp_id": "x", "who": ["Planner"], "when": "When asked.", "what": "Answer."}


def advice(name: str, when: str, *who: str) -> Experience:
    return Experience(exp_id=name, who=who, when=when, what="…")


# ---- parsing of files -----------------------------------------------------------------------------------------------


def test_an_experience_is_parsed() -> None:
    found, unknown = read_experience(FULL, file=FILE)
    assert found == Experience(exp_id="x", who=("Planner",), when="When asked.", what="Answer.")
    assert unknown == ()


@pytest.mark.parametrize(
    ("who", "read"), [(None, ()), ("", ()), ([], ()), ("a", ("a",)), (["a", "b", "a"], ("a", "b"))]
)
def test_who_is_a_name_or_a_list_or_all(who: object, read: tuple[str, ...]) -> None:
    assert read_experience(FULL | {"who": who}, file=FILE)[0].who == read


def test_a_legacy_text_sets_both_when_and_what() -> None:
    found, _ = read_experience({"exp_id": "old", "experience_text": "Check paths."}, file=FILE)
    assert (found.when, found.what, found.who) == ("Check paths.", "Check paths.", ())


def test_missing_fields_of_an_experience_are_reported() -> None:
    _, unknown = read_experience(FULL | {"priority": "1", "embedding": []}, file=FILE)
    assert unknown == ("priority", "embedding")


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (["a"], FILE),
        ("text", FILE),
        (None, FILE),
        ({"when": "a", "what": "b"}, f"{FILE}:exp_id"),
        (FULL | {"exp_id": "a\nb"}, f"{FILE}:exp_id"),
        (FULL | {"exp_id": "x" * 161}, f"{FILE}:exp_id"),
        (FULL | {"exp_id": ["a"]}, f"{FILE}:exp_id"),
        (FULL | {"when": ""}, f"{FILE}:when"),
        (FULL | {"what": "  "}, f"{FILE}:what"),
        (FULL | {"what": ["a"]}, f"{FILE}:what"),
        (FULL | {"what": "x" * 20_001}, f"{FILE}:what"),
        (FULL | {"what": "a\x00b"}, f"{FILE}:what"),
        (FULL | {"when": "a\ud800b"}, f"{FILE}:when"),
        (FULL | {"who": ["a\ud800"]}, f"{FILE}:who"),
        (FULL | {"when": "x" * 4_001}, f"{FILE}:when"),
        (FULL | {"who": {"a": "b"}}, f"{FILE}:who"),
        (FULL | {"who": [""]}, f"{FILE}:who"),
        ({"exp_id": "a", "raw_experience": "x"}, f"{FILE}:when"),
    ],
)
def test_an_invalid_experience_is_rejected_by_file_and_key(document: object, where: str) -> None:
    with pytest.raises(InvalidInput, match=FILE) as refused:
        read_experience(document, file=FILE)
    assert refused.value.where == where


def test_experiences_for_persona_role_or_all_are_offered() -> None:
    all_ = [advice("a", "w"), advice("b", "w", "Planner"), advice("c", "w", "planner", "coder"), advice("d", "w", "x")]
    assert [each.exp_id for each in offered(all_, ("helper", "PLANNER"))] == ["a", "b", "c"]


# ---- selection ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "about"),
    [
        ("Use when user requests file operations.", ["file operations."]),
        ("The customer asks for a refund.", ["a refund."]),
        ("When asked to write a regular expression", ["write a regular expression"]),
        ("Deployments", ["Deployments"]),
        (
            "When a build is red, or a test fails.",
            ["a build is red, or a test fails.", "a build is red", "a test fails."],
        ),
        ("When", ["When"]),
    ],
)
def test_introductory_words_of_a_when_are_ignored(when: str, about: list[str]) -> None:
    assert clauses(when) == tuple(about)


def measured(
    pairs: object, closeness: object = None, *, own: Mapping[str, tuple[Experience, ...]] = ADVICE
) -> tuple[float, float, float]:
    """Return precision, recall, and the share of queries without a fit that got an experience."""
    right = wrong = missed = some = nothing = 0
    for project, query, fits in pairs:  # type: ignore[attr-defined]
        near = closeness(project, query) if closeness else None  # type: ignore[operator]
        found = {each.exp_id for each in choose(score(query, own[project], near), most=3) if each.chosen}
        right += len(found & set(fits))
        wrong += len(found - set(fits))
        missed += len(set(fits) - found)
        nothing += not fits
        some += bool(found and not fits)
    return right / (right + wrong), right / (right + missed), some / nothing


def test_the_labeled_pairs_are_consistent() -> None:
    assert len(PAIRS) >= 60
    assert sum(not fits for _, _, fits in PAIRS) * 2 == len(PAIRS)
    assert len(HELD_OUT) * 3 == len(PAIRS)
    assert sum(not fits for _, _, fits in HELD_OUT) * 2 == len(HELD_OUT)


def test_selection_by_words_is_precise() -> None:
    """The thresholds are slightly below the figures in docs/design/014."""
    for pairs in (SET_ON, HELD_OUT):
        precision, recall, some = measured(pairs)
        assert precision >= 0.88
        assert recall >= 0.58
        assert some <= 0.1


@pytest.mark.skipif(bool(MiniLM.missing()), reason="needs cuebook[embeddings]")
@pytest.mark.slow
def test_selection_by_similarity_has_higher_recall() -> None:
    texts = sorted(
        {query for _, query, _ in PAIRS} | {c for own in ADVICE.values() for a in own for c in clauses(a.when)}
    )
    vectors = dict(zip(texts, map(floats, asyncio.run(MiniLM().embed(texts))), strict=True))

    def closeness(project: str, query: str) -> dict[str, float]:
        asked = vectors[query]
        return {each.exp_id: max(dot(asked, vectors[text]) for text in clauses(each.when)) for each in ADVICE[project]}

    for pairs in (SET_ON, HELD_OUT):
        precision, recall, some = measured(pairs, closeness)
        assert precision >= 0.8
        assert recall >= 0.78
        assert some <= 0.18


def floats(vector: bytes) -> list[float]:
    return array.array("f", vector).tolist()


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_unrelated_words_select_nothing() -> None:
    found = choose(score("Tell me a joke", ADVICE["coder"]), most=3)
    assert not any(each.chosen for each in found)
    assert all("below" in each.reason for each in found)


def test_the_best_of_many_fits_are_selected() -> None:
    same = [advice(f"e{number}", "When a parcel is lost.") for number in range(5)]
    found = choose(score("my parcel is lost", same), most=3)
    assert [each.exp_id for each in found if each.chosen] == ["e0", "e1", "e2"]
    assert found[3].reason == "fits, but at most 3 are chosen"


def test_the_what_text_is_never_compared() -> None:
    one = Experience(exp_id="a", when="When a parcel is lost.", what="invoice invoice invoice")
    assert score("send me the invoice", [one])[0].score == 0


@given(st.text(max_size=80), st.lists(st.text(min_size=1, max_size=60), max_size=6), st.integers(1, 4))
def test_the_selection_is_limited_and_unique(query: str, whens: list[str], most: int) -> None:
    given_ = [advice(f"e{number}", when) for number, when in enumerate(whens)]
    found = choose(score(query, given_), most=most)
    assert sorted(each.exp_id for each in found) == sorted(each.exp_id for each in given_)
    assert sum(each.chosen for each in found) <= most
    assert all(0 <= each.by_words <= 1 for each in found)


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("Ich möchte mein Geld zurück", "refund"),
        ("Wo ist mein Paket?", "parcel"),
        ("Ich habe mein Passwort vergessen", "login"),
        ("Je veux un remboursement", "remboursement"),
        ("Quiero cancelar mi suscripción", "cancelar"),
        ("Wie ist das Wetter in der Stadt?", None),
        ("Est-ce que le magasin est ouvert?", None),
        ("¿Dónde está la tienda?", None),
        ("今天天气怎么样", None),
    ],
)
def test_other_languages_are_compared_by_their_subject(query: str, fits: str | None) -> None:
    own = [
        advice("refund", "Der Kunde verlangt eine Rückerstattung oder will sein Geld zurück."),
        advice("parcel", "Ein Paket ist verspätet, verloren oder wurde an die falsche Adresse geliefert."),
        advice("login", "Der Kunde hat das Passwort vergessen."),
        advice("remboursement", "Le client demande un remboursement."),
        advice("cancelar", "El cliente quiere cancelar la suscripción."),
        advice("chinese", "客户要求退款"),
    ]
    found = [each.exp_id for each in choose(score(query, own), most=3) if each.chosen]
    assert found == ([fits] if fits else [])


@pytest.mark.parametrize(
    ("project", "precision", "recall", "some"), [("desk", 0.8, 0.26, 0.1), ("home", 0.5, 0.6, 0.5)]
)
def test_untuned_advice_is_found_less_often(project: str, precision: float, recall: float, some: float) -> None:
    """docs/design/014 reports the figures of this second set. Word matching misses advice in other words."""
    mine = [each for each in SECOND_PAIRS if each[0] == project]
    found = measured(mine, own=SECOND)
    assert found[0] >= precision
    assert found[1] >= recall
    assert found[2] <= some
