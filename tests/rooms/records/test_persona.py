import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.records.persona import FIELDS, Persona, look_at_persona, odd_fields
from cuebook.records.persona_tracking import odd_metaprompts
from cuebook.records.tracking import EVENTS, SHIPPED_TRIGGERS, UNTRACKED, Metaprompt, Tracking, Trigger

#: The document's own two definitions.
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
    persona, faults = look_at_persona(document)
    assert persona is not None
    assert not faults
    return persona


def faults_of(**fields: object) -> list[str]:
    return [str(each) for each in look_at_persona({"id": "p", **fields})[1]]


def metaprompt(**fields: object) -> dict[str, object]:
    return {"id": "m", "trigger": {"type": "manual"}, "promptTemplate": "Look back.", **fields}


def faults_of_metaprompt(**fields: object) -> list[str]:
    return faults_of(metaPrompts=[metaprompt(**fields)])


def test_the_document_s_persona_is_read() -> None:
    persona = read(TUTOR)
    assert (persona.id, persona.name, persona.base_system_prompt) == (
        "my_tutor_persona",
        "Adaptive Tutor",
        "You are an adaptive coding tutor...",
    )
    assert persona.tracking == Tracking(
        enabled=True,
        presets=("frustration_recovery", "confusion_clarification"),
        given=frozenset({"enabled", "method", "presets"}),
    )


def test_the_document_s_custom_metaprompt_is_read() -> None:
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


def test_a_persona_of_an_id_alone_asks_nothing_of_the_mind() -> None:
    persona = read({"id": "p"})
    assert (persona.name, persona.version, persona.role) == ("p", "1.0.0", "assistant")
    assert persona.tracking == UNTRACKED
    assert persona.metaprompts == ()


def test_every_field_of_tracking_is_read() -> None:
    fields = {
        "enabled": True,
        "method": "llm",
        "modelId": "small",
        "providerId": "here",
        "historyWindow": 4,
        "frustrationThreshold": -0.5,
        "satisfactionThreshold": 0,
        "consecutiveTurnsForTrigger": 3,
        "presets": ["all", "all"],
        "cooldownTurns": 0,
        "cooldownMs": 60_000,
        "profile": "tutor",
    }
    tracking = read({"id": "p", "sentimentTracking": fields}).tracking
    assert tracking == Tracking(
        enabled=True, method="llm", model_id="small", provider_id="here", history_window=4, frustration_threshold=-0.5,
        satisfaction_threshold=0.0, consecutive_turns=3, presets=("all",), cooldown_turns=0, cooldown_ms=60_000,
        profile="tutor", given=frozenset(Tracking.__struct_fields__) - {"profile", "given"},
    )  # fmt: skip


def test_a_text_names_a_profile() -> None:
    assert read({"id": "p", "sentimentTracking": "tutor"}).tracking == Tracking(profile="tutor")


@pytest.mark.parametrize(("name", "trigger"), SHIPPED_TRIGGERS.items())
def test_a_metaprompt_that_ships_brings_text_and_trigger_along(name: str, trigger: Trigger) -> None:
    [found] = read({"id": "p", "metaPrompts": [{"id": name}]}).metaprompts
    assert (found.template, found.key, found.trigger) == ("", "", trigger)
    manual = {"id": name, "trigger": {"type": "manual"}}
    assert read({"id": "p", "metaPrompts": [manual]}).metaprompts[0].trigger == Trigger(type="manual")


def test_the_look_back_runs_every_five_turns() -> None:
    assert SHIPPED_TRIGGERS["gmi_self_trait_adjustment"] == Trigger(type="turn_interval", interval_turns=5)


