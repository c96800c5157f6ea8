"""One conversation from calm over frustrated to satisfied, as its developer follows it on the command line."""

from collections.abc import Callable
from pathlib import Path

from commands import Here

from cuebook import Ask, BlockingCuebook

SAID = (
    "Can you help me sort a list of dates in Python?",
    "They are strings such as 3.11.2026, one per line.",
    "That gives me a ValueError again, this is so annoying and it still does not work!!",
    "Which of the two lines do I have to change?",
    "Perfect, now it works. Thank you so much, that was really helpful!",
    "Then let us do the same for the times.",
)


def test_from_calm_to_frustrated_to_satisfied(here: Here, project: Path) -> None:
    with BlockingCuebook.open(project, worker=False) as cue:
        for text in SAID:
            cue.ask(Ask(text, "sorting", persona="engineer"))
            cue.settle()
    shown = [here("turn", "show", "sorting", str(n)) for n in range(1, len(SAID) + 1)]
    says = _lines(shown)
    assert says(1, "mood") == ["mood: neutral, user's skill intermediate, task moderate"]
    assert [line for n in (1, 2, 4, 6) for line in says(n, "event")] == []
    [frustrated] = says(3, "event")
    assert frustrated.startswith("event: user_frustrated (")
    [recovered] = says(3, "reflection")
    assert "gmi_frustration_recovery (event:user_frustrated) by rules: mood neutral → empathetic" in recovered
    assert says(4, "mood") == ["mood: empathetic, user's skill intermediate, task simple"]
    assert "mind:3" in shown[3]
    [satisfied] = says(5, "event")
    assert satisfied.startswith("event: user_satisfied (")
    assert all("identical" in each for each in shown)
    told = here("mind", "show", "sorting")
    assert told.splitlines()[0].startswith("mood ")
    assert "user_frustrated" in told


def _lines(shown: list[str]) -> Callable[[int, str], list[str]]:
    return lambda n, start: [line for line in shown[n - 1].splitlines() if line.startswith(f"{start}: ")]
