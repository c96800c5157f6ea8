"""The personas that ship do what their files say: they notice, look back, and the answer reaches the next prompt."""

import json
from pathlib import Path

import pytest

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.interfaces.model import ModelRequest
from cuebook.testing import ScriptedModel

#: What a work model answers to a metaprompt, by the key whose text is the strategy.
ANSWER = {"adjustmentRationale": "so it seems", "updatedGmiMood": "curious"}


def text_of(request: ModelRequest) -> str:
    return "\n".join(json.loads(message)["content"] for message in request.messages)


def model_with(strategy: str) -> ScriptedModel:
    """Give a model that answers users with a word and metaprompts with a strategy."""
    answer = json.dumps(ANSWER | {strategy: "Take a smaller step."})
    return ScriptedModel(default=lambda request: answer if request.purpose == "reflection" else "Noted.")


@pytest.fixture
def cue_of(tmp_path: Path):
    init_project(tmp_path)

    def opened(model: ScriptedModel) -> Cuebook:
        return Cuebook.open(tmp_path, model=model, worker=False, arguments={"work.model": "model"})

    return opened


async def talk(cue: Cuebook, persona: str, *texts: str) -> list[dict]:
    told = []
    for text in texts:
        told.append((await cue.ask(Ask(text, "c", user="ann", persona=persona))).metadata)
        await cue.settle()
    return told


def reflected(model: ScriptedModel) -> list[str]:
    return [text_of(request) for request in model.requests if request.purpose == "reflection"]


async def mind_of(cue: Cuebook, persona: str) -> str:
    window = await cue.assemble(Ask("And now?", "c", user="ann", persona=persona))
    return "\n".join(block.text for block in window.blocks if block.kind == "mind")


async def test_the_tutor_reviews_the_lesson_every_eight_turns(cue_of):
    model = model_with("lessonPlan")
    async with cue_of(model) as cue:
        await talk(cue, "tutor", *(f"Chapter {number} of the book." for number in range(1, 8)))
        assert not any("Look back at the last turns of this lesson" in each for each in reflected(model))
        await talk(cue, "tutor", "Chapter 8 of the book.")
        [asked] = [each for each in reflected(model) if "Look back at the last turns of this lesson" in each]
        assert "Chapter 8 of the book." in asked
        assert "{{" not in asked
        assert "Take a smaller step." in await mind_of(cue, "tutor")


async def test_the_tutor_notices_sooner_than_others(cue_of):
    text = "I do not like this exercise."
    for persona, events in (("tutor", ["user_frustrated"]), ("engineer", [])):
        async with cue_of(model_with("recoveryStrategy")) as cue:
            [told] = await talk(cue, persona, text)
            assert told["sentiment"]["events"] == events
            await cue.conversations.delete("c")


async def test_the_engineer_recovers_a_frustrated_user(cue_of):
    model = model_with("recoveryStrategy")
    async with cue_of(model) as cue:
        [told] = await talk(cue, "engineer", "This is terrible, the build fails again and I hate it!!")
        assert told["sentiment"]["events"] == ["user_frustrated"]
        assert told["experiences"] == ["debugging"]
        assert len(reflected(model)) == 1
        assert "Take a smaller step." in await mind_of(cue, "engineer")


async def test_the_companion_asks_its_own_question_of_a_quiet_user(cue_of):
    model = model_with("engagementStrategy")
    async with cue_of(model) as cue:
        told = await talk(cue, "companion", "The bus came.", "It was full.", "I read.", "The book is blue.")
        assert told[-1]["sentiment"]["events"] == ["low_engagement"]
        assert any("has grown quiet" in each and "The book is blue." in each for each in reflected(model))
        await talk(cue, "companion", "The sky is grey.")
        assert len(reflected(model)) == 2, "the look back at turn 5"


async def test_the_helper_is_tracked_where_the_mode_says_so(cue_of):
    async with cue_of(model_with("recoveryStrategy")) as cue:
        for mode, events in ((None, None), ("tutor", ["user_frustrated"])):
            asked = Ask("This is terrible, I hate it!!", f"of-{mode}", user="ann", mode=mode)
            told = (await cue.ask(asked)).metadata
            assert (told.get("sentiment") or {}).get("events") == events
