"""Tests of `cuebook prompt` commands that select a version by label."""

import pytest
from commands import CommandRunner


@pytest.mark.slow
def test_label_selects_a_version(here: CommandRunner) -> None:
    here("prompt", "new", "a", "--text", "one")
    here("prompt", "label", "a:1", "production")
    here("prompt", "new", "b", "--text", "two")
    here("prompt", "branch", "a", "try")
    assert here.json("prompt", "show", "a@production")["version"] == 1
    assert here.json("prompt", "rate", "a@production")["version"] == 1
    here("prompt", "observe", "a@production", "--sentiment", "1")
    assert here.json("prompt", "branch", "a")["items"][0]["observations"] == 1
    assert "label 'production'" in here("prompt", "branch", "a", "production", code=1)
    assert "branch 'try'" in here("prompt", "label", "a", "try", code=1)
    assert "Available: main, try. Labels: production." in here("prompt", "show", "a@gone", code=1)


def test_observation_of_a_label_counts_for_its_version(here: CommandRunner) -> None:
    here("prompt", "new", "a", "--text", "one")
    here("prompt", "label", "a:1", "production")
    here("prompt", "new", "a", "--text", "two")
    assert here.json("prompt", "show", "a")["version"] == 2
    here("prompt", "observe", "a@production", "--sentiment", "1")
    assert here.json("prompt", "branch", "a")["items"][0]["observations"] == 0, "The label is on version 1."
