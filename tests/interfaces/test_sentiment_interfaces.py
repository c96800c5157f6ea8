"""Tests of message sentiment over HTTP and on the command line."""

import json

import httpx
import pytest
from commands import CommandRunner
from shared_app import app_of

from conftest import BASE
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.testing.doubles import ScriptedModel

ANGRY = "This is terrible, nothing works and I hate it!!"
LOST = "Huh? I don't understand what you mean."


def open_project(here: CommandRunner) -> Cuebook:
    tracked = {"id": "tracker", "baseSystemPrompt": "x", "sentimentTracking": {"enabled": True}}
    (here.folder / "personas" / "tracker.json").write_text(json.dumps(tracked))
    config = load_config(here.folder, environment={})
    return Cuebook.open(config, model=ScriptedModel(default="Noted."), worker=False)


@pytest.mark.parametrize("streamed", [False, True])
async def test_chat_answer_contains_the_sentiment(here: CommandRunner, streamed: bool) -> None:
    async with open_project(here) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            body = {"message": ANGRY, "conversationId": "c1", "personaId": "tracker", "stream": streamed}
            answer = (await client.post("/api/chat", json=body)).text
            if streamed:
                data = answer.split("event: METADATA_UPDATE\n", 1)[1].split("\n", 1)[0]
                update = json.loads(data.removeprefix("data: "))
                report = update.get("metadata", update.get("updates", update))["sentiment"]
            else:
                report = json.loads(answer)["metadata"]["sentiment"]
            assert -1 <= report["score"] < -0.3
            assert 0.6 < report["intensity"] <= 1
            assert report["events"] == ["user_frustrated"]
            result = (await client.get("/api/conversations/c1/turns/1")).json()
            assert result["metadata"]["sentiment"] == report


@pytest.mark.slow
async def test_turn_show_explains_sentiment_events_and_signals(here: CommandRunner) -> None:
    async with open_project(here) as cue:
        for text in (ANGRY, ANGRY, LOST, "Das ist schon wieder falsch."):
            await cue.ask(Ask(text, "c1", persona="tracker"))
        await cue.ask(Ask(ANGRY, "c2"))
    first, second, third, fourth = [here("turn", "show", "c1", str(n)) for n in (1, 2, 3, 4)]
    assert "sentiment: negative, score -0." in first
    assert "by lexicon_based" in first
    assert "event: user_frustrated (medium): score -0." in first
    assert "signals: user_frustrated 0.9" in first
    assert "2 negative in a row" in second
    assert "event:" not in second, "No event fires during the cooldown."
    assert 'event: user_confused (medium): the message contains "huh", "don\'t understand"' in third
    assert "sentiment: unknown by lexicon_based" in fourth
    assert "heard:" not in here("turn", "show", "c2", "1"), "The persona does not track sentiment."
