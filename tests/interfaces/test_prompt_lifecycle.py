"""Test of a prompt's lifecycle on the command line: write, branch, observe, roll back and audit."""

import io
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import CommandRunner

MIRROR = "logs/prompts_audit.jsonl"
ID = "persona/kind"
FIRST = 24
MOST = 300


@pytest.fixture
def prompt_project(
    here: CommandRunner, unused_project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandRunner:
    """A project whose persona uses a managed prompt, with an editor that shortens its text."""
    persona = here.folder / "personas" / "helper.json"
    persona.write_text(json.dumps(json.loads(persona.read_text()) | {"prompts": {"persona": ID}}))
    state = unused_project / ".cuebook"
    state.mkdir()
    (state / "cuebook.db.key").write_text("07" * 32)  # the key seeds the random selection of variants
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/Answer fully/Answer in three words/" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    return here


@pytest.fixture
def piped() -> Iterator[Callable[[str], None]]:
    """Return a function that sets the text of standard input."""
    terminal = sys.stdin

    def say(text: str) -> None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))

    yield say
    sys.stdin = terminal


class Users:
    """Simulated users: each chats once and rates the prompt version that answered."""

    def __init__(self, here: CommandRunner, said: Callable[[str], None]) -> None:
        self.here, self.said, self.dice, self.count = here, said, random.Random(11), 0
        self.spoke: list[tuple[str, int]] = []

    def talk(self) -> Any:
        self.count += 1
        name = f"c{self.count}"
        self.said("How do I bake bread?\n")
        reply = self.here.json("chat", "--conversation", name)
        result = reply["metadata"]["promptVariants"][ID]
        self.spoke.append((result["branch"], result["version"]))
        mean = 0.85 if self.spoke[-1] == ("main", 1) else 0.2
        pleased = min(max(self.dice.gauss(mean, 0.1), 0.0), 1.0)
        outcome = "success" if pleased > 0.6 else "failure"
        return self.here.json(
            "prompt", "observe", ID, "--sentiment", f"{pleased:.3f}", "--outcome", outcome, "--conversation", name
        )


@pytest.mark.slow
def test_prompt_lifecycle_with_automatic_rollback(prompt_project: CommandRunner, piped: Callable[[str], None]) -> None:
    here = prompt_project
    here("prompt", "new", ID, "--text", "You are kind. Answer fully.")
    here("prompt", "branch", ID, "warm")
    here("prompt", "new", f"{ID}@warm", "--text", "You are warm. Answer fully.", "--weight", "task_casual=1")
    users = Users(here, piped)
    while users.count < FIRST or (len(set(users.spoke)) < 2 and users.count < MOST):
        assert users.talk()["rolledBack"] is False
    assert set(users.spoke) == {("main", 1), ("warm", 2)}, "Both variants must be tried."
    before = users.count
    here("prompt", "edit", ID)
    assert re.search(
        r"^-You are kind. Answer fully.\n\+You are kind. Answer in three words.$",
        here("prompt", "diff", ID),
        re.MULTILINE,
    )
    while not users.talk()["rolledBack"]:
        assert users.count < before + MOST
    late = users.spoke[before:]
    assert {("main", 1), ("main", 2)} <= set(late), "The previous version must keep its share."
    assert here.json("prompt", "show", ID)["version"] == 1
    [event] = [each for each in here.json("prompt", "log", ID)["items"] if each["kind"] == "rollback"]
    assert (event["by"], event["version"], event["to"]) == ("cuebook", 2, 1)
    assert event["evidence"]["method"] == "betting"
    assert {users.talk() and users.spoke[-1] for _ in range(8)} <= {("main", 1), ("warm", 2)}
    assert here.json("audit", "verify")["ok"] is True
    mirror = here.folder / MIRROR
    data = bytearray(mirror.read_bytes())
    at = data.index(b"bake bread") if b"bake bread" in data else len(data) // 2
    data[at] ^= 1
    mirror.write_bytes(bytes(data))
    result = here.json("audit", "verify", code=1)
    assert result["ok"] is False
    assert result["reason"]
