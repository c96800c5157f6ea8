"""Long lists read page by page: put together, the pages are the list, and what is wrong is one clear error."""

import base64
import itertools
from typing import Any

import httpx
import pytest

from cuebook import BlockingCuebook, Cuebook, InvalidInput, NotFound, Posted
from cuebook.errors import UpstreamError
from cuebook.testing.doubles import Script, ScriptedModel

LISTS = (
    "posts",
    "posts?branches=true",
    "rounds",
    "rounds?role=assistant&includeFailed=false",
    "turns",
    "items?ended=true",
)
FACTS = (
    "I moved to Lisbon on 3 May.",
    "My sister is called Ilse.",
    "I work at the harbour.",
    "I prefer green tea without sugar.",
    "I bought a boat for 900 euros.",
)


@pytest.fixture
async def talk(client: httpx.AsyncClient, cue: Cuebook, model: ScriptedModel) -> httpx.AsyncClient:
    """Two branches, five turns one of which failed, and things to remember."""
    for n, fact in enumerate(FACTS):
        if n == 2:
            model.say(Script(error=UpstreamError("the model broke", status=503)))
        await client.post("/api/chat", json={"message": fact, "conversationId": "c1", "userId": "ann"})
    side = {"posts": [{"id": f"s{n}", "sendFrom": "ann", "message": f"Side {n}"} for n in range(3)]}
    first = (await client.get("/api/conversations/c1/posts")).json()["items"][0]
    side["posts"][0]["parent"] = first["id"]
    assert (await client.post("/api/conversations/c1/posts", json=side)).status_code == 201
    last = (await client.get("/api/conversations/c1/posts?branches=true")).json()["items"][-4]
    assert (await client.put("/api/conversations/c1/head", json={"postId": last["id"]})).status_code == 200
    return client


async def pages(client: httpx.AsyncClient, name: str, limit: int) -> list[list[dict[str, Any]]]:
    found, cursor = [], None
    while True:
        params = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        answer = await client.get(httpx.URL(f"/api/conversations/c1/{name}").copy_merge_params(params))
        assert answer.status_code == 200, answer.text
        fields = answer.json()
        assert set(fields) <= {"items", "next"}
        found.append(fields["items"])
        if (cursor := fields.get("next")) is None:
            return found


@pytest.mark.parametrize("name", LISTS)
async def test_the_pages_are_the_list(talk: httpx.AsyncClient, name: str) -> None:
    whole = (await talk.get(f"/api/conversations/c1/{name}")).json()
    assert set(whole) == {"items"}
    assert len(whole["items"]) >= 4, "long enough to be cut"
    for limit in (1, 2, 3, 200):
        found = await pages(talk, name, limit)
        assert list(itertools.chain(*found)) == whole["items"]
        assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
        assert 0 < len(found[-1]) <= limit


async def test_a_page_names_the_parents_that_stand_before_it(talk: httpx.AsyncClient) -> None:
    posts = (await talk.get("/api/conversations/c1/posts")).json()["items"]
    assert [each["parent"] for each in posts] == [None, *(each["id"] for each in posts[:-1])]
    assert (await talk.get("/api/conversations/c1/posts?last=2")).json()["items"] == posts[-2:]
    rounds = (await talk.get("/api/conversations/c1/rounds?role=assistant")).json()["items"]
    assert all(post["parent"] for each in rounds for post in each["posts"] if post["seq"] > 1)


async def test_the_pages_of_a_path_stay_on_it_wherever_the_head_moves(talk: httpx.AsyncClient) -> None:
    whole = (await talk.get("/api/conversations/c1/posts")).json()["items"]
    first = (await talk.get("/api/conversations/c1/posts?limit=3")).json()
    await talk.put("/api/conversations/c1/head", json={"postId": "s2"})
    more = {"limit": 200, "cursor": first["next"]}
    rest = (await talk.get("/api/conversations/c1/posts", params=more)).json()
    assert first["items"] + rest["items"] == whole


async def test_a_cursor_alone_takes_pages_of_the_usual_size(talk: httpx.AsyncClient) -> None:
    posts = {"posts": [{"sendFrom": "ann", "message": f"Post {n}"} for n in range(120)]}
    await talk.post("/api/conversations/c2/posts", json=posts)
    first = (await talk.get("/api/conversations/c2/posts?limit=1")).json()
    second = (await talk.get("/api/conversations/c2/posts", params={"cursor": first["next"]})).json()
    assert (len(second["items"]), second["items"][0]["seq"]) == (50, 2)


@pytest.mark.parametrize("name", ["posts", "rounds", "turns", "items"])
async def test_wrong_limits_and_cursors_name_their_field(talk: httpx.AsyncClient, name: str) -> None:
    await talk.post("/api/conversations/c2/posts", json={"posts": [{"sendFrom": "ann", "message": "I like it."}] * 3})
    url = f"/api/conversations/c1/{name}"
    other = {"posts": "rounds", "rounds": "posts", "turns": "posts", "items": "posts"}[name]
    good = (await talk.get(f"{url}?limit=1")).json()["next"]
    others = (await talk.get(f"/api/conversations/c1/{other}?limit=1")).json()["next"]
    forged = base64.urlsafe_b64encode(b'["posts",1,99999999999999999999,0]').decode()
    wrong = [("limit", each) for each in ("0", "-1", "201", "x", "1.5")]
    wrong += [("cursor", each) for each in ("x", "%00", "ü", good[:-3], good + "AAAA", others, forged, "A" * 5000)]
    for field, value in wrong:
        answer = await talk.get(url, params={field: value})
        assert (answer.status_code, answer.json()["where"]) == (400, field), (value, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    elsewhere = await talk.get(f"/api/conversations/c2/{name}", params={"cursor": good})
    assert (elsewhere.status_code, elsewhere.json()["where"]) == (400, "cursor")
    assert (await talk.get(f"{url}?limit=1&userId=bob")).status_code == 404
    if name in ("posts", "turns"):
        both = await talk.get(f"{url}?limit=1&last=1")
        assert (both.status_code, both.json()["where"]) == (400, "last")


async def test_a_path_s_cursor_is_none_of_all_branches(talk: httpx.AsyncClient) -> None:
    for one, other in (("", "&branches=true"), ("&branches=true", "")):
        cursor = (await talk.get(f"/api/conversations/c1/posts?limit=1{one}")).json()["next"]
        answer = await talk.get(f"/api/conversations/c1/posts?cursor={cursor}{other}")
        assert (answer.status_code, answer.json()["where"]) == (400, "cursor")


def test_python_reads_pages_too() -> None:
    with BlockingCuebook.open() as cue:
        cue.append("c1", [Posted(sender="ann", message=f"I own {n} boats.", id=f"p{n}") for n in range(5)])
        first = cue.conversations.posts_page("c1", limit=3)
        second = cue.conversations.posts_page("c1", limit=3, cursor=first.cursor)
        assert [each.id for each in (*first.items, *second.items)] == [f"p{n}" for n in range(5)]
        assert second.cursor is None
        assert cue.conversations.ids("c1", second.items) == {3: "p2", 4: "p3", 5: "p4"}
        assert len(cue.conversations.rounds_page("c1", limit=2).items) == 2
        for read in (
            cue.conversations.posts_page,
            cue.conversations.rounds_page,
            cue.memory.items_page,
            cue.turns.page,
        ):
            with pytest.raises(InvalidInput, match="limit"):
                read("c1", limit=0)
            with pytest.raises(InvalidInput, match="cursor"):
                read("c1", cursor="elsewhere")
            with pytest.raises(NotFound):
                read("nowhere")
