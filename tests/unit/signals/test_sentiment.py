"""Tests of sentiment: the lexicon, the classifier, and the parsing of a model's sentiment answer."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.languages import reads
from cuebook.records.mind import Sentiment
from cuebook.signals.classifier import Weights, features, pack, probabilities, shipped, unpack
from cuebook.signals.machine_text import spoken
from cuebook.signals.sentiment import SCHEMA, analyzers_of, asked, parse_reply

HERE = Path(__file__).parent
lexicon = analyzers_of()["lexicon_based"]


def labelled(file: str) -> list[tuple[str, str]]:
    rows = (line.split("\t") for line in (HERE / file).read_text("utf-8").splitlines())
    return [(label, text) for label, text in rows]


@pytest.mark.parametrize(
    ("text", "polarity"),
    [
        ("This is bad", "negative"),
        ("It is not good", "negative"),
        ("not bad at all", "positive"),
        ("WTF", "negative"),
        ("I give up", "negative"),
        ("ok", "neutral"),
        ("yes", "neutral"),
        ("no, the other file", "neutral"),
        ("no no no NO", "negative"),
        ("why does it keep crashing??", "negative"),
        ("great, another bug…", "negative"),
        ("Great, it passes all tests now", "positive"),
        ("Great, can you fix the bug in the parser?", "positive"),
        ("The upload died and my draft is gone. Great job.", "negative"),
        ("that fixed it", "positive"),
        ("no problems so far", "positive"),
        ("Kill the process and abort the transaction.", "neutral"),
        ("How do I add error handling here?", "neutral"),
        ("The garbage collector pauses for a second.", "neutral"),
        ("Is there dead code in a critical section?", "neutral"),
        ("It says connection refused, permission denied.", "neutral"),
        ("I want to kill myself", "negative"),
        ("Write a sad poem about a dead bird and a terrible storm", "neutral"),
        ("Write it properly, you idiot", "negative"),
        ("What does an emergency brake cost, and is it safe?", "neutral"),
        ("Who directed the film about the terrible fire?", "neutral"),
        ("What is wrong with you?", "negative"),
        ("Who wrote this crap?", "negative"),
        ("Great! Next question: how do I kill a zombie process?", "positive"),
        ("can't log in, locked out again", "negative"),
        ("I have to write this again because you deleted it, this is ridiculous", "negative"),
        ("I want to write a poem about grief and despair", "neutral"),
        ("My boss is angry because your app lost the report", "negative"),
        ("This is the third time you tell me that", "negative"),
        ('brilliant. so you "fixed" it by deleting the tests?', "negative"),
        ("👍", "positive"),
        ("😡", "negative"),
        ("", "neutral"),
        ("123 + 4", "neutral"),
    ],
)
def test_messages_get_their_intended_polarity(text: str, polarity: str) -> None:
    assert lexicon.read(text).polarity == polarity


def test_an_acknowledgment_is_mild_and_thanks_are_not() -> None:
    assert 0 < lexicon.read("ok thanks").score < 0.3 < lexicon.read("thank you so much!").score
    for method in analyzers_of().values():
        assert method.read("ok thanks").score < 0.75 * method.read("thank you so much!").score


@pytest.mark.parametrize("text", ["great, another bug…", "Oh wonderful, it deleted my files."])
def test_no_method_takes_sarcasm_for_praise(text: str) -> None:
    for method in analyzers_of().values():
        found = method.read(text)
        assert (found.polarity, found.negatives > 0) == ("negative", True)


def test_a_report_is_mild() -> None:
    assert -0.3 < lexicon.read("it fails with exit code 1").score < 0


def test_strong_statements_are_intense() -> None:
    calm, loud = lexicon.read("This is bad"), lexicon.read("WTF")
    assert calm.intensity < 0.6 < loud.intensity
    assert lexicon.read("I HATE THIS").intensity > lexicon.read("I hate this").intensity
    assert lexicon.read("what?? why??").intensity > 0


@pytest.mark.parametrize(
    "text",
    [
        "```\nraise FatalError('horrible, terrible, awful')\n```",
        "> you are an idiot and I hate you",
        'Traceback (most recent call last):\n  File "bad.py", line 3\n    hate()\nValueError: terrible failure',
        "2026-01-02 10:00:01 ERROR horrible failure",
        "see https://example.org/hate/awful",
        'the form says "this is a horrible, useless mess" in red',
        "answer this: \u201cI hate you and your awful app\u201d",
        "src/awful/terrible_hate.py",
        "`I hate this`",
    ],
)
def test_quoted_text_does_not_count_as_the_users_mood(text: str) -> None:
    found = lexicon.read(text)
    assert (found.score, found.negatives) == (0, 0)
    assert lexicon.read(f"I love this!\n{text}").polarity == "positive"


def test_negative_words_are_counted() -> None:
    assert lexicon.read("wrong, broken and useless").negatives == 3
    assert lexicon.read("not wrong").negatives == 0
    assert lexicon.read("I give up").negatives == 1


def test_a_long_message_is_the_mean_of_its_passages() -> None:
    rant, calm = "I hate this. " * 5, "The table has four columns and each of them holds a date. " * 40
    assert lexicon.read(rant).score < lexicon.read(calm + rant).score < 0


@pytest.mark.parametrize(
    "piece",
    ["a/", "a.", "a_", "f.g(", "`a", "'a ", "oh, well, just ", "the a if when ", "> ", '"a ', "\u201c", "\u201e", "😡"],
)
def test_odd_texts_are_scored_in_linear_time(piece: str) -> None:
    for method in analyzers_of().values():
        assert method.read(piece * (50_000 // len(piece))).method == method.name


@given(st.text(max_size=300))
def test_every_text_has_a_score_or_is_unknown(text: str) -> None:
    for method in analyzers_of().values():
        found = method.read(text)
        assert isinstance(found, Sentiment)
        assert -1 <= found.score <= 1
        assert 0 <= found.intensity <= 1
        assert found.method == method.name
        assert found.polarity != "unknown" or (found.score, found.intensity, found.negatives) == (0, 0, 0)


@pytest.mark.parametrize(("file", "least"), [("languages.tsv", 0.98), ("languages_held_out.tsv", 0.92)])
def test_an_unsupported_language_is_unknown(file: str, least: float) -> None:
    rows = labelled(file)
    wrong = [text for language, text in rows if reads(("en",), text) != (language == "en")]
    assert len(wrong) <= (1 - least) * len(rows), wrong


@pytest.mark.parametrize("method", analyzers_of().values(), ids=lambda each: each.name)
def test_no_method_scores_an_unsupported_language(method: Any) -> None:
    for text in ("das funktioniert nicht", "merci beaucoup", "no funciona nada", "nie działa", "werkt niet", "不行"):
        assert method.read(text) == Sentiment(method=method.name)
    for text in ("nope", "wtf", "thx", "ugh no", "no idea", "super fast"):
        assert method.read(text).polarity != "unknown"


def test_support_sentences_are_classified() -> None:
    for file, least in (
        ("support_tuned.tsv", 0.90),
        ("support_held_out.tsv", 0.85),
        ("everyday_held_out.tsv", 0.7),
        ("support_second.tsv", 0.9),
    ):
        rows = labelled(file)
        right = sum(lexicon.read(text).polarity == label for label, text in rows)
        assert right >= least * len(rows)


def test_the_classifier_gives_the_scores_of_its_training() -> None:
    """Training wrote the expected scores before it rounded the weights to half precision."""
    weights = shipped()
    for score, text in labelled("classifier_scores.tsv"):
        negative, neutral, positive = probabilities(features(text), weights)
        assert positive - negative == pytest.approx(float(score), abs=2e-3), text
        assert negative + neutral + positive == pytest.approx(1)


def test_weights_load_as_they_were_saved() -> None:
    weights = Weights({"good": (1.5, 2.0, -1.0), "so bad": (2.25, -0.5, 3.0), "😀": (1.0, 1.0, 0.0)}, 0.125, -0.375)
    assert unpack(pack(weights)) == weights
    with pytest.raises(ValueError, match="Reinstall cuebook"):
        unpack(b"else")


def test_classifier_and_mean_classify_support_sentences() -> None:
    rows = [row for file in ("support_tuned.tsv", "support_held_out.tsv") for row in labelled(file)]
    for name, least in (("trained_classifier", 0.7), ("lexicon_and_classifier", 0.8)):
        method = analyzers_of()[name]
        assert sum(method.read(text).polarity == label for label, text in rows) >= least * len(rows)


@pytest.mark.slow
def test_models_are_loaded_at_first_use() -> None:
    told = "import sys, cuebook; cuebook.Cuebook; print(*(each for each in sys.modules if each.startswith('vader')))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert not done.stdout.strip()


def test_the_users_words_are_separated_from_pasted_text() -> None:
    assert spoken("look:\n```\ncode\n```\nit broke").split() == ["look:", "it", "broke"]
    assert len(spoken("word " * 10_000)) < 10_000
    pasted = "```\n" + "raise Failure\n" * 2_000 + "```\n"
    assert spoken(f"It broke.\n{pasted}What now?").split() == ["It", "broke.", "What", "now?"]
    assert spoken(f"{pasted}{'Calm words. ' * 300}\nI hate it.").endswith("I hate it.")


def test_a_model_answer_in_the_requested_form_is_parsed() -> None:
    assert parse_reply(' {"score": -0.5, "intensity": 1} ') == Sentiment(
        score=-0.5, intensity=1.0, polarity="negative", method="llm"
    )
    assert parse_reply('Here it is: ```json\n{"score": 0.5, "intensity": 0.1}\n```').score == 0.5
    for text in (
        '{"score": "-0.5"}',
        '{"score": -0.5, "intensity": null, "mood": "sad"}',
        "{'score': -0.5, 'intensity': 0.5,}",
        '{"score": -0.5, "intensity": 0.5',
    ):
        assert (parse_reply(text).score, parse_reply(text).intensity) == (-0.5, 0.5)
    assert SCHEMA["required"] == ["score", "intensity"]
    assert asked('say "hi"\n```\ncode\n```') == 'MESSAGE: "say \\"hi\\""'


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "negative",
        "[]",
        '{"score": -1.5, "intensity": 0}',
        '{"score": 0, "intensity": 2}',
        '{"score": true, "intensity": 0.1}',
        '{"score": "\\ud800", "intensity": 0.1}',
        '{"score": null, "intensity": 0.1}',
        '{"score": NaN, "intensity": 0.1}',
        "[" * 100_000,
    ],
)
def test_any_other_answer_is_rejected(answer: str) -> None:
    with pytest.raises(InvalidInput, match="invalid model answer"):
        parse_reply(answer)


@pytest.mark.parametrize(
    ("text", "polarity"),
    [
        ("This could not be better.", "positive"),
        ("It couldn't be better.", "positive"),
        ("It is not good.", "negative"),
    ],
)
def test_not_and_its_contraction_score_alike(text: str, polarity: str) -> None:
    assert lexicon.read(text).polarity == polarity