def test_the_original_s_template_objects_are_read() -> None:
    template = {"template": "How is {{current_mood}}?", "variables": ["current_mood"]}
    [found] = read({"id": "p", "metaPrompts": [metaprompt(promptTemplate=template)]}).metaprompts
    assert found.template == "How is {{current_mood}}?"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("enabled", "yes", "expected true or false, got 'yes'"),
        ("enabled", 1, "expected true or false, got 1"),
        ("enabld", True, "no field 'enabld'; did you mean 'enabled'?"),
        ("historyWindow", 0, "expected a whole number from 1 to 1,000, got 0"),
        ("historyWindow", 2.5, "expected a whole number from 1 to 1,000, got 2.5"),
        ("historyWindow", True, "expected a whole number from 1 to 1,000, got true"),
        ("frustrationThreshold", -1.1, "expected a number from -1 to 1, got -1.1"),
        ("satisfactionThreshold", float("nan"), "expected a number from -1 to 1, got nan"),
        ("satisfactionThreshold", "0.3", "expected a number from -1 to 1, got '0.3'"),
        ("consecutiveTurnsForTrigger", 0, "expected a whole number from 1 to 1,000, got 0"),
        ("cooldownTurns", -1, "expected a whole number from 0 to 10,000, got -1"),
        ("presets", "all", "expected a list, got 'all'"),
        ("profile", "", "is empty; name a profile, or leave it out"),
        ("modelId", ["x"], "expected a text, got a list"),
    ],
)
def test_wrong_tracking_is_told_with_its_path(field: str, value: object, said: str) -> None:
    [fault] = faults_of(sentimentTracking={field: value})
    assert fault.startswith(f"sentimentTracking.{field}: {said}")


def test_a_misspelt_preset_brings_the_likely_one() -> None:
    [fault] = faults_of(sentimentTracking={"presets": ["all", "engagement_bost"]})
    assert fault.startswith(
        "sentimentTracking.presets[1]: no preset 'engagement_bost'; did you mean 'engagement_boost'?"
    )


def test_no_score_is_both_frustrated_and_satisfied() -> None:
    [fault] = faults_of(sentimentTracking={"frustrationThreshold": 0.4})
    assert fault == (
        "sentimentTracking.frustrationThreshold: 0.4 is not below satisfactionThreshold (0.3); lower it, or raise that"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": ""}, "id: is empty; give the metaprompt an id"),
        ({"id": 5}, "id: expected a text, got 5"),
        ({"trigger": "manual"}, "trigger: expected an object such as"),
        ({"trigger": {}}, "trigger.type: missing; write one of turn_interval, event_based, manual"),
        ({"trigger": {"type": "event"}}, "trigger.type: no trigger 'event'; did you mean 'event_based'?"),
        ({"trigger": {"type": "turn_interval"}}, "trigger.intervalTurns: missing; say after how many turns"),
        (
            {"trigger": {"type": "turn_interval", "intervalTurns": 0}},
            "trigger.intervalTurns: expected a whole number from 1 to 10,000, got 0",
        ),
        ({"trigger": {"type": "event_based"}}, f"trigger.eventName: missing; write one of {', '.join(EVENTS)}"),
        (
            {"trigger": {"type": "event_based", "eventName": "user_frustated"}},
            "trigger.eventName: no event 'user_frustated'; did you mean 'user_frustrated'?",
        ),
        ({"trigger": {"type": "event_based", "eventName": ""}}, "trigger.eventName: no event ''; known are"),
        (
            {"trigger": {"type": "manual", "intervalTurns": 5}},
            "trigger.intervalTurns: means nothing to a trigger of type manual; leave it out",
        ),
        ({"promptTemplate": " "}, "promptTemplate: is empty; write the question"),
        ({"promptTemplate": None}, "promptTemplate: missing; write the question"),
        ({"promptTemplate": 3}, "promptTemplate: expected a text, got 3"),
        ({"promptKey": "system/x"}, "promptKey: stands beside promptTemplate; write one of them"),
        ({"temperature": 2.1}, "temperature: expected a number from 0 to 2, got 2.1"),
        ({"maxOutputTokens": 0}, "maxOutputTokens: expected a whole number from 1 to 32,000, got 0"),
        ({"maxOutputToken": 9}, "maxOutputToken: no field 'maxOutputToken'; did you mean 'maxOutputTokens'?"),
    ],
)
def test_a_wrong_metaprompt_is_told_with_its_path(fields: dict[str, object], said: str) -> None:
    [fault] = faults_of_metaprompt(**fields)
    assert fault.startswith(f"metaPrompts[0].{said}")


