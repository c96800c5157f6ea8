"""Tests of search results: each names its conversation, and new chat memories are found."""

import httpx
from api_keys import served
from commands import CommandRunner, cuebook

from cuebook import Ask, Cuebook

SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}
BOAT = "The boat lies in Quito."


async def test_search_result_names_its_conversation(client: httpx.AsyncClient, cue: Cuebook) -> None:
    for name in ("c1", "c2"):
        await cue.ask(Ask(BOAT, name, user="ann"))
    result = await cue.memory.search("Where is the boat?", user="ann")
    assert {hit.conversation for hit in result if hit.kind == "post" and hit.text == BOAT} == {"c1", "c2"}
    body = {"query": "Where is the boat?", "userId": "ann"}
    hits = (await client.post("/api/memories/search", json=body)).json()["hits"]
    assert {each["conversationId"] for each in hits if each["text"] == BOAT} == {"c1", "c2"}
    hits = (await client.post("/api/memories/search", json=body | {"conversationId": "c2"})).json()["hits"]
    assert {each["conversationId"] for each in hits} == {"c2"}


async def test_memory_names_its_only_source_conversation() -> None:
    async with served() as keyed:
        mara = await keyed.client_as("admin", "mara", organizations=["acme"])
        terms = {"organizationId": "acme", "memoryControl": SHARES}
        for talk, text in (("c1", "Our plant is in Quito."), ("c1", "I live in Oslo."), ("c2", "I live in Oslo.")):
            response = await mara.post("/api/chat", json={"message": text, "conversationId": talk} | terms)
            assert response.status_code == 200
        body = {"category": "domain", "key": "plant", "value": "The plant has 90 rooms."}
        assert (await mara.post("/learning/knowledge", json=body)).status_code == 201
        await keyed.cue.settle()

        async def memory_sources(query: str, **owner: str) -> set[tuple[str, str | None]]:
            hits = await keyed.cue.memory.search(query, scopes=["user", "organization"], **owner)  # type: ignore[arg-type]
            return {(each.scope, each.conversation) for each in hits if each.kind in ("item", "knowledge")}

        assert ("user", "c1") in await memory_sources("Where is our plant?", user="mara")
        assert ("user", None) in await memory_sources("Where do I live in Oslo?", user="mara"), (
            "It has two source conversations."
        )
        assert ("user", None) in await memory_sources("How many rooms?", user="mara"), "It was stored directly."
        assert await memory_sources("Where is our plant?", organization="acme") == {("organization", None)}, (
            "It must not name a user's conversation."
        )


def test_search_command_shows_the_conversation(here: CommandRunner) -> None:
    for name in ("c1", "c2"):
        assert cuebook("chat", "--conversation", name, cwd=here.folder, stdin=f"{BOAT}\n").returncode == 0
    output = here("memory", "search", "Where is the boat?")
    assert " · c1 · post" in output
    assert " · c2 · post" in output
    assert " · c1 · " not in here("memory", "search", "Where is the boat?", "--conversation", "c1")
    hits = here.json("memory", "search", "Where is the boat?", "--conversation", "c1")["hits"]
    assert {each["conversationId"] for each in hits} == {"c1"}


def test_memory_from_a_chat_exists_when_the_command_ends(here: CommandRunner) -> None:
    done = cuebook("chat", "--user", "ann", cwd=here.folder, stdin="I live in Oslo.\n", CUEBOOK_MEMORY_USER="yes")
    assert (done.returncode, done.stderr) == (0, "")
    items = here.json("memory", "list", "--user", "ann")["items"]
    assert [each["text"] for each in items] == ["I live in Oslo."]
