"""What was heard of a message, by HTTP and on the command line."""

import json

import httpx
import pytest
from commands import Here
from shared_app import app_of

from conftest import BASE
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.testing.doubles import ScriptedModel

ANGRY = "This is terrible, nothing works and I hate it!!"
LOST = "Huh? I don't understand what you mean."


def opened(here: Here) -> Cuebook:
    tracked = {"id": "tracker", "baseSystemPrompt": "x", "sentimentTracking": {"enabled": True}}
    (here.folder / "personas" / "tracker.json").write_text(json.dumps(tracked))
    config = load_config(here.folder, environment={})
    return Cuebook.open(config, model=ScriptedModel(default="Noted."), worker=False)


@pytest.mark.parametrize("streamed", [False, True])
async def test_chat_tells_what_it_heard(here: Here, streamed: bool) -> None:
    async with opened(here) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            body = {"message": ANGRY, "conversationId": "c1", "personaId": "tracker", "stream": streamed}
            answer = (await client.post("/api/chat", json=body)).text
            if streamed:
                data = answer.split("event: METADATA_UPDATE\n", 1)[1].split("\n", 1)[0]
                update = json.loads(data.removeprefix("data: "))
                told = update.get("metadata", update.get("updates", update))["sentiment"]
            else:
                told = json.loads(answer)["metadata"]["sentiment"]
            assert -1 <= told["score"] < -0.3
            assert 0.6 < told["intensity"] <= 1
            assert told["events"] == ["user_frustrated"]
            kept = (await client.get("/api/conversations/c1/turns/1")).json()
            assert kept["metadata"]["sentiment"] == told


async def test_turn_show_says_mood_events_and_signals_with_reasons(here: Here) -> None:
    async with opened(here) as cue:
        for text in (ANGRY, ANGRY, LOST, "Das ist schon wieder falsch."):
            await cue.ask(Ask(text, "c1", persona="tracker"))
        await cue.ask(Ask(ANGRY, "c2"))
    first, second, third, fourth = [here("turn", "show", "c1", str(n)) for n in (1, 2, 3, 4)]
    assert "sentiment: negative, score -0." in first
    assert "by lexicon_based" in first
    assert "event: user_frustrated (medium): score -0." in first
    assert "signals: user_frustrated 1.00" in first
    assert "2 negative in a row" in second
    assert "event:" not in second, "it is quiet for its cool-down"
    assert 'event: user_confused (medium): the message contains "huh", "don\'t understand"' in third
    assert "sentiment: unknown by lexicon_based" in fourth
    assert "heard:" not in here("turn", "show", "c2", "1"), "the persona does not track"
