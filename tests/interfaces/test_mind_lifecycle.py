"""Tests of the mood state over one conversation that goes from calm to frustrated to satisfied."""

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import CommandRunner

from cuebook import Ask, BlockingCuebook

SAID = (
    "Can you help me sort a list of dates in Python?",
    "They are strings such as 3.11.2026, one per line.",
    "That gives me a ValueError again, this is so annoying and it still does not work!!",
    "Which of the two lines do I have to change?",
    "Perfect, now it works. Thank you so much, that was really helpful!",
    "Then let us do the same for the times.",
)


@pytest.mark.slow
def test_mood_follows_a_conversation_from_frustrated_to_satisfied(here: CommandRunner, project: Path) -> None:
    with BlockingCuebook.open(project, worker=False) as cue:
        for text in SAID:
            cue.ask(Ask(text, "sorting", persona="engineer"))
            cue.settle()
    outputs = [here("turn", "show", "sorting", str(n)) for n in range(1, len(SAID) + 1)]
    says = _lines(outputs)
    assert says(1, "mood") == ["mood: neutral, user's skill intermediate, task moderate"]
    assert [line for n in (1, 2, 4, 6) for line in says(n, "event")] == []
    [frustrated] = says(3, "event")
    assert frustrated.startswith("event: user_frustrated (")
    [recovered] = says(3, "reflection")
    assert "gmi_frustration_recovery (event:user_frustrated) by rules: mood neutral → empathetic" in recovered
    assert says(4, "mood") == ["mood: empathetic, user's skill intermediate, task simple"]
    assert "mind:3" in outputs[3]
    [satisfied] = says(5, "event")
    assert satisfied.startswith("event: user_satisfied (")
    assert all("identical" in each for each in outputs)
    output = here("mind", "show", "sorting")
    assert output.splitlines()[0].startswith("mood ")
    assert "user_frustrated" in output


def _lines(shown: list[str]) -> Callable[[int, str], list[str]]:
    return lambda n, start: [line for line in shown[n - 1].splitlines() if line.startswith(f"{start}: ")]
