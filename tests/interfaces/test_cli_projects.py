"""Tests of project-specific prompts on the command line and over HTTP."""

import re

import httpx
import pytest
from commands import CommandRunner, cuebook

from cuebook import Cuebook

OWN = "---\ninherits: default/persona/helper\n---\nNever name prices.\n"


@pytest.fixture
def acme(here: CommandRunner) -> CommandRunner:
    file = here.folder / "prompts/projects/acme/persona/helper.md"
    file.parent.mkdir(parents=True)
    file.write_text(OWN)
    return here


def test_show_and_test_use_the_prompt_of_the_project(acme: CommandRunner) -> None:
    assert acme.json("prompt", "show", "persona/helper")["slug"] == "default/persona/helper"
    assert acme.json("prompt", "show", "persona/helper", "--project", "acme")["slug"] == "projects/acme/persona/helper"
    assert acme.json("prompt", "show", "persona/helper", "--project", "none")["slug"] == "default/persona/helper"
    result = acme.json("prompt", "test", "persona/helper", "--project", "acme")
    assert result["text"].startswith("You are Helper")
    assert result["text"].endswith("Never name prices.")
    assert "is not a valid project name" in acme("prompt", "show", "persona/helper", "--project", "../x", code=1)


@pytest.mark.slow
def test_setting_applies_when_no_project_is_given(acme: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUEBOOK_PROMPTS_PROJECT", "acme")
    assert acme.json("prompt", "show", "persona/helper")["slug"] == "projects/acme/persona/helper"
    assert acme.json("prompt", "show", "default/persona/helper", "--project", "")["slug"] == "default/persona/helper"
    assert "Never name prices." not in acme("prompt", "test", "persona/helper", "--project", "", "--text")
    assert "Never name prices." in acme("prompt", "test", "persona/helper", "--text")
    monkeypatch.setenv("CUEBOOK_PROMPTS_PROJECT", "..")
    assert "prompts.project: '..' is not a valid project name" in acme("prompt", "list", code=1)
    [check] = [each for each in acme.json("doctor", code=1)["checks"] if each["name"] == "prompts"]
    assert check["state"] == "fail"


def test_chat_uses_the_prompts_of_a_project(acme: CommandRunner) -> None:
    assert cuebook("chat", "--project", "acme", cwd=acme.folder, stdin="Hello.\n").returncode == 0
    result = acme.json("turn", "show", "chat", "1")
    sources = [block["source"] for block in result["window"]["blocks"]]
    assert "prompt:projects/acme/persona/helper@main:1" in sources
    assert result["metadata"]["promptProject"] == "acme"


def test_lint_reports_prompts_that_override_nothing(acme: CommandRunner) -> None:
    (acme.folder / "prompts/projects/acme/_meta").mkdir()
    (acme.folder / "prompts/projects/acme/_meta/gone.md").write_text("This stands for nothing.\n")
    (acme.folder / "prompts/projects/acme/memory_compactor_v2_json.md").write_text("Condense as Acme does.\n")
    output = acme("prompt", "lint")
    assert re.search(r"vain-project.*projects/acme/_meta/gone|projects/acme/_meta/gone.*vain-project", output)
    assert output.count("vain-project") == 1
    assert "overrides nothing: there is no prompt '_meta/gone'" in re.sub(r"\s+", " ", output)


async def test_http_routes_accept_a_project(cue: Cuebook, client: httpx.AsyncClient) -> None:
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
    payload = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"X-Cuebook-Project": "acme", "X-Conversation-Id": "w"}
    assert (await client.post("/v1/chat/completions", json=payload, headers=headers)).status_code == 200
    turn = (await client.get("/api/conversations/w/turns/1")).json()
    assert turn["window"]["blocks"][0]["source"] == "prompt:projects/acme/persona/assistant@main:1"
    headers["X-Cuebook-Project"] = "../x"
    assert (await client.post("/v1/chat/completions", json=payload, headers=headers)).status_code == 400
