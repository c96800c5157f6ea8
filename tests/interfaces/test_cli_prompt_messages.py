"""What the commands tell about prompts: why these spoke, and what is to be done where something is wrong."""

import json

import pytest
from commands import Here, cuebook

HELPER = "default/persona/helper"


def test_a_mode_of_the_presets_is_a_mode(here: Here) -> None:
    for mode in ("general", "coding"):
        done = cuebook("chat", "--mode", mode, "--conversation", mode, cwd=here.folder, said="Review this\n")
        assert done.returncode == 0, done.stderr
    refused = cuebook("chat", "--mode", "nosuch", cwd=here.folder, said="Hello\n")
    assert "Unknown mode 'nosuch' in config/metaprompt-presets.json. Available: coding, " in refused.stderr
    assert "add-ons: _meta/reviewer, by preset coding_audit (rule:coding_audit_if_keywords)" in here(
        "turn", "show", "coding", "1"
    )


def test_a_turn_tells_which_variant_spoke_and_how_it_was_chosen(here: Here) -> None:
    here("prompt", "branch", HELPER, "warm")
    assert cuebook("chat", "--conversation", "c", cwd=here.folder, said="Hello\n").returncode == 0
    told = here.json("turn", "show", "c", "1")["metadata"]["promptVariants"][HELPER]
    assert (
        f"selected: {HELPER}@{told['branch']}:{told['version']}, epsilon_greedy"
        f"{' exploring' if told['explored'] else ''}, probability {told['propensity']:.3f}"
    ) in here("turn", "show", "c", "1")


@pytest.mark.parametrize("name", ["kind.MD", "kind.Md"])
def test_an_ending_in_capitals_is_named(here: Here, name: str) -> None:
    (here.folder / "prompts/default" / name).write_text("Kind.\n")
    (here.folder / "prompts/README.MD").write_text("For people.\n")
    assert f"prompts/default/{name}: the suffix must be '.md'. Rename the file." in here("prompt", "push", code=1)


def test_a_merge_that_clashes_says_what_to_do(here: Here) -> None:
    here("prompt", "new", "p", "--text", "Be kind.")
    here("prompt", "branch", "p", "warm")
    here("prompt", "new", "p@warm", "--text", "Be warm.")
    here("prompt", "new", "p", "--text", "Be cool.")
    assert "Merge failed: conflicts in body. Edit body with `cuebook prompt edit p@warm` to match main" in here(
        "prompt", "merge", "p", "warm", code=1
    )
    here("prompt", "new", "p@warm", "--text", "Be cool.")
    here("prompt", "merge", "p", "warm")


def test_no_prompt_with_a_prefix_is_not_no_prompt(here: Here) -> None:
    assert here("prompt", "list", "--prefix", "nosuch") == (
        "no prompt ID starts with 'nosuch'. Run `cuebook prompt list` to list all.\n"
    )


def test_what_is_only_worth_knowing_is_no_ok(here: Here) -> None:
    here("prompt", "new", "p", "--text", "Be kind.")
    assert "info  no-description p description: " in here("prompt", "lint")


def test_a_registry_a_file_needs_says_how_it_is_mended(here: Here) -> None:
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
