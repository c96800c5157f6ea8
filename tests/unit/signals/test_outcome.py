"""Tests of outcomes: what the next message says about a turn's success, its failures, and no guesses."""

import pytest

from cuebook.records.mind import Sentiment, TurnSignals
from cuebook.signals.outcome import task_outcome, word_on

SAID = {
    "success": (
        "That works now, thanks!", "Works perfectly.", "It works!", "Great, that did the trick", "all tests pass now",
        "You fixed it!", "Problem solved.", "Thanks, it's working now.", "fixed", "That solved it, thank you so much",
        "Yes! It finally works. Next question: how do I deploy?", "Got it working, cheers", "Your solution worked",
        "ok it runs now", "The tests pass", "Thank you, works now",
    ),
    "failure": (
        "Still fails with the same error", "That didn't work", "It doesn't work.", "still not working", "same error",
        "No luck, sorry", "It crashes again", "Unfortunately that did not help", "I'm still getting the same error",
        "that made it worse", "The problem persists", "it's still broken", "Nope, it isn't working", "It still crashes",
        "hmm, nothing changed", "The build still fails", "Now it throws an exception",
    ),
    "partial": (
        "Works, but only on my machine", "It partly works", "It works except for the last case", "Almost there",
        "Half of it works", "That works now. But the second test still fails.",
    ),
    "unknown": (
        "Does it work?", "If it works I'll tell you", "Can you make it work?", "How does that work?", "What's next?",
        "My server doesn't start", "Thanks!", "I want it to work on Windows too", "Tell me when it is fixed",
        "That should work", "Will this run on python 3?", "How should I test whether it still fails?", "Work is hard",
        "My boss says his phone works great", "Please fix the tests so all tests pass", "I work at a bank", "",
        "It works as a cache, I read", "Das funktioniert jetzt nicht", "I fixed dinner", "The train still runs late",
        "Explain why it fails", "It runs in a container", "> That didn't work\nWhat does he mean by this?",
        "```\nall tests pass\n```\nis what it prints", "ERROR: it does not work",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("task", "text"), [(task, text) for task, texts in SAID.items() for text in texts])
def test_explicit_statements_set_the_outcome(task, text):
    found, reasons = task_outcome(text)
    assert found == task
    assert bool(reasons) == (task != "unknown")


def test_a_reason_contains_only_the_words_that_state_it():
    _, reasons = task_outcome("It crashes again when I open ann's letter about the divorce")
    assert reasons == ('"It crashes"',)


@pytest.mark.parametrize(
    ("results", "task"),
    [((), "unknown"), ((False, False), "unknown"), ((True, False), "unknown"), ((False, True), "partial"),
     ((True, True), "failure"), ((True,), "failure")],
)  # fmt: skip
def test_tool_results_decide_if_the_last_one_failed(results, task):
    assert task_outcome("And what now?", results=results)[0] == task


def test_a_statement_overrides_tool_results():
    assert task_outcome("That works now.", results=(True,))[0] == "success"


def outcome_of(score, polarity="neutral", corrections=0):
    return TurnSignals(sentiment=Sentiment(score=score, polarity=polarity), corrections=corrections)


@pytest.mark.parametrize(("score", "mapped"), [(-1.0, 0.0), (0.0, 0.5), (0.5, 0.75), (1.0, 1.0), (1.5, 1.0)])
def test_sentiment_is_mapped_to_the_scale_of_observations(score, mapped):
    word = word_on(outcome_of(score), "Go on.")
    assert (word.sentiment, word.corrections, word.task) == (mapped, 0, "unknown")


def test_an_unscored_message_gives_no_outcome():
    assert word_on(outcome_of(0.0, "unknown"), "Das ist ja furchtbar") is None
    assert word_on(outcome_of(0.0, "unknown"), "") is None


def test_an_unscored_message_counts_by_corrections_and_statements():
    assert word_on(outcome_of(0.0, "unknown", corrections=1), "nein").sentiment == 0.5
    assert word_on(outcome_of(0.0, "unknown"), "still fails").task == "failure"


def test_only_the_beginning_of_a_long_message_is_parsed():
    text = "It still crashes. " + "and then it works and it works and it works " * 20_000
    assert task_outcome(text)[0] == "failure"
