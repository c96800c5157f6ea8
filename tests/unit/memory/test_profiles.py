"""Tests of compaction profiles: the AgentOS file, defaults, environment overrides, and errors with their path."""

import pytest

from cuebook.errors import InvalidInput
from cuebook.memory.rolling import BUDGET, OFF, SHIPPED, STANDARD, choose, override, read_compaction

FILE = "config/metaprompt-presets.json"


def read(**section):
    return read_compaction({"memoryCompaction": section}, file=FILE)


def test_defaults_match_the_original():
    assert (STANDARD.cooldown_ms, STANDARD.tail, STANDARD.least, STANDARD.most) == (60_000, 12, 12, 48)
    assert (STANDARD.max_summary_tokens, STANDARD.trigger, STANDARD.enabled) == (900, "posts", True)
    assert (BUDGET.trigger, BUDGET.enabled, OFF.enabled) == ("budget", True, False)
    assert read_compaction({}, file=FILE) == SHIPPED
    assert choose(SHIPPED, None) is STANDARD


def test_a_file_adds_and_changes_profiles():
    found = read(
        profiles={"standard": {"tailTurnsToKeep": 4, "_note": "ignored"}, "brief": {"maxSummaryTokens": 100}},
        defaultProfile="brief",
    )
    assert found.profiles["standard"].tail == 4
    assert found.profiles["standard"].most == 48
    assert choose(found, "any").id == "brief"
    assert choose(found, None).max_summary_tokens == 100


def test_modes_select_by_exact_key_then_longest_part():
    found = read(defaultProfileByMode={"code": "budget", "code-review": "off", "chat": "standard"})
    assert choose(found, "code").id == "budget"
    assert choose(found, "my-code-review-mode").id == "off"
    assert choose(found, "decode").id == "budget"
    assert choose(found, "nothing").id == "standard"


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ([], "memoryCompaction"),
        ({"profiles": {"x": {"cooldownMs": "60"}}}, "memoryCompaction.profiles.x.cooldownMs"),
        ({"profiles": {"x": {"coldownMs": 60}}}, "memoryCompaction.profiles.x.coldownMs"),
        ({"defaultProfile": "gone"}, "memoryCompaction.defaultProfile"),
        ({"defaultProfileByMode": {"chat": "gone"}}, "memoryCompaction.defaultProfileByMode.chat"),
    ],
)
def test_an_error_has_its_path_in_the_file(section, place):
    with pytest.raises(InvalidInput, match=f"^{FILE}: {place}: ") as refused:
        read_compaction({"memoryCompaction": section}, file=FILE)
    assert refused.value.where == place


def test_the_environment_overrides_every_profile():
    found = override(
        SHIPPED,
        {"MEMORY_COMPACTION_TAIL_TURNS": "3", "MEMORY_COMPACTION_COOLDOWN_MS": " 10 ", "MEMORY_COMPACTION_MODEL_ID": "m"},  # noqa: E501
    )  # fmt: skip
    assert {profile.tail for profile in found.profiles.values()} == {3}
    assert found.profiles["budget"].cooldown_ms == 10
    assert found.profiles["budget"].model_id == "m"
    assert override(SHIPPED, {}) is SHIPPED


def test_the_environment_can_only_disable_compaction():
    assert not any(each.enabled for each in override(SHIPPED, {"MEMORY_COMPACTION_ENABLED": "false"}).profiles.values())
    found = override(SHIPPED, {"MEMORY_COMPACTION_ENABLED": "1"})
    assert (found.profiles["off"].enabled, found.profiles["standard"].enabled) == (False, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MEMORY_COMPACTION_ENABLED", "yes please"),
        ("MEMORY_COMPACTION_TAIL_TURNS", "-1"),
        ("MEMORY_COMPACTION_TAIL_TURNS", "1.5"),
        ("MEMORY_COMPACTION_WHATEVER", "1"),
        ("MEMORY_COMPACTION_MAX_TURNS_PER_PASS", "0"),
    ],
)
def test_environment_errors_name_the_variable_or_setting(name, value):
    with pytest.raises(InvalidInput) as refused:
        override(SHIPPED, {name: value})
    assert name in str(refused.value) or "maxTurnsToSummarizePerPass" in str(refused.value)