def test_the_name_of_one_that_ships_is_told_where_it_was_probably_meant() -> None:
    [fault] = faults_of(metaPrompts=[{"id": "gmi_eror_recovery", "trigger": {"type": "manual"}}])
    assert fault.endswith("did you mean the one that ships, 'gmi_error_recovery'?")


def test_two_metaprompts_of_one_id_are_refused_by_both_places() -> None:
    [fault] = faults_of(metaPrompts=[metaprompt(), metaprompt(id="n"), metaprompt()])
    assert fault == "metaPrompts[2].id: 'm' is taken by metaPrompts[0]; give each metaprompt its own"


def test_all_faults_of_a_definition_are_told() -> None:
    found = faults_of(nam="x", version=2, metaPrompts=[7], sentimentTracking=5, prompts={"intro": "a", "init": ""})
    assert [each.partition(": ")[0] for each in found] == [
        "nam", "version", "prompts.intro", "prompts.init", "sentimentTracking", "metaPrompts[0]",
    ]  # fmt: skip


def test_a_persona_written_for_the_original_is_read_and_what_means_nothing_is_told() -> None:
    parts = [{"content": "Then this.", "priority": 2}, {"content": "First this.", "priority": 1}]
    document = {"id": "p", "baseSystemPrompt": parts, "personalityTraits": {"tone": "dry"}, "toolIds": []}
    assert read(document).base_system_prompt == "First this.\n\nThen this."
    assert [each.path for each in odd_fields(document)] == ["personalityTraits", "toolIds"]
    template = {"template": "You are Ada.", "variables": []}
    assert read({"id": "p", "baseSystemPrompt": template}).base_system_prompt == "You are Ada."
    assert faults_of(baseSystemPrompt=["x", {"content": 5}]) == [
        "baseSystemPrompt[0]: expected an object with content and priority, got 'x'",
        "baseSystemPrompt[1].content: expected a text, got 5",
    ]


def test_without_a_trigger_it_runs_when_asked_for() -> None:
    document = {"id": "p", "metaPrompts": [metaprompt(trigger=None)]}
    found = read(document).metaprompts
    assert found[0].trigger == Trigger(type="manual")
    [odd] = odd_metaprompts(document, found, UNTRACKED)
    assert str(odd).startswith("metaPrompts[0].trigger: missing, so it runs when asked for; write")


def test_fields_for_editors_and_readers_are_no_fault() -> None:
    read({"$schema": "persona.json", "id": "p", "sentimentTracking": {"_comment": "calm", "enabled": True}})


@pytest.mark.parametrize("document", [None, 5, "id: p", ["p"], []])
def test_what_is_no_object_is_no_persona(document: object) -> None:
    persona, faults = look_at_persona(document)
    assert persona is None
    assert str(faults[0]).startswith("$: expected an object with id, name, version and baseSystemPrompt, got ")


def test_what_does_nothing_is_told() -> None:
    trigger = {"type": "event_based", "eventName": "user_confused"}
    given = metaprompt(trigger=trigger, promptTemplate="{{curent_mood}} {{evidence}}", outputSchema={})
    document = {"id": "p", "metaPrompts": [given]}
    found = [str(each) for each in odd_metaprompts(document, read(document).metaprompts, UNTRACKED)]
    assert [each.partition(": ")[0] for each in found] == [
        "metaPrompts[0].outputSchema", "metaPrompts[0].promptTemplate", "metaPrompts[0].trigger",
    ]  # fmt: skip
    assert "{{curent_mood}} is no variable and stays as it stands" in found[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
TRIGGER = st.fixed_dictionaries({}, optional={"type": JSON, "intervalTurns": JSON, "eventName": JSON})
ENTRY = st.dictionaries(
    st.sampled_from(["id", "trigger", "promptTemplate", "promptKey", "temperature"]), JSON | TRIGGER
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON | st.lists(ENTRY, max_size=2), max_size=5))
def test_any_definition_is_read_or_refused(document: dict[str, object]) -> None:
    persona, faults = look_at_persona(document)
    assert persona is not None
    assert all(str(fault) for fault in faults)
    if not faults:
        assert persona.id
        assert json.dumps(persona.tracking.history_window)
