"""A hit says in which conversation it lies, and what a chat told is known when the command ends."""

import httpx
from api_keys import served
from commands import Here, cuebook

from cuebook import Ask, Cuebook

SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}
BOAT = "The boat lies in Quito."


async def test_a_hit_names_its_conversation(client: httpx.AsyncClient, cue: Cuebook) -> None:
    for name in ("c1", "c2"):
        await cue.ask(Ask(BOAT, name, user="ann"))
    found = await cue.memory.search("Where is the boat?", user="ann")
    assert {hit.conversation for hit in found if hit.kind == "post" and hit.text == BOAT} == {"c1", "c2"}
    asked = {"query": "Where is the boat?", "userId": "ann"}
    hits = (await client.post("/api/memories/search", json=asked)).json()["hits"]
    assert {each["conversationId"] for each in hits if each["text"] == BOAT} == {"c1", "c2"}
    hits = (await client.post("/api/memories/search", json=asked | {"conversationId": "c2"})).json()["hits"]
    assert {each["conversationId"] for each in hits} == {"c2"}


async def test_a_memory_names_the_one_conversation_it_comes_from() -> None:
    async with served() as keyed:
        mara = await keyed.holder("admin", "mara", organizations=["acme"])
        terms = {"organizationId": "acme", "memoryControl": SHARES}
        for talk, text in (("c1", "Our plant is in Quito."), ("c1", "I live in Oslo."), ("c2", "I live in Oslo.")):
            said = await mara.post("/api/chat", json={"message": text, "conversationId": talk} | terms)
            assert said.status_code == 200
        known = {"category": "domain", "key": "plant", "value": "The plant has 90 rooms."}
        assert (await mara.post("/learning/knowledge", json=known)).status_code == 201
        await keyed.cue.settle()

        async def found(query: str, **whose: str) -> set[tuple[str, str | None]]:
            hits = await keyed.cue.memory.search(query, scopes=["user", "organization"], **whose)  # type: ignore[arg-type]
            return {(each.scope, each.conversation) for each in hits if each.kind in ("item", "knowledge")}

        assert ("user", "c1") in await found("Where is our plant?", user="mara")
        assert ("user", "") in await found("Where do I live in Oslo?", user="mara"), "said in two"
        assert ("user", "") in await found("How many rooms?", user="mara"), "put by hand"
        assert await found("Where is our plant?", organization="acme") == {("organization", "")}, "no user's talk"


def test_the_command_tells_where_it_was_found(here: Here) -> None:
    for name in ("c1", "c2"):
        assert cuebook("chat", "--conversation", name, cwd=here.folder, said=f"{BOAT}\n").returncode == 0
    said = here("memory", "search", "Where is the boat?")
    assert " · c1 · post" in said
    assert " · c2 · post" in said
    assert " · c1 · " not in here("memory", "search", "Where is the boat?", "--conversation", "c1")
    hits = here.json("memory", "search", "Where is the boat?", "--conversation", "c1")["hits"]
    assert {each["conversationId"] for each in hits} == {"c1"}


def test_what_a_chat_told_is_known_when_it_ends(here: Here) -> None:
    done = cuebook("chat", "--user", "ann", cwd=here.folder, said="I live in Oslo.\n", CUEBOOK_MEMORY_USER="yes")
    assert (done.returncode, done.stderr) == (0, "")
    items = here.json("memory", "list", "--user", "ann")["items"]
    assert [each["text"] for each in items] == ["I live in Oslo."]
