"""Tests of the word lists and of language detection."""

import tomllib
from importlib.resources import files

import pytest

from cuebook.languages import CODES, detect, language, reads, words_of

FILES = {code: tomllib.loads(files("cuebook.languages").joinpath(f"{code}.toml").read_text("utf-8")) for code in CODES}


@pytest.mark.parametrize("code", CODES)
def test_each_file_has_the_same_lists(code: str) -> None:
    assert FILES[code].keys() == FILES["en"].keys()
    assert FILES[code]["code"] == code
    assert all(text == text.lower() for name, text in FILES[code].items() if name != "name")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("I have moved to the harbour and it is nice.", "en"),
        ("Ich bin nicht sicher, ob wir das noch schaffen.", "de"),
        ("No sé si vamos a llegar con el tren de las cinco.", "es"),
        ("Je ne sais pas si nous serons là pour le dîner.", "fr"),
        ("我下个月要搬家", "zh"),
        ("来月東京に引っ越します", "ja"),
        ("BRW-4711", ""),
        ("", ""),
    ],
)
def test_the_language_of_a_text(text: str, code: str) -> None:
    assert detect(text) == code


def test_words_affixes_and_phrases_identify_a_language() -> None:
    assert language("en").signs("I'm allergic to nuts")["health"] == 1
    assert language("en").signs("from now on use tabs")["rule"] >= 1
    assert language("de").signs("Sie hat eine Nussallergie")["health"] >= 1
    assert language("zh").signs("我对花生过敏")["health"] >= 1
    assert language("en").signs("dont ever call")["rule"] == language("en").signs("don't ever call")["rule"] == 1


def test_a_language_without_word_list_has_no_signs() -> None:
    assert language("").signs("Jeg er allergisk") == {}
    assert language("").content("Jeg er allergisk") == ["jeg", "er", "allergisk"]
    assert words_of("It’s `a_b`") == ["it's", "a", "b"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("werkt niet", "nl"), ("nie działa", "pl"), ("это не работает", "und"), ("def main(): return 0", ""), ("404", "")],
)
def test_a_language_without_word_list_is_detected(text: str, code: str) -> None:
    assert detect(text) == code


def test_code_counts_as_a_supported_language() -> None:
    assert reads(("en",), "I have moved")
    assert reads(("en",), "x = 1")
    assert reads((), "merci beaucoup")
    assert not reads(("en",), "merci beaucoup, c'est parfait")


def test_text_without_accents_is_detected() -> None:
    assert (
        language("es").signs("Soy alérgico al polen")["health"]
        == language("es").signs("Soy alergico al polen")["health"]
    )
