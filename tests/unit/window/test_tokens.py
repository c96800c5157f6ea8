"""Tests of token counters and of cutting texts to a number of tokens."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.window.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, chars4, counter, cut, estimate, exact

PIECES = [
    "Yesterday evening we talked about the trip. ", "def read(path: str) -> bytes:\n    return open(path).read()\n",
    '{"name": "Ana", "tags": ["a", "b"], "n": 12.5}', "昨天晚上我和几个老朋友一起去吃了火锅。",
    "어제 저녁에 친구들을 만났어요. ", "التقيت أمس بأصدقاء قدامى ", "कल शाम मैं दोस्तों से मिला। ", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷",
    "e\u0301o\u0308", "\r\n", "\n\n\n", "    ", "=====", "1234567",
    "aGVsbG8gd29ybGQ", "https://example.org/a?b=1 ", "\ud83d", "\ude00", "\x00", "x",
]  # fmt: skip
texts = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
COUNTERS = {
    "estimate": estimate,
    "chars4": chars4,
    "characters": len,
    "bytes": lambda text: len(text.encode("utf-8", "replace")),
}
counters = st.sampled_from(sorted(COUNTERS))


@given(texts)
def test_only_the_empty_text_costs_nothing(text):
    assert (estimate(text) == 0) == (text == "")
    assert (chars4(text) == 0) == (text == "")


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_costs_at_most_a_token_a_byte(text):
    assert estimate(text) <= len(text)


@given(texts, texts)
def test_parts_cost_nearly_as_much_as_the_whole(one, other):
    """A seam adds at most one pair and one run to the count: 2.7 + 0.6 + 1.9 + 1 tokens, and rounding."""
    assert estimate(one + other) <= estimate(one) + estimate(other) + 7


@given(texts, st.integers(2, 50))
def test_repeated_text_costs_proportionally(text, times):
    assert estimate(text * times) <= times * (estimate(text) + 7)


@settings(max_examples=3 * settings().max_examples)
@given(texts, st.integers(0, 200), counters)
def test_a_cut_text_fits_the_limit(text, tokens, name):
    count = COUNTERS[name]
    short = cut(text, tokens, count=count)
    assert count(short) <= tokens
    assert (short == text) == (count(text) <= tokens)
    assert cut(short, tokens, count=count) == short


@settings(max_examples=3 * settings().max_examples)
@given(texts, st.integers(8, 200), counters)
def test_a_cut_text_is_head_mark_and_tail(text, tokens, name):
    short = cut(text, tokens, count=COUNTERS[name])
    head, mark, tail = short.partition("…")
    if short == text:
        return
    if mark:
        head = head.removesuffix("\n[") if head.endswith("\n[") else head
        _, line, rest = tail.partition("]\n")
        tail = rest if line else tail
    assert text.startswith(head)
    assert text.endswith(tail) or "…" in text


@given(st.integers(8, 400), st.sampled_from(["e\u0301", "👩‍👩‍👧", "👍🏽", "🇩🇪-", "❤\ufe0f", "\r\n", "कि"]))
def test_a_cut_never_splits_a_visible_character(tokens, character):
    short = cut(character * 500, tokens, count=len)
    marked = re.sub(r"\n\[… [0-9,]+ tokens left out …\]\n|\n\[…\]\n", "…", short)
    for part in marked.split("…"):
        assert part.replace(character, "") in {"", "-", "🇩🇪"}


@given(st.integers(60, 2000), st.text("abc ", min_size=20, max_size=40))
def test_a_cut_long_text_uses_most_of_the_limit(tokens, line):
    text = "\n".join([line] * 1000)
    assert estimate(cut(text, tokens, count=estimate)) >= min(tokens * 3 // 4, estimate(text))


def test_cutting_counts_the_whole_text_once():
    seen = []

    def count(text):
        seen.append(len(text))
        return estimate(text)

    text = "".join(PIECES[:6]) * 5_000
    short = cut(text, 1_000, count=count)
    assert seen.count(len(text)) == 1
    assert sum(seen) < len(text) + 12 * len(short)
    assert len(seen) < 15


def test_the_mark_in_the_middle_says_how_much_is_missing():
    text = "\n".join(f"line {number} of the log" for number in range(5_000))
    short = cut(text, 300, count=estimate)
    head, line, tail = short.partition(f"\n[… {estimate(text) - 300:,} tokens left out …]\n")
    assert line
    assert head.startswith("line 0 of the log\n")
    assert head.endswith("of the log")
    assert tail.startswith("line ")
    assert tail.endswith("line 4999 of the log")
    assert 1.2 < len(head) / len(tail) < 1.9


@pytest.mark.parametrize("unit", ["\u0301", "🇩", "\u200d", "a", " ", "\n", "\ud83d"])
def test_hostile_texts_are_cut_quickly(unit):
    assert len(cut(unit * 1_000_000, 100, count=len)) <= 100


@pytest.mark.parametrize(
    ("text", "seed", "o200k", "cl100k"),
    [  # exact counts by quicktok-v1 0.4.0
        ("Yesterday evening I met a few old friends near the station, and we talked about school.", 22, 18, 18),
        ("def estimate(text: str) -> int:\n    return -(-len(text) // 4)\n", 16, 20, 20),
        ('{"id": 17, "name": "Ana", "tags": ["red", "blue"], "ok": true}', 16, 26, 26),
        ("昨天晚上我和几个老朋友一起去吃了火锅，聊了很多以前上学时候的事情。", 9, 24, 42),
        ("昨天晚上我和幾個老朋友一起去吃了火鍋，聊了很多以前上學時候的事情。", 9, 28, 45),
        ("昨日の夜は久しぶりに友達と会って、駅前のお店で晩ご飯を食べました。", 9, 29, 40),
        ("어제 저녁에 오랜만에 친구들을 만나서 같이 밥을 먹었어요.", 8, 21, 33),
        ("التقيت أمس بأصدقاء قدامى في مقهى قرب المحطة", 11, 16, 30),
        ("Вчера вечером я встретил старых друзей у вокзала.", 13, 14, 24),
        ("कल शाम मैं कुछ पुराने दोस्तों से मिला।", 10, 9, 36),
        ("👍🎉😀", 1, 4, 8),
        ("https://example.org/path/to/page?id=12345&lang=en", 13, 14, 14),
        ("Gestern Abend habe ich am Bahnhof alte Freunde getroffen, und wir sprachen über die Schule.", 23, 19, 27),
        ("Учора ввечері я зустрів старих друзів біля вокзалу.", 13, 19, 31),
        ("Ayer por la tarde me encontré con unos viejos amigos cerca de la estación.", 19, 18, 19),
    ],
)
def test_the_estimate_is_close_to_o200k(text, seed, o200k, cl100k):
    assert chars4(text) == seed
    assert o200k * 0.88 <= estimate(text) <= o200k * 1.3 + 4
    assert estimate(text) >= cl100k * 0.4


@pytest.mark.parametrize("name", ["o200k", "cl100k"])
def test_exact_counts_treat_special_tokens_and_surrogates_as_text(name):
    pytest.importorskip("quicktok")
    count = exact(name)
    assert count("") == 0
    assert count("hello world") == 2
    assert count("<|endoftext|>") > 3
    assert count("a\ud800b") == count("a?b")
    assert counter(name)("hello world") == 2
    assert count(cut("hello world, " * 500, 60, count=count)) <= 60


def test_a_setting_selects_the_counter():
    assert counter("estimate") is estimate
    assert counter("chars4") is chars4
    with pytest.raises(InvalidInput, match=r"'o200'\. Use one of estimate, chars4, o200k, cl100k"):
        counter("o200")
    with pytest.raises(InvalidInput, match="'estimate'"):
        exact("estimate")


def test_a_missing_tokenizer_names_the_extra_to_install():
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "quicktok"}
    sys.modules["quicktok"] = None  # Python's own marker for a module that must not be imported
    try:
        with pytest.raises(InvalidInput, match=r"cuebook\[exact-tokens\]"):
            exact("o200k")
    finally:
        del sys.modules["quicktok"]
        sys.modules.update(hidden)


def test_messages_and_images_have_their_documented_cost():
    assert MESSAGE_OVERHEAD == 4
    assert 85 + 8 * 170 <= IMAGE_TOKENS <= 1_600


def test_every_assigned_character_has_a_cost():
    for code in range(0x80, 0x30000, 7):
        if unicodedata.category(chr(code)) not in {"Cn", "Cs"}:
            assert 1 <= estimate(chr(code)) <= 6
