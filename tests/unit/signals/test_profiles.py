"""Tests of tracking profiles: which profile a persona gets, and errors in the `[tracking]` settings."""

import pytest

from cuebook.errors import InvalidInput
from cuebook.records.persona import PRESETS, SHIPPED_TRIGGERS, UNTRACKED, Persona, SentimentTracking, read_persona
from cuebook.signals import metaprompts
from cuebook.signals.profiles import SHIPPED, Profiles, check_persona, read_profiles, tracking_of


def persona(tracking: object = None) -> Persona:
    read, faults = read_persona({"id": "p", "sentimentTracking": tracking})
    assert read is not None
    assert not faults
    return read


def profiles(section: object) -> Profiles:
    return read_profiles({"sentimentTracking": section}, file="presets.json")


MODES = {"defaultProfileByMode": {"tutor": "tutor", "tutor_strict": "advanced", "Diary": "basic", "general": "off"}}


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("tutor", "tutor"),
        ("TUTOR ", "tutor"),
        ("my_tutor", "tutor"),
        ("my_tutor_strict_one", "advanced"),
        ("diary", "basic"),
        ("general", "off"),
        ("coding", "off"),
        (None, "off"),
        ("", "off"),
    ],
)
def test_a_persona_without_tracking_gets_the_modes_profile(mode: str | None, name: str) -> None:
    assert tracking_of(persona(), mode, profiles(MODES)) == SHIPPED.profiles[name]


def test_a_personas_tracking_overrides_the_mode() -> None:
    assert not tracking_of(persona({"enabled": False}), "tutor", profiles(MODES)).enabled
    own = tracking_of(persona({"enabled": True}), "tutor", profiles(MODES))
    assert (own.enabled, own.consecutive_turns, own.presets) == (True, 2, ())


def test_a_persona_can_override_fields_of_a_profile() -> None:
    named = persona({"profile": "tutor", "presets": [], "cooldownTurns": 1})
    found = tracking_of(named, "general", SHIPPED)
    assert (found.enabled, found.consecutive_turns, found.frustration_threshold) == (True, 1, -0.2)
    assert (found.presets, found.cooldown_turns) == ((), 1)
    assert tracking_of(persona("tutor"), None, SHIPPED) == SHIPPED.profiles["tutor"]


def test_the_built_in_profiles_match_the_specification() -> None:
    table = {name: (each.method, each.history_window, each.presets) for name, each in SHIPPED.profiles.items()}
    recover, clarify = "frustration_recovery", "confusion_clarification"
    assert table == {
        "off": ("lexicon_based", 10, ()),
        "basic": ("lexicon_based", 10, (recover, clarify)),
        "standard": ("lexicon_based", 10, ("all",)),
        "advanced": ("llm", 15, ("all",)),
        "tutor": ("lexicon_based", 10, (recover, clarify, "satisfaction_reinforcement")),
    }
    assert [name for name, each in SHIPPED.profiles.items() if not each.enabled] == ["off"]


def test_a_settings_file_changes_and_adds_profiles() -> None:
    given = {"profiles": {"basic": {"cooldownTurns": 9, "label": "calm"}, "mine": {"method": "llm"}}}
    read = profiles(given)
    assert read.profiles["basic"].cooldown_turns == 9
    assert read.profiles["basic"].presets == SHIPPED.profiles["basic"].presets
    assert read.profiles["mine"] == SentimentTracking(enabled=True, method="llm")
    assert read.profiles["tutor"] == SHIPPED.profiles["tutor"]


def test_without_settings_only_built_in_profiles_apply() -> None:
    for document in ({}, {"presets": [], "_comment": "none"}):
        read = read_profiles(document, file="presets.json")
        assert read == SHIPPED
        assert tracking_of(persona(), "tutor", read) == UNTRACKED


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (5, "sentimentTracking: expected an object, got 5"),
        ({"profile": {}}, "sentimentTracking.profile: unknown field 'profile'. Did you mean 'profiles'?"),
        (
            {"profiles": {"a": {"method": "lexicon"}}},
            "sentimentTracking.profiles.a.method: unknown method 'lexicon'. Available: lexicon_based, llm",
        ),
        (
            {"profiles": {"a": {"frustrationThreshold": 1}}},
            "sentimentTracking.profiles.a.frustrationThreshold: 1 is not below satisfactionThreshold (0.3)",
        ),
        ({"profiles": {"a": {"profile": "basic"}}}, "sentimentTracking.profiles.a.profile: a profile names no other"),
        (
            {"defaultProfileByMode": {"tutor": "tuter"}},
            "sentimentTracking.defaultProfileByMode.tutor: unknown profile 'tuter'. Did you mean 'tutor'?",
        ),
        ({"defaultProfileByMode": {" ": "off"}}, "sentimentTracking.defaultProfileByMode: empty mode."),
    ],
)
def test_an_invalid_section_is_reported_with_its_path(section: object, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        profiles(section)
    assert str(error.value).startswith(f"presets.json: {said}")


def test_definitions_may_name_every_built_in_profile() -> None:
    assert {*PRESETS} == {*metaprompts.PRESETS, "all"}
    assert {name: each.trigger for name, each in metaprompts.SHIPPED.items()} == SHIPPED_TRIGGERS


def test_an_unknown_profile_is_reported() -> None:
    [fault] = check_persona(persona("tuter"), SHIPPED)
    assert str(fault).startswith("sentimentTracking: unknown profile 'tuter'. Did you mean 'tutor'?")
    [fault] = check_persona(persona({"profile": "none"}), SHIPPED)
    assert fault.path == "sentimentTracking.profile"


def test_thresholds_that_conflict_with_the_profile_are_reported() -> None:
    [fault] = check_persona(persona({"profile": "tutor", "frustrationThreshold": 0.25}), SHIPPED)
    assert str(fault).startswith(
        "sentimentTracking.frustrationThreshold: 0.25 is not below satisfactionThreshold (0.2)"
    )


def test_a_sentiment_method_must_exist() -> None:
    own = persona({"enabled": True, "method": "mine"})
    [fault] = check_persona(own, SHIPPED)
    assert str(fault).startswith(
        "sentimentTracking.method: unknown method 'mine'. Available: lexicon_based, llm, trained"
    )
    [fault] = check_persona(persona({"method": ""}), SHIPPED)
    assert str(fault).startswith("sentimentTracking.method: unknown method ''. Available:")
    assert not check_persona(own, SHIPPED, methods=("lexicon_based", "mine"))
