"""Tests of the built-in personas: their triggers fire and the reflections reach the next prompt."""

import json
from pathlib import Path

import pytest

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.interfaces import ModelRequest
from cuebook.testing import ScriptedModel

#: The work model's answer to each metaprompt, by the key whose text is the strategy.
ANSWER = {"adjustmentRationale": "so it seems", "updatedGmiMood": "curious"}


def text_of(request: ModelRequest) -> str:
    return "\n".join(json.loads(message)["content"] for message in request.messages)


def model_with(strategy: str) -> ScriptedModel:
    """Return a model that answers users with a word and metaprompts with a strategy."""
    answer = json.dumps(ANSWER | {strategy: "Take a smaller step."})
    return ScriptedModel(default=lambda request: answer if request.purpose == "reflection" else "Noted.")


@pytest.fixture
def cue_of(tmp_path: Path):
    init_project(tmp_path)

    def open_with_model(model: ScriptedModel) -> Cuebook:
        return Cuebook.open(tmp_path, model=model, worker=False, arguments={"work.model": "model"})

    return open_with_model


async def ask_all(cue: Cuebook, persona: str, *texts: str) -> list[dict]:
    results = []
    for text in texts:
        results.append((await cue.ask(Ask(text, "c", user="ann", persona=persona))).metadata)
        await cue.settle()
    return results


def reflection_prompts(model: ScriptedModel) -> list[str]:
    return [text_of(request) for request in model.requests if request.purpose == "reflection"]


async def mind_of(cue: Cuebook, persona: str) -> str:
    window = await cue.assemble(Ask("And now?", "c", user="ann", persona=persona))
    return "\n".join(block.text for block in window.blocks if block.kind == "mind")


async def test_the_tutor_reviews_the_lesson_every_eight_turns(cue_of):
    model = model_with("lessonPlan")
    async with cue_of(model) as cue:
        await ask_all(cue, "tutor", *(f"Chapter {number} of the book." for number in range(1, 8)))
        assert not any("Look back at the last turns of this lesson" in each for each in reflection_prompts(model))
        await ask_all(cue, "tutor", "Chapter 8 of the book.")
        [prompt] = [each for each in reflection_prompts(model) if "Look back at the last turns of this lesson" in each]
        assert "Chapter 8 of the book." in prompt
        assert "{{" not in prompt
        assert "Take a smaller step." in await mind_of(cue, "tutor")


async def test_the_tutor_reacts_earlier_than_others(cue_of):
    text = "I do not like this exercise."
    for persona, events in (("tutor", ["user_frustrated"]), ("engineer", [])):
        async with cue_of(model_with("recoveryStrategy")) as cue:
            [metadata] = await ask_all(cue, persona, text)
            assert metadata["sentiment"]["events"] == events
            await cue.conversations.delete("c")


async def test_the_engineer_recovers_a_frustrated_user(cue_of):
    model = model_with("recoveryStrategy")
    async with cue_of(model) as cue:
        [metadata] = await ask_all(cue, "engineer", "This is terrible, the build fails again and I hate it!!")
        assert metadata["sentiment"]["events"] == ["user_frustrated"]
        assert metadata["experiences"] == ["debugging"]
        assert len(reflection_prompts(model)) == 1
        assert "Take a smaller step." in await mind_of(cue, "engineer")


async def test_the_companion_asks_its_own_question_of_a_quiet_user(cue_of):
    model = model_with("engagementStrategy")
    async with cue_of(model) as cue:
        metadata = await ask_all(cue, "companion", "The bus came.", "It was full.", "I read.", "The book is blue.")
        assert metadata[-1]["sentiment"]["events"] == ["low_engagement"]
        assert any("has grown quiet" in each and "The book is blue." in each for each in reflection_prompts(model))
        await ask_all(cue, "companion", "The sky is grey.")
        assert len(reflection_prompts(model)) == 2, "the review at turn 5"


async def test_the_helper_is_tracked_where_the_mode_enables_it(cue_of):
    async with cue_of(model_with("recoveryStrategy")) as cue:
        for mode, events in ((None, []), ("tutor", ["user_frustrated"])):
            ask = Ask("This is terrible, I hate it!!", f"of-{mode}", user="ann", mode=mode)
            metadata = (await cue.ask(ask)).metadata
            assert metadata["sentiment"]["events"] == events
