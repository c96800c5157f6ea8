"""A project's own prompts by command line and over HTTP."""

import re

import httpx
import pytest
from commands import Here, cuebook

from cuebook import Cuebook

OWN = "---\ninherits: default/persona/helper\n---\nNever name prices.\n"


@pytest.fixture
def acme(here: Here) -> Here:
    file = here.folder / "prompts/projects/acme/persona/helper.md"
    file.parent.mkdir(parents=True)
    file.write_text(OWN)
    return here


def test_show_and_test_give_the_projects_own(acme: Here) -> None:
    assert acme.json("prompt", "show", "persona/helper")["slug"] == "default/persona/helper"
    assert acme.json("prompt", "show", "persona/helper", "--project", "acme")["slug"] == "projects/acme/persona/helper"
    assert acme.json("prompt", "show", "persona/helper", "--project", "none")["slug"] == "default/persona/helper"
    shown = acme.json("prompt", "test", "persona/helper", "--project", "acme")
    assert shown["text"].startswith("You are Helper")
    assert shown["text"].endswith("Never name prices.")
    assert "is not a valid project name" in acme("prompt", "show", "persona/helper", "--project", "../x", code=1)


def test_the_setting_holds_where_no_project_is_named(acme: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUEBOOK_PROMPTS_PROJECT", "acme")
    assert acme.json("prompt", "show", "persona/helper")["slug"] == "projects/acme/persona/helper"
    assert acme.json("prompt", "show", "default/persona/helper", "--project", "")["slug"] == "default/persona/helper"
    assert "Never name prices." not in acme("prompt", "test", "persona/helper", "--project", "", "--text")
    assert "Never name prices." in acme("prompt", "test", "persona/helper", "--text")
    monkeypatch.setenv("CUEBOOK_PROMPTS_PROJECT", "..")
    assert "prompts.project: '..' is not a valid project name" in acme("prompt", "list", code=1)
    [check] = [each for each in acme.json("doctor", code=1)["checks"] if each["name"] == "prompts"]
    assert check["state"] == "fail"


def test_a_talk_is_held_for_a_project(acme: Here) -> None:
    assert cuebook("chat", "--project", "acme", cwd=acme.folder, said="Hello.\n").returncode == 0
    shown = acme.json("turn", "show", "chat", "1")
    sources = [block["source"] for block in shown["window"]["blocks"]]
    assert "prompt:projects/acme/persona/helper@main:1" in sources
    assert shown["metadata"]["promptProject"] == "acme"


def test_lint_tells_what_overrides_nothing(acme: Here) -> None:
    (acme.folder / "prompts/projects/acme/_meta").mkdir()
    (acme.folder / "prompts/projects/acme/_meta/gone.md").write_text("This stands for nothing.\n")
    (acme.folder / "prompts/projects/acme/memory_compactor_v2_json.md").write_text("Condense as Acme does.\n")
    said = acme("prompt", "lint")
    assert re.search(r"vain-project.*projects/acme/_meta/gone|projects/acme/_meta/gone.*vain-project", said)
    assert said.count("vain-project") == 1
    assert "overrides nothing: there is no prompt '_meta/gone'" in re.sub(r"\s+", " ", said)


async def test_http_takes_a_project_where_prompts_are_said(cue: Cuebook, client: httpx.AsyncClient) -> None:
    await cue.prompts.save("persona/assistant", {"body": "I am plain."})
    await cue.prompts.save("projects/acme/persona/assistant", {"body": "I am Acme's."})
    body = {"message": "hello", "conversationId": "c", "project": "acme"}
    built = (await client.post("/api/assemble", json=body)).json()
    assert built["messages"][0]["content"].startswith("I am Acme's.")
    answer = (await client.post("/api/chat", json=body)).json()
    assert answer["metadata"]["promptProject"] == "acme"
    later = (await client.post("/api/assemble", json={"message": "and?", "conversationId": "c"})).json()
    assert later["messages"][0]["content"].startswith("I am Acme's.")
    refused = await client.post("/api/assemble", json={**body, "project": ".."})
    assert (refused.status_code, "is not a valid project name" in refused.json()["detail"]) == (400, True)
    render = "/api/prompts/persona~assistant/render"
    assert (await client.post(render, json={"project": "acme"})).json()["text"] == "I am Acme's."
    assert (await client.post(render, json={})).json()["text"] == "I am plain."
    own = await client.get("/api/prompts/persona~assistant", params={"project": "acme"})
    assert own.json()["slug"] == "projects/acme/persona/assistant"
    assert (await client.get("/api/prompts/persona~assistant")).json()["slug"] == "persona/assistant"
    said = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"X-Cuebook-Project": "acme", "X-Conversation-Id": "w"}
    assert (await client.post("/v1/chat/completions", json=said, headers=headers)).status_code == 200
    turn = (await client.get("/api/conversations/w/turns/1")).json()
    assert turn["window"]["blocks"][0]["source"] == "prompt:projects/acme/persona/assistant@main:1"
    headers["X-Cuebook-Project"] = "../x"
    assert (await client.post("/v1/chat/completions", json=said, headers=headers)).status_code == 400
