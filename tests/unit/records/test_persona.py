"""Tests of how persona definitions and metaprompts are parsed, and of the problems reported about them."""

import pytest

from cuebook.records.persona import (
    SHIPPED_TRIGGERS,
    UNTRACKED,
    Metaprompt,
    Persona,
    SentimentTracking,
    Trigger,
    read_persona,
    warnings_of,
)

#: The two definitions of the specification.
TUTOR = {
    "id": "my_tutor_persona",
    "name": "Adaptive Tutor",
    "version": "1.0.0",
    "baseSystemPrompt": "You are an adaptive coding tutor...",
    "sentimentTracking": {
        "enabled": True,
        "method": "lexicon_based",
        "presets": ["frustration_recovery", "confusion_clarification"],
    },
}
CUSTOM = {
    "id": "my_custom_reflection",
    "description": "Custom reflection triggered by frustration",
    "promptTemplate": "The user seems frustrated. Current mood: {{current_mood}}. Suggest adjustments.",
    "trigger": {"type": "event_based", "eventName": "user_frustrated"},
    "temperature": 0.3,
    "maxOutputTokens": 256,
}


def read(document: object) -> Persona:
    persona, faults = read_persona(document)
    assert persona is not None
    assert not faults
    return persona


def faults_of(**fields: object) -> list[str]:
    return [str(each) for each in read_persona({"id": "p", **fields})[1]]


def metaprompt(**fields: object) -> dict[str, object]:
    return {"id": "m", "trigger": {"type": "manual"}, "promptTemplate": "Look back.", **fields}


def faults_of_metaprompt(**fields: object) -> list[str]:
    return faults_of(metaPrompts=[metaprompt(**fields)])


def test_the_persona_of_the_specification_is_parsed() -> None:
    persona = read(TUTOR)
    assert (persona.id, persona.name, persona.base_system_prompt) == (
        "my_tutor_persona",
        "Adaptive Tutor",
        "You are an adaptive coding tutor...",
    )
    assert persona.tracking == SentimentTracking(
        enabled=True,
        presets=("frustration_recovery", "confusion_clarification"),
    )
    assert persona.tracked == {"enabled", "method", "presets"}


def test_the_custom_metaprompt_of_the_specification_is_parsed() -> None:
    assert read({"id": "p", "metaPrompts": [CUSTOM]}).metaprompts == (
        Metaprompt(
            id="my_custom_reflection",
            description="Custom reflection triggered by frustration",
            trigger=Trigger(type="event_based", event="user_frustrated"),
            template="The user seems frustrated. Current mood: {{current_mood}}. Suggest adjustments.",
            temperature=0.3,
            max_output_tokens=256,
        ),
    )


def test_a_persona_with_only_an_id_tracks_nothing() -> None:
    persona = read({"id": "p"})
    assert (persona.name, persona.version, persona.role) == ("p", "1.0.0", "assistant")
    assert persona.tracking == UNTRACKED
    assert persona.metaprompts == ()


def test_every_tracking_field_is_parsed() -> None:
    fields = {
        "enabled": True,
        "method": "llm",
        "modelId": "small",
        "providerId": "here",
        "historyWindow": 4,
        "frustrationThreshold": -0.5,
        "satisfactionThreshold": 0,
        "consecutiveTurnsForTrigger": 3,
        "presets": ["all"],
        "cooldownTurns": 0,
        "cooldownMs": 60_000,
        "profile": "tutor",
    }
    tracking = read({"id": "p", "sentimentTracking": fields}).tracking
    assert tracking == SentimentTracking(
        enabled=True, method="llm", model_id="small", provider_id="here", history_window=4, frustration_threshold=-0.5,
        satisfaction_threshold=0.0, consecutive_turns=3, presets=("all",), cooldown_turns=0, cooldown_ms=60_000,
        profile="tutor",
    )  # fmt: skip


def test_a_string_under_tracking_names_a_profile() -> None:
    assert read({"id": "p", "sentimentTracking": "tutor"}).tracking == SentimentTracking(profile="tutor")


@pytest.mark.parametrize(("name", "trigger"), SHIPPED_TRIGGERS.items())
def test_a_built_in_metaprompt_has_its_text_and_trigger(name: str, trigger: Trigger) -> None:
    [found] = read({"id": "p", "metaPrompts": [{"id": name}]}).metaprompts
    assert (found.template, found.key, found.trigger) == ("", "", trigger)
    manual = {"id": name, "trigger": {"type": "manual"}}
    assert read({"id": "p", "metaPrompts": [manual]}).metaprompts[0].trigger == Trigger(type="manual")


def test_the_look_back_metaprompt_runs_every_five_turns() -> None:
    assert SHIPPED_TRIGGERS["gmi_self_trait_adjustment"] == Trigger(type="turn_interval", interval_turns=5)


def test_template_objects_of_the_original_are_parsed() -> None:
    template = {"template": "How is {{current_mood}}?", "variables": ["current_mood"]}
    [found] = read({"id": "p", "metaPrompts": [metaprompt(promptTemplate=template)]}).metaprompts
    assert found.template == "How is {{current_mood}}?"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("enabld", True, "unknown field 'enabld'. Did you mean 'enabled'?"),
        ("frustrationThreshold", -1.1, "expected a number from -1 to 1, got -1.1"),
        ("profile", "", "empty. Expected a name of visible characters."),
    ],
)
def test_invalid_tracking_is_reported_with_its_path(field: str, value: object, said: str) -> None:
    [fault] = faults_of(sentimentTracking={field: value})
    assert fault == f"sentimentTracking.{field}: {said}"


