"""Tests of prompt presets: the AgentOS file, keyword matching, modes, review cadence and errors with their path."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cuebook
from cuebook.errors import InvalidInput
from cuebook.prompts.presets import CACHED, Presets, Profile, read_presets, route

FILE = "config/metaprompt-presets.json"
PROJECT = Path(cuebook.__file__).parent / "app" / "setup" / "project"
SHIPPED = json.loads((PROJECT / FILE).read_text("utf-8"))
ADDONS = {f"_meta/{name}" for name in ("concise", "deep_dive", "planner", "reviewer")}
LONG = "x " * 210


def read(document: object, prompts: set[str] = ADDONS) -> Presets:
    return read_presets(document, file=FILE, prompts=prompts)


def ask(presets: Presets, message: str, mode: str | None = "general", **given_: object) -> Profile:
    values = {"turn": 1, "last": None, "compacted": False, **given_}
    return route(presets, message=message, mode=mode, **values)


def with_rule(**rule: object) -> Presets:
    return read({
        "presets": [{"id": "a"}, {"id": "b"}],
        "routing": {"defaultPresetId": "a"},
        "rules": [{"id": "r", "priority": 1, "presetId": "b", **rule}],
    })  # fmt: skip


# ---- built-in presets -----------------------------------------------------------------------------------------------


def test_the_built_in_file_matches_the_original():
    presets = read(SHIPPED)
    assert {each.id: each.addon_prompt_keys for each in presets.presets} == {
        "general_concise": ("_meta/concise",),
        "general_deep": ("_meta/deep_dive",),
        "general_planner": ("_meta/planner",),
        "coding_default": (),
        "coding_system_design": (),
        "coding_audit": ("_meta/reviewer",),
        "coding_interviewer": (),
        "meeting_summary": (),
        "diary_default": (),
        "tutor_default": (),
    }
    assert len(presets.routing.default_preset_by_mode) == 14
    assert [rule.priority for rule in presets.rules] == [90, 85, 83, 80, 75, 50]
    assert (presets.routing.review_every_n_turns, presets.routing.default_preset_id) == (6, "general_concise")
    assert presets.routing.force_review_on_compaction


def test_every_prompt_of_the_built_in_file_exists():
    files = {
        path.relative_to(PROJECT / "prompts").with_suffix("").as_posix() for path in PROJECT.rglob("prompts/**/*.md")
    }
    assert files >= ADDONS | {"default/agent_init", "system/fallback_handler"}
    for name in sorted(files):
        text = (PROJECT / "prompts" / f"{name}.md").read_text("utf-8")
        assert text.startswith(f"---\ncuebook: 1\nname: {name}\nversion: 1.")
        assert text.split("\n---\n", 1)[1].strip()


@pytest.mark.parametrize(
    ("mode", "message", "preset", "reason"),
    [
        ("general", "hello", "general_concise", "rule:general_concise_if_short"),
        ("general", LONG, "general_deep", "rule:general_deep_if_long_or_complex"),
        ("general", "an RFC, please", "general_deep", "rule:general_deep_if_keywords"),
        ("general", "What are the next\n  steps?", "general_planner", "rule:general_planner_if_keywords"),
        ("general", "The planet has a surfcamp", "general_concise", "rule:general_concise_if_short"),
        ("general", "x" * 200, "general_concise", "defaultByModeExact:general"),
        ("coding", "Review this, then prove it", "coding_audit", "rule:coding_audit_if_keywords"),
        ("coding", "A preview to improve", "coding_default", "defaultByModeExact:coding"),
        ("coding", "Latency matters", "coding_system_design", "rule:coding_system_design_if_keywords"),
        ("Coding ", "hello", "coding_default", "defaultByModeExact:coding"),
        ("v_agent", "a plan", "general_deep", "defaultByModeExact:v_agent"),
        ("my_tutor_agent_2", "hello", "tutor_default", "defaultByModePattern:tutor_agent"),
        ("system_design_review", "hello", "coding_system_design", "defaultByModePattern:system_design"),
        ("coding_interviewer", "hello", "coding_interviewer", "defaultByModeExact:coding_interviewer"),
        ("poet", "a plan", "general_concise", "default"),
        (None, "a plan", "general_concise", "default"),
    ],
)
def test_the_built_in_file_routes_by_whole_words(mode, message, preset, reason):
    found = ask(read(SHIPPED), message, mode)
    assert (found.preset_id, found.reason) == (preset, reason)
    assert found.addon_keys == {each.id: each.addon_prompt_keys for each in read(SHIPPED).presets}[preset]


# ---- matching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "message", "holds"),
    [
        ("plan", "a plan.", True),
        ("plan", "PLAN", True),
        ("plan", "plan-b", True),
        ("plan", "plan's end", True),
        ("plan", "plan_b", False),
        ("plan", "plan2", False),
        ("plan", "planet, then a plan", True),
        ("plan", "explanation", False),
        ("next steps", "the next   steps", True),
        ("next steps", "next, steps", False),
        ("c++", "in C++11?", True),
        ("größe", "Die GRÖSSE?", True),
        ("größe", "Größenwahn", False),
        ("café", "cafe\u0301", True),
        ("cafe", "café", False),
        ("rfc", "ＲＦＣ 2119", True),
        ("план", "Какой план?", True),
        ("план", "планета", False),
        ("योज", "योजा", False),
        ("计划", "我的计划是什么", True),
        ("計画", "計画を立てる", True),
    ],
)
def test_keywords_are_whole_words_in_any_script(keyword, message, holds):
    assert (ask(with_rule(anyKeywords=[keyword]), message).preset_id == "b") is holds
    assert (ask(with_rule(allKeywords=[keyword]), message).preset_id == "b") is holds


def test_all_conditions_of_a_rule_must_match():
    presets = with_rule(
        modes=["code"], anyKeywords=["a", "b"], allKeywords=["c", "d"], minMessageChars=5, maxMessageChars=9
    )
    assert ask(presets, "a c d", "mycode").reason == "rule:r"
    assert ask(presets, "b d c e f", "code").reason == "rule:r"
    for message, mode in [("a c d", "cod"), ("c d e", "code"), ("a b c", "code"), ("a c d e f g", "code")]:
        assert ask(presets, message, mode).reason == "default"
    assert ask(with_rule(), "").reason == "rule:r"


def test_the_highest_priority_wins_and_ties_go_by_file_order():
    rules = [
        {"id": "low", "priority": 1, "presetId": "a"},
        {"id": "first", "priority": 2, "presetId": "b"},
        {"id": "second", "priority": 2, "presetId": "a"},
    ]
    document = {"presets": [{"id": "a"}, {"id": "b"}], "rules": rules}
    assert ask(read(document), "").reason == "rule:first"


@given(st.text(), st.text(min_size=1))
def test_a_text_matches_its_own_words(before, word):
    word = "".join(word.split())
    if word.strip() and word.casefold().strip():
        try:
            presets = with_rule(anyKeywords=[word])
        except InvalidInput:
            return  # it is empty after normalizing case, width and space
        assert ask(presets, f"{before} {word} {before}").reason == "rule:r"


# ---- cadence ---------------------------------------------------------------------------------------------------------


def reviews(presets: Presets, turns: int, compactions: frozenset[int] = frozenset()) -> list[int]:
    last, found = None, []
    for turn in range(1, turns + 1):
        profile = ask(presets, "hello", turn=turn, last=last, compacted=turn in compactions)
        last = Profile(preset_id=profile.preset_id, reviewed=profile.reviewed)  # all that a turn stores for the next
        if profile.reason != CACHED:
            found.append(turn)
    return found


def routing(**fields: object) -> Presets:
    return read({"presets": [{"id": "a"}], "routing": {"defaultPresetId": "a", **fields}})


def test_a_preset_is_reviewed_every_six_turns_across_restarts():
    assert reviews(read(SHIPPED), 20) == [1, 7, 13, 19]
    assert reviews(routing(reviewEveryNTurns=1), 4) == [1, 2, 3, 4]


def test_compaction_forces_a_review_by_default():
    assert reviews(routing(), 12, frozenset({3, 4})) == [1, 3, 4, 10]
    assert reviews(routing(forceReviewOnCompaction=False), 12, frozenset({3, 4})) == [1, 7]


def test_the_preset_is_kept_between_reviews():
    presets = read(SHIPPED)
    first = ask(presets, "a plan")
    second = ask(presets, LONG, turn=2, last=first)
    assert (second.preset_id, second.addon_keys) == ("general_planner", ("_meta/planner",))
    assert (second.reason, second.reviewed) == (CACHED, 1)


def test_a_removed_preset_is_reviewed():
    assert ask(routing(), "", turn=2, last=Profile(preset_id="gone", reviewed=1)).reason == "default"
    assert ask(routing(), "", turn=2, last=Profile(preset_id="", reviewed=1)).preset_id == "a"
    assert ask(routing(), "", turn=2, last=Profile(preset_id="a", reviewed=9)).reason != CACHED  # went back


def test_without_presets_no_profile_applies():
    first = ask(Presets(), "a plan")
    assert (first.preset_id, first.addon_keys, first.reason) == ("", (), "default")
    assert ask(Presets(), "", turn=2, last=first).reason == CACHED
    assert not read({"memoryCompaction": {}}).presets


# ---- parsing ---------------------------------------------------------------------------------------------------------


def test_other_fields_are_ignored_and_add_ons_keep_their_order():
    document = {
        "version": "1.0.0",
        "sentimentTracking": 3,
        "presets": [
            {
                "id": "a",
                "label": "A",
                "basePromptKey": "x",
                "addonPromptKeys": ["_meta/planner", "persona/kind", "_meta/planner", "_meta/concise"],
            }
        ],
    }
    found = ask(read(document, {*ADDONS, "default/persona/kind"}), "", last=Profile(preset_id="a", reviewed=1))
    assert found.addon_keys == ("_meta/planner", "persona/kind", "_meta/concise")


GOOD = {"id": "a"}
RULE = {"id": "r", "priority": 1, "presetId": "a"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"presets": [GOOD, GOOD]}, "presets[1].id: duplicate id 'a'"),
        (
            {"presets": [{"id": "a", "addonPromptKeys": ["_meta/concise", "_meta/x"]}]},
            "presets[0].addonPromptKeys[1]: unknown prompt '_meta/x'",
        ),
        ({"presets": [GOOD], "preset": []}, "preset: unknown field 'preset'. Did you mean 'presets'?"),
        ({"presets": [{"id": "a", "addonPromptKey": []}]}, "presets[0].addonPromptKey: unknown field"),
        ({"presets": [GOOD], "routing": {"defaultPresetId": "x"}}, "routing.defaultPresetId: unknown preset 'x'"),
        ({"routing": {"defaultPresetByMode": {"chat": "x"}}}, "routing.defaultPresetByMode.chat: unknown preset 'x'"),
        (
            {"presets": [GOOD], "routing": {"defaultPresetByMode": {" ": "a"}}},
            "routing.defaultPresetByMode. : empty mode",
        ),
        ({"routing": {"reviewEvery": 6}}, "routing.reviewEvery: unknown field 'reviewEvery'."),
        ({"presets": [GOOD], "rules": [{**RULE, "presetId": "x"}]}, "rules[0].presetId: unknown preset 'x'"),
        ({"presets": [GOOD], "rules": [RULE, RULE]}, "rules[1].id: duplicate id 'r'"),
        ({"presets": [GOOD], "rules": [{**RULE, "note": ""}]}, "rules[0].note: unknown field 'note'"),
        (
            {"presets": [GOOD], "rules": [{**RULE, "minMessageChars": 9, "maxMessageChars": 5}]},
            "rules[0].maxMessageChars: 5 is below minMessageChars",
        ),
    ],
)
def test_an_error_has_its_path_in_the_file(document, said):
    with pytest.raises(InvalidInput) as refused:
        read(document)
    assert str(refused.value).startswith(f"{FILE}: {said}")
    assert refused.value.where == said.split(":")[0]
