"""Tests of events (counters, thresholds, cool-downs) and of the ten signals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.prompts.select import SIGNALS, checked
from cuebook.records.conversation import Part
from cuebook.records.mind import Counters, Sentiment, TurnSignals
from cuebook.records.persona import EVENTS, SentimentTracking
from cuebook.signals.context import drift_by_meaning, drift_by_words, goes_on
from cuebook.signals.corrections import confusion_in
from cuebook.signals.machine_text import failed
from cuebook.signals.message_signals import hear, is_about_its_matter
from cuebook.signals.tasks import TASKS, examples, nearest

ON = SentimentTracking(enabled=True)
NOW = 1.7e9


def felt(score: float, intensity: float | None = None, *, negatives: int = 0) -> Sentiment:
    polarity = "positive" if score >= 0.05 else "negative" if score <= -0.05 else "neutral"
    intensity = abs(score) if intensity is None else intensity
    return Sentiment(score=score, intensity=intensity, polarity=polarity, method="m", negatives=negatives)


CALM, BAD, GOOD, MILD = felt(0.0), felt(-0.5), felt(0.5, 0.4), felt(-0.35, 0.4)
UNKNOWN = Sentiment(method="m")


def process(
    *said: tuple[str, Sentiment], tracking: SentimentTracking = ON, gap: float = 60.0, trace=()
) -> list[TurnSignals]:
    """Process messages in turn, `gap` seconds apart, with the tool results of `trace` by message number."""
    found: list[TurnSignals] = []
    for n, (text, sentiment) in enumerate(said):
        before = found[-1].counters if found else Counters()
        errors = dict(trace).get(n, ())
        found.append(hear(text, before=before, sentiment=sentiment, tracking=tracking, trace=errors, now=NOW + gap * n))
    return found


def names(heard: TurnSignals) -> list[str]:
    return [event.name for event in heard.events]


def fired(*said: tuple[str, Sentiment], **more) -> list[list[str]]:
    return [names(each) for each in process(*said, **more)]


SAID = "The report of last week is in the shared folder now"


@pytest.mark.parametrize(
    ("score", "intensity", "fires"),
    [(-0.31, 0.61, True), (-0.31, 0.6, False), (-0.3, 0.9, False), (-1.0, 1.0, True)],
)
def test_one_message_frustrates_below_the_threshold_and_above_the_intensity(score, intensity, fires):
    assert (fired((SAID, felt(score, intensity))) == [["user_frustrated"]]) is fires


@pytest.mark.parametrize(
    ("score", "intensity", "fires"), [(0.31, 0.51, True), (0.31, 0.5, False), (0.3, 0.9, False), (1.0, 1.0, True)]
)
def test_one_message_satisfies_above_the_threshold_and_above_the_intensity(score, intensity, fires):
    assert (fired((SAID, felt(score, intensity))) == [["user_satisfied"]]) is fires


def test_a_correction_never_fires_satisfaction():
    found = process(("No, I meant by value", felt(0.9)), (SAID, GOOD))
    assert [names(each) for each in found] == [[], []]
    assert [each.counters.satisfaction for each in found] == [0, 1]


@pytest.mark.parametrize("consecutive", [1, 2, 3, 5])
def test_a_count_means_consecutive_messages_for_both_moods(consecutive):
    tracking = SentimentTracking(enabled=True, consecutive_turns=consecutive)
    for sentiment, name in ((MILD, "user_frustrated"), (GOOD, "user_satisfied")):
        found = fired(*[(SAID, sentiment)] * consecutive, tracking=tracking)
        assert found == [[]] * (consecutive - 1) + [[name]]


def test_a_neutral_message_ends_the_run():
    assert fired((SAID, MILD), (SAID, CALM), (SAID, MILD)) == [[], [], []]


def test_an_unscored_message_keeps_the_run_and_fires_nothing():
    found = process((SAID, MILD), ("no entiendo??", UNKNOWN), (SAID, MILD))
    assert [names(each) for each in found] == [[], [], ["user_frustrated"]]
    assert [each.counters.frustration for each in found] == [1, 1, 2]
    assert [each.counters.turns for each in found] == [1, 2, 3]
    assert found[1].keywords == ()


def test_thresholds_come_from_the_persona():
    tutor = SentimentTracking(enabled=True, frustration_threshold=-0.2, satisfaction_threshold=0.2, consecutive_turns=1)
    assert fired((SAID, felt(-0.25, 0.2)), tracking=tutor) == [["user_frustrated"]]
    assert fired((SAID, felt(0.25, 0.2)), tracking=tutor) == [["user_satisfied"]]


def test_an_ongoing_event_fires_again_after_cooldown_turns():
    found = fired(*[(SAID, felt(-0.8))] * 10)
    assert [n for n, each in enumerate(found) if each] == [0, 4, 8]


def test_the_cooldown_also_lasts_its_milliseconds():
    tracking = SentimentTracking(enabled=True, cooldown_turns=0, cooldown_ms=150_000)
    found = fired(*[(SAID, felt(-0.8))] * 7, tracking=tracking, gap=60.0)
    assert [n for n, each in enumerate(found) if each] == [0, 3, 6]


def test_each_event_has_its_own_cooldown():
    assert fired((SAID, felt(-0.8)), (SAID, felt(0.8))) == [["user_frustrated"], ["user_satisfied"]]


def test_untracked_events_and_quoted_words_fire_nothing():
    assert fired((SAID, felt(-0.8)), tracking=SentimentTracking()) == [[]]
    heard = hear(SAID, sentiment=felt(-0.8), tracking=ON, fires=False)
    assert names(heard) == []
    assert heard.counters.frustration == 1
    assert heard.counters.fired == {}


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("I'm confused about the second step", "confused"),
        ("I don't understand why that is", "don't understand"),
        ("i dont understand", "don't understand"),
        ("I don\u2019t get it", "don't understand"),
        ("That part is unclear", "unclear"),
        ("What do you mean?", "what do you mean"),
        ("Can you clarify?", "clarify"),
        ("Huh?", "huh"),
        ("that makes no sense", "doesn't make sense"),
        ("This doesn't make sense", "doesn't make sense"),
        ("I'm not sure.", "not sure"),
        ("I'm lost", "lost"),
        ("Could you explain that again?", "explain again"),
        ("what??", "??"),
        ("??", "??"),
    ],
)
def test_keywords_of_confusion_fire(text, keyword):
    assert confusion_in(text) == (keyword,)
    [heard] = process((text, CALM))
    assert names(heard) == ["user_confused"]
    assert f'"{keyword}"' in heard.events[0].reason


@pytest.mark.parametrize(
    "text",
    [
        "Explain the difference between a list and a tuple",
        "Can you explain how this works?",
        "a ?? b",
        "`x ?? y`",
        "The unclearable flag",
        "Users don't understand the form, how do I improve it?",
        "He confused the model with the view",
        "I'm not sure whether to use Go or Rust",
        "Huhn is German for chicken",
        "To clarify, it is the second file",
        "The lost update problem",
        "> I don't understand\nWrite an answer to this",
    ],
)
def test_words_similar_to_keywords_fire_nothing(text):
    assert fired((text, CALM)) == [[]]


def test_repeated_question_marks_mean_anger_in_negative_messages():
    assert fired(("why does it keep crashing??", felt(-0.6, 0.5))) == [[]]


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("Make the villain even more evil and cruel.", False),
        ("Is it dangerous to remove this folder?", False),
        ("Which of the errors is the worst?", False),
        ("Kill the worker. What deletes the dead rows?", False),
        ("Why is this so terrible?", True),
        ("What is wrong with you?", True),
        ("Fix this useless thing", True),
        ("Is it broken again?", True),
        ("Add the ugly, awful header!!", True),
        ("REMOVE THIS HORRIBLE header", True),
        ("This is terrible.", True),
        ("Make it stop. I hate it.", True),
    ],
)
def test_orders_and_questions_are_no_mood(text, moved):
    [heard] = process((text, felt(-0.8, negatives=4)))
    assert (names(heard) == ["user_frustrated"]) is moved
    assert (heard.signals["user_frustrated"] > 0.5) is moved
    assert heard.sentiment.score == -0.8, "the method's score is reported unchanged"


def test_neutral_messages_with_negative_words_are_confused():
    assert fired((SAID, felt(0.0, 0.0, negatives=3))) == [["user_confused"]]
    assert fired((SAID, felt(0.0, 0.0, negatives=2))) == [[]]


def test_errors_fire_at_two_of_ten_including_a_new_one():
    found = fired(*[(SAID, CALM)] * 8, trace={1: [True], 2: [True, False], 6: [False]})
    assert [n for n, each in enumerate(found) if each] == [2]
    assert found[2] == ["error_threshold_exceeded"]
    far = fired(*[(SAID, CALM)] * 4, trace={0: [True], 1: [False] * 9, 2: [False], 3: [True]})
    assert far == [[], [], [], []], "the first error is outside of the window"


def test_errors_fire_in_any_language():
    assert fired(("das geht nicht", UNKNOWN), trace={0: [True, True]}) == [["error_threshold_exceeded"]]


@pytest.mark.parametrize("replies", [["ok", "fine", "k", "sure"], ["I see", "mhm", "next", "go on"], ["."] * 4])
def test_four_short_neutral_messages_are_low_engagement(replies):
    found = fired(*((text, CALM) for text in replies))
    assert found == [[], [], [], ["low_engagement"]]


def test_short_questions_and_orders_are_engaged():
    asked = ["And in Rust?", "How?", "Add a test to it", "show me the file", "Rename the function please"]
    assert fired(*((text, CALM) for text in asked * 3)) == [[]] * 15


def test_messages_without_own_words_are_no_low_engagement():
    assert fired(*[("", CALM)] * 6) == [[]] * 6
    assert fired(*[("```\nx = 1\n```", CALM)] * 6) == [[]] * 6


def test_long_neutral_messages_are_engaged():
    long = "Bananas " * 40
    assert fired((long, CALM), *[("ok", CALM)] * 4)[-1] == []


# ---- signals --------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.text(max_size=120),
            st.floats(-1, 1),
            st.floats(0, 1),
            st.lists(st.booleans(), max_size=12),
            st.one_of(st.none(), st.floats(0, 1)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_signals_have_known_names_and_values_from_0_to_1(messages):
    counters = Counters()
    for n, (text, score, intensity, trace, drift) in enumerate(messages):
        heard = hear(
            text, before=counters, sentiment=felt(score, intensity), tracking=ON, trace=trace, drift=drift, now=NOW + n
        )  # fmt: skip
        counters = heard.counters
        assert set(heard.signals) <= set(SIGNALS)
        assert checked(heard.signals) == dict(heard.signals)
        assert {event.name for event in heard.events} <= set(EVENTS)
        assert counters.turns == n + 1
        assert len(counters.trace) <= 10
        assert len(counters.scores) <= ON.history_window
        assert sum(value == 1.0 for name, value in heard.signals.items() if name.startswith("task_")) <= 1


def test_mood_signals_are_smoothed_over_the_window():
    found = [each.signals for each in process((SAID, felt(-0.6)), (SAID, CALM), (SAID, CALM), (SAID, felt(0.6)))]
    assert [each["user_frustrated"] for each in found] == pytest.approx([0.8, 0.6, 0.543, 0.36])
    assert found[3]["user_pleased"] == found[3]["sentiment_high"] == 0.64
    short = SentimentTracking(enabled=True, history_window=1)
    assert process((SAID, felt(-0.9)), (SAID, felt(0.6)), tracking=short)[1].signals["user_pleased"] == 0.8


def test_frustration_is_the_inverse_of_sentiment_and_half_on_neutral():
    for score in (-1.0, -0.3, 0.0, 0.4, 1.0):
        [heard] = process((SAID, felt(score)))
        assert heard.signals["user_pleased"] + heard.signals["user_frustrated"] == pytest.approx(1.0)
    assert process((SAID, CALM))[0].signals["user_frustrated"] == 0.5


def test_a_mood_without_scores_is_no_signal():
    [heard] = process(("ja", UNKNOWN))
    assert "user_frustrated" not in heard.signals


def test_corrections_count_among_the_last_four_messages():
    said = ["No, I meant the second one", SAID, "That's wrong. It's still not working.", SAID, SAID, SAID, SAID]
    found = process(*((text, CALM) for text in said))
    assert [each.corrections for each in found] == [1, 0, 2, 0, 0, 0, 0]
    assert [each.signals["correction_rate_high"] for each in found] == [0.5, 0.5, 1.0, 1.0, 0.5, 0.5, 0.0]


def test_a_task_lasts_for_three_messages_without_task():
    said = ["Why does this Python function raise a TypeError?", *["and the other one"] * 4]
    found = [each.signals["task_coding"] for each in process(*((text, CALM) for text in said))]
    assert found == [1.0, 0.5, 0.5, 0.5, 0.0]
    assert [each.task for each in process(*((text, CALM) for text in said))][:2] == ["coding", ""]


def test_a_topic_shift_is_detected_by_cue_or_words():
    assert hear("By the way, who won the game?").signals["topic_shift_high"] == 1.0
    assert hear("Which herbs grow in shade?", drift=0.7).signals["topic_shift_high"] == 0.7
    earlier = ["How do I sort a dictionary by value in Python?"]
    assert drift_by_words("What wine goes with mushroom risotto tonight?", earlier) > 0.3
    assert drift_by_words("How do I sort dictionary values in descending order?", earlier) < 0.3
    assert drift_by_words("And in descending order of the keys instead?", earlier) == 0.0
    assert drift_by_words("What wine goes with risotto tonight?", []) == 0.0
    pasted = "\n".join(["risotto wine mushroom"] * 5_000)
    said = "How do I sort dictionary values in descending order? " * 200
    assert drift_by_words(said + pasted, earlier) == drift_by_words(said, earlier)
    assert goes_on("Why?")
    far = "What wine goes with mushroom risotto tonight?"
    assert [drift_by_meaning(far, cosine, akin=0.5) for cosine in (-0.1, 0.05, 0.15, 0.25, 0.9)] == [1, 1, 0.5, 0, 0]
    assert drift_by_meaning("And what does it cost with garlic bread?", 0.0, akin=0.5) == 0.6
    assert drift_by_meaning("ok", 0.0, akin=0.5) == 0.0


def test_a_task_by_similarity_needs_a_clear_lead():
    far = dict.fromkeys(examples(), 0.0)
    assert nearest(far | {"coding": 0.31}, akin=0.5) == "coding"
    assert nearest(far | {"coding": 0.29}, akin=0.5) == ""
    assert nearest(far | {"coding": 0.5, "planning": 0.45}, akin=0.5) == ""
    assert nearest(far | {"crisis": 0.9}, akin=0.5) == ""
    assert nearest(far | {"": 0.9}, akin=0.5) == ""
    assert set(examples()) == {*TASKS, ""}
    assert hear(SAID, kind="planning").task == "planning"
    assert hear("Why does pytest fail?", kind="planning").task == "coding", "a rule takes precedence"


def test_energy_depends_on_punctuation_capitals_and_pace():
    quiet = hear(SAID, sentiment=CALM, now=NOW).signals["energy_high"]
    loud = hear("YES!!! THIS IS SOOOO GREAT!!!", sentiment=felt(0.9), now=NOW).signals["energy_high"]
    assert quiet == 0.0
    assert loud > 0.7
    quick = process((SAID, CALM), (SAID, CALM), gap=5.0)[1].signals["energy_high"]
    assert quick == pytest.approx(0.1)


# ---- the trace ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such file",
        "error",
        "Traceback (most recent call last):\n  File x\nValueError: bad",
        "Failed to connect to host",
        "Permission denied",
        "panic: send on closed channel",
        "ls: x: No such file\nCommand exited with code 2",
        '{"error": "not found"}',
        '{"ok": false}',
        '{"isError": true, "content": "x"}',
        '{"status": 500}',
        '{"exitCode": 1, "stdout": ""}',
        '{"errors": [{"message": "x"}]}',
        "...\nsubprocess.CalledProcessError: it returned non-zero exit status 1.",
    ],
)
def test_results_detected_as_errors(text):
    assert failed(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3 files changed",
        "Error handling in Go is explicit.",
        "errors: 0",
        "0 errors, 2 warnings",
        '{"error": null, "rows": []}',
        '{"errors": [], "ok": true}',
        '{"status": "ok"}',
        '{"exit_code": 0}',
        "The log has 12 lines with 'Error:' in it",
        "Process finished with exit code 0",
        "[1, 2, 3]",
        "{not json",
        " " * 9000,
    ],
)
def test_results_that_are_no_errors(text):
    assert not failed(text)


def test_attachments_declare_their_own_errors():
    assert failed("all fine", (Part("code_error", "NameError"),))
    assert failed("", (Part("execution_status", "FAILURE"),))
    assert not failed("", (Part("execution_status", "SUCCESS"), Part("execution_result", "3")))


@pytest.mark.parametrize(
    "text",
    ["The patient died of cancer in 1990.", "The novel is about a terrible murder in Prague."],
)
def test_a_report_about_the_world_is_no_frustration(text: str) -> None:
    assert is_about_its_matter(text)
    assert not is_about_its_matter(f"{text} This is terrible.")


@pytest.mark.parametrize("text", ["it isn't unclear at all", "i am not confused any more", "that was never unclear"])
def test_a_negated_keyword_is_no_confusion(text: str) -> None:
    assert confusion_in(text) == ()