def test_a_misspelled_preset_suggests_the_closest_name() -> None:
    [fault] = faults_of(sentimentTracking={"presets": ["all", "engagement_bost"]})
    assert fault == "sentimentTracking.presets[1]: unknown value 'engagement_bost'. Did you mean 'engagement_boost'?"


def test_frustration_and_satisfaction_thresholds_cannot_overlap() -> None:
    [fault] = faults_of(sentimentTracking={"frustrationThreshold": 0.4})
    assert fault == ("sentimentTracking.frustrationThreshold: 0.4 is not below satisfactionThreshold (0.3). Lower it.")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": ""}, "id: empty."),
        ({"trigger": "manual"}, "trigger: expected an object"),
        ({"trigger": {}}, "trigger.type: missing. Expected one of event_based, manual, turn_interval."),
        ({"trigger": {"type": "event"}}, "trigger.type: unknown value 'event'. Available: "),
        ({"trigger": {"type": "turn_interval"}}, "trigger.intervalTurns: missing. A trigger of type turn_interval"),
        ({"trigger": {"type": "event_based"}}, "trigger.eventName: missing. A trigger of type event_based"),
        (
            {"trigger": {"type": "event_based", "eventName": "user_frustated"}},
            "trigger.eventName: unknown value 'user_frustated'. Did you mean 'user_frustrated'?",
        ),
        (
            {"trigger": {"type": "manual", "intervalTurns": 5}},
            "trigger.intervalTurns: has no effect on a trigger of type manual",
        ),
        ({"promptTemplate": " "}, "promptTemplate: empty. Expected a question to the model or an object"),
        ({"promptTemplate": None}, "promptTemplate: missing. Write the question"),
        ({"promptKey": "system/x"}, "promptKey: cannot be combined with promptTemplate. Write one of them."),
    ],
)
def test_an_invalid_metaprompt_is_reported_with_its_path(fields: dict[str, object], said: str) -> None:
    [fault] = faults_of_metaprompt(**fields)
    assert fault.startswith(f"metaPrompts[0].{said}")


def test_a_misspelled_built_in_metaprompt_is_suggested() -> None:
    [fault] = faults_of(metaPrompts=[{"id": "gmi_eror_recovery", "trigger": {"type": "manual"}}])
    assert fault.endswith("Did you mean the id 'gmi_error_recovery', which ships?")


def test_two_metaprompts_with_one_id_are_rejected() -> None:
    [fault] = faults_of(metaPrompts=[metaprompt(), metaprompt(id="n"), metaprompt()])
    assert fault == "metaPrompts[2].id: duplicate id 'm'. Use a different id."


def test_all_problems_of_a_definition_are_reported() -> None:
    found = faults_of(nam="x", version=2, metaPrompts=[7], sentimentTracking=5, prompts={"intro": "a", "init": ""})
    assert [each.partition(": ")[0] for each in found] == [
        "nam", "version", "prompts.intro", "prompts.init", "sentimentTracking", "metaPrompts[0]",
    ]  # fmt: skip


def test_a_persona_of_the_original_is_parsed_with_warnings() -> None:
    parts = [{"content": "Then this.", "priority": 2}, {"content": "First this.", "priority": 1}]
    document = {"id": "p", "baseSystemPrompt": parts, "personalityTraits": {"tone": "dry"}, "toolIds": []}
    assert read(document).base_system_prompt == "First this.\n\nThen this."
    assert [each.path for each in warnings_of(document, read(document), UNTRACKED)] == ["personalityTraits", "toolIds"]
    template = {"template": "You are Ada.", "variables": []}
    assert read({"id": "p", "baseSystemPrompt": template}).base_system_prompt == "You are Ada."
    assert faults_of(baseSystemPrompt=["x", {"content": 5}]) == [
        "baseSystemPrompt[0]: expected an object, got 'x'",
        "baseSystemPrompt[1].content: expected a string, got 5",
    ]


def test_a_metaprompt_without_trigger_runs_on_request() -> None:
    document = {"id": "p", "metaPrompts": [metaprompt(trigger=None)]}
    persona = read(document)
    assert persona.metaprompts[0].trigger == Trigger(type="manual")
    [odd] = warnings_of(document, persona, UNTRACKED)
    assert str(odd).startswith("metaPrompts[0].trigger: missing: it runs only by hand. Write")


def test_fields_for_editors_and_readers_are_accepted() -> None:
    read({"$schema": "persona.json", "id": "p", "sentimentTracking": {"_comment": "calm", "enabled": True}})


def test_settings_without_effect_are_reported() -> None:
    trigger = {"type": "event_based", "eventName": "user_confused"}
    given = metaprompt(trigger=trigger, promptTemplate="{{curent_mood}} {{evidence}}", outputSchema={})
    document = {"id": "p", "metaPrompts": [given]}
    found = [str(each) for each in warnings_of(document, read(document), UNTRACKED)]
    assert [each.partition(": ")[0] for each in found] == [
        "metaPrompts[0].outputSchema", "metaPrompts[0].promptTemplate", "metaPrompts[0].trigger",
    ]  # fmt: skip
    assert "{{curent_mood}} is not a variable and stays as it is" in found[1]
