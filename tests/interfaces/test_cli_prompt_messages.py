"""Tests of CLI messages about prompts: why a prompt was selected, and how to fix a problem."""

import json

import pytest
from commands import CommandRunner, cuebook

HELPER = "default/persona/helper"


def test_chat_accepts_the_modes_of_the_presets(here: CommandRunner) -> None:
    for mode in ("general", "coding"):
        done = cuebook("chat", "--mode", mode, "--conversation", mode, cwd=here.folder, stdin="Review this\n")
        assert done.returncode == 0, done.stderr
    refused = cuebook("chat", "--mode", "nosuch", cwd=here.folder, stdin="Hello\n")
    assert "Unknown mode 'nosuch' in config/metaprompt-presets.json. Available: coding, " in refused.stderr
    assert "add-ons: _meta/reviewer, by preset coding_audit (rule:coding_audit_if_keywords)" in here(
        "turn", "show", "coding", "1"
    )


def test_turn_shows_the_selected_variant_and_its_probability(here: CommandRunner) -> None:
    here("prompt", "branch", HELPER, "warm")
    assert cuebook("chat", "--conversation", "c", cwd=here.folder, stdin="Hello\n").returncode == 0
    result = here.json("turn", "show", "c", "1")["metadata"]["promptVariants"][HELPER]
    assert (
        f"selected: {HELPER}@{result['branch']}:{result['version']}, epsilon_greedy"
        f"{' exploring' if result['explored'] else ''}, probability {result['propensity']:.3f}"
    ) in here("turn", "show", "c", "1")


@pytest.mark.parametrize("name", ["kind.MD", "kind.Md"])
def test_uppercase_file_suffix_is_reported(here: CommandRunner, name: str) -> None:
    (here.folder / "prompts/default" / name).write_text("Kind.\n")
    (here.folder / "prompts/README.MD").write_text("For people.\n")
    assert f"prompts/default/{name}: the suffix must be '.md'. Rename the file." in here("prompt", "push", code=1)


@pytest.mark.slow
def test_merge_conflict_explains_the_fix(here: CommandRunner) -> None:
    here("prompt", "new", "p", "--text", "Be kind.")
    here("prompt", "branch", "p", "warm")
    here("prompt", "new", "p@warm", "--text", "Be warm.")
    here("prompt", "new", "p", "--text", "Be cool.")
    message = "Merge failed: conflicts in body. Edit p@warm or p@main and merge again, or take warm with --theirs."
    assert message in here("prompt", "merge", "p", "warm", code=1)
    here("prompt", "new", "p@warm", "--text", "Be cool.")
    here("prompt", "merge", "p", "warm")


def test_empty_prefix_search_suggests_the_full_list(here: CommandRunner) -> None:
    assert here("prompt", "list", "--prefix", "nosuch") == (
        "no prompts. Run `cuebook prompt list` to list all, or `cuebook prompt new PROMPT` to create one.\n"
    )


def test_lint_prints_notes_as_info(here: CommandRunner) -> None:
    here("prompt", "new", "p", "--text", "Be kind.")
    assert "info  no-description p description: " in here("prompt", "lint")


def test_damaged_registry_error_explains_the_fix(here: CommandRunner) -> None:
    (here.folder / "prompts/default/bare.md").write_text("Bare.\n")
    here("prompt", "push")
    registry = here.folder / "prompts/registry.json"
    whole = json.loads(registry.read_text())
    registry.write_text("{")
    (here.folder / "prompts/default/bare.md").write_text("Bare, and edited.\n")
    assert "or delete it, and `cuebook prompt push` recreates it" in here("prompt", "push", code=1)
    registry.unlink()
    here("prompt", "push")
    assert len(json.loads(registry.read_text())["prompts"]) == len(whole["prompts"]) + 1
