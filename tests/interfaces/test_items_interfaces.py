"""Tests of the items of a conversation over HTTP and on the command line: show, correct and forget."""

import json

import pytest
from api_keys import served
from commands import CommandRunner, write_messages

from cuebook import Config
from cuebook.config import ConfigSections, MemoryConfig, StoreConfig
from cuebook.interfaces import ModelRequest
from cuebook.testing import ScriptedModel

WRONG, RIGHT = "I am allergic to nuts.", "Allergic to peanuts, not to nuts."
SAID = (
    WRONG,
    "I work as a nurse in Bergen.",
    "My sister Ida lives in Turku.",
    *(f"Bed {n} is done." for n in range(30)),
)


async def test_only_the_user_shows_corrects_and_forgets_an_item() -> None:
    settings = ConfigSections(store=StoreConfig(url=":memory:"), memory=MemoryConfig(user=True))
    async with served(where=Config(settings=settings), model=ScriptedModel(default="Noted.")) as keyed:
        ann, bob = await keyed.client_as("agent", "ann"), await keyed.client_as("agent", "bob")
        agent = await keyed.client_as("agent")
        for text in SAID:
            answer = await ann.post("/api/chat", json={"message": text, "conversationId": "c1"})
            assert answer.status_code == 200, answer.text
        await keyed.cue.settle()
        items = (await ann.get("/api/conversations/c1/items")).json()["items"]
        [nuts] = [each for each in items if "nuts" in each["text"]]
        name = nuts["memoryId"]
        one = f"/api/memories/{name}"
        result = (await ann.get(one)).json()
        assert result["sources"] == [{"conversationId": "c1", "postId": nuts["sources"][0]}]
        assert (result["id"], result["scope"], result["corrected"]) == (name, "conversation", False)
        for refused in (await bob.get(one), await bob.patch(one, json={"text": RIGHT}), await bob.delete(one)):
            assert refused.status_code == 404, refused.text
        missing = await bob.get("/api/memories/item:c9:0000000000000000")
        assert (await bob.get(one)).json()["detail"].replace("c1", "c9") == missing.json()["detail"]
        assert (await agent.patch(one, json={"text": RIGHT})).status_code == 403
        assert (await ann.patch(one, json={"text": " "})).status_code == 400
        fixed = await ann.patch(one, json={"text": RIGHT})
        assert (fixed.status_code, fixed.json()["text"], fixed.json()["corrected"]) == (200, RIGHT, True)
        assert fixed.json()["id"] == name
        assert (await ann.get(one)).json() == fixed.json()
        memories = (await ann.get("/api/memories")).json()["items"]
        assert {each["text"] for each in memories if "nuts" in each["text"]} == {RIGHT}
        memory = (await ann.get("/api/conversations/c1/summary")).text
        assert "peanuts" in memory
        assert "allergic to nuts" not in memory
        gone = await ann.delete(one)
        assert gone.json()["receipt"]["counts"]["memories"] == 4, "The memories of user and persona have two versions."
        await keyed.cue.settle()
        for path in ("/api/conversations/c1/summary", "/api/conversations/c1/items?ended=true", "/api/memories"):
            assert "nuts" not in (await ann.get(path)).text, path
        receipt = f"/api/receipts/{gone.json()['receipt']['id']}"
        assert ((await ann.get(receipt)).status_code, (await bob.get(receipt)).status_code) == (200, 404)


@pytest.mark.slow
def test_operator_corrects_and_forgets_listed_items(here: CommandRunner) -> None:
    talk = write_messages(here.folder, *[("user", text) for text in SAID])
    here("conversation", "import", talk, "--conversation", "c1")
    here("settle")
    [name] = [each["memoryId"] for each in here.json("memory", "list", "c1")["items"] if "nuts" in each["text"]]
    assert name in here("memory", "list", "c1"), "The table must show the whole ID."
    assert WRONG in here("memory", "show", name)
    assert f"\n{RIGHT}\n" in here("memory", "correct", name, RIGHT)
    [kept] = [each["memoryId"] for each in here.json("memory", "list", "c1")["items"] if "nuts" in each["text"]]
    assert kept == name, "A corrected item keeps its ID."
    assert here.json("memory", "show", name)["memory"]["corrected"] is True
    output = here("memory", "show", "c1")
    assert "peanuts" in output
    assert "allergic to nuts" not in output
    assert "items" in here("memory", "forget", "--id", name, "--yes")
    here("settle")
    assert "nuts" not in here("memory", "show", "c1") + here("memory", "list", "c1", "--ended")


def ending(request: ModelRequest) -> str:
    """Return a model's answer that ends the first quote, if there is one, citing all messages."""
    document = json.loads(json.loads(request.messages[1])["content"].partition("INPUT_JSON:\n")[2])
    ended = [{"id": each["id"], "sources": [turn["id"] for turn in document["new_turns"]], "reason": "So it seems."}
             for each in document["quotes"][:1]]  # fmt: skip
    return json.dumps({"summary_markdown": "- Work.", "ended": ended})


async def test_only_the_user_restores_an_item_that_a_model_ended() -> None:
    settings = ConfigSections(store=StoreConfig(url=":memory:"))
    async with served(where=Config(settings=settings), model=ScriptedModel(default="Noted.")) as keyed:
        keyed.cue.services.work_model = ScriptedModel(default=ending)
        ann, bob = await keyed.client_as("editor", "ann"), await keyed.client_as("editor", "bob")
        posts = [{"sendFrom": "ann", "message": text} for text in (WRONG, "I ate nuts yesterday.", *SAID[1:])]
        assert (await ann.post("/api/conversations/c1/posts", json={"posts": posts})).status_code == 201
        await keyed.cue.settle()
        items = (await ann.get("/api/conversations/c1/items?ended=true")).json()["items"]
        [ended] = [each for each in items if each["text"] == WRONG]
        assert ended["validTo"] is not None
        one = f"/api/memories/{ended['memoryId']}/restore"
        assert (await bob.post(one)).status_code == 404
        restored = await ann.post(one)
        assert (restored.status_code, restored.json()["text"], restored.json()["validTo"]) == (200, WRONG, None)
        again = await ann.post(one)
        assert (again.status_code, "no model ended it" in again.json()["detail"]) == (409, True)
        assert (await ann.post("/api/memories/item:c1:0000000000000000/restore")).status_code == 404
