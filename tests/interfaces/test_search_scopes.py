"""Tests of search results: each names its conversation, and new chat memories are found."""

import json

import httpx
from api_keys import served
from commands import CommandRunner, cuebook

from cuebook import Ask, Cuebook
from cuebook.engine.core.drafts import Posted

SMALL_TALK = [("ann", "We talked about the weather and the garden."), ("ben", "It rained on the tulips all day.")] * 8
#: The second message shares no word with the query; both beside it do.
CELLO = [
    ("ann", "How long have you played the cello?"),
    ("ben", "Seven years now."),
    ("ben", "Yes, the cello: long lessons, hard pieces."),
]
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


async def test_every_way_in_shows_what_is_nearby(client: httpx.AsyncClient, cue: Cuebook) -> None:
    said = [*SMALL_TALK, *CELLO, *(4 * SMALL_TALK)]
    posts = [Posted(sender=by, message=text, id=f"p{n}", created_at=60.0 * n) for n, (by, text) in enumerate(said, 1)]
    await cue.append("c1", posts, user="ann")
    query = "How long is the cello played?"
    body = {"query": query, "conversationId": "c1", "userId": "ann"}
    first, *others = (await client.post("/api/memories/search", json=body)).json()["hits"]
    assert first["sources"] == ["p17", "p18"]
    assert first["text"] == f"{CELLO[0][1]}\n(after) ben: Seven years now."
    [answer] = first["nearby"]
    assert answer.pop("tokens") < first["tokens"]
    time = "1970-01-01T00:18:00.000Z"
    assert answer == {"id": "p18", "seq": 18, "speaker": "ben", "text": "Seven years now.", "timestamp": time}
    assert not any({"p17", "p18"} & {*each["sources"]} for each in others)

    page = (await client.get("/page/memories", params={"q": query, "conversationId": "c1", "userId": "ann"})).text
    assert "(after) ben:" in page
    assert "Seven years now." in page
    window = await cue.assemble(Ask(query, "c1", user="ann", token_budget=800))
    blocks = [(each.source, each.text) for each in window.blocks if each.kind == "memory"]
    at = [source for source, _ in blocks].index("post:p17")
    assert blocks[at + 1] == ("post:p18", "- [1970-01-01] ben: Seven years now.")


def test_search_command_shows_what_is_nearby(here: CommandRunner) -> None:
    lines = [{"id": f"p{n}", "role": "user", "name": by, "content": text, "timestamp": 60.0 * n}
             for n, (by, text) in enumerate([*SMALL_TALK, *CELLO, *SMALL_TALK], 1)]  # fmt: skip
    (here.folder / "talk.json").write_text(json.dumps({"id": "c1", "messages": lines}), "utf-8")
    here("conversation", "import", str(here.folder / "talk.json"))
    output = here("memory", "search", "How long is the cello played?", "--conversation", "c1")
    assert "(after) ben: Seven years now." in " ".join(output.split())


async def test_an_erased_message_is_not_nearby(cue: Cuebook) -> None:
    said = [*SMALL_TALK, *CELLO, *(4 * SMALL_TALK)]
    posts = [Posted(sender=by, message=text, id=f"p{n}", created_at=60.0 * n) for n, (by, text) in enumerate(said, 1)]
    await cue.append("c1", posts, user="ann")
    await cue.memory.forget(user="ben")
    first, *_ = await cue.memory.search("How long is the cello played?", user="ann")
    assert (first.text, first.sources, first.nearby) == (CELLO[0][1], ("p17",), ())


async def test_a_message_nearby_is_not_proposed_for_forgetting(cue: Cuebook) -> None:
    secret = ("ann", "I have been allergic to penicillin since 1999, and I take insulin.")
    said = [*SMALL_TALK, ("coach", CELLO[0][1]), secret, CELLO[2], *(4 * SMALL_TALK)]
    posts = [Posted(sender=by, message=text, id=f"p{n}", created_at=60.0 * n) for n, (by, text) in enumerate(said, 1)]
    await cue.append("c1", posts, user="ann")
    query = "How long is the cello played?"
    assert "p18" in (await cue.memory.search(query, user="ann"))[0].sources
    assert await cue.memory.forgettable(query, user="ann") == []
