"""Tests of pagination: pages form the whole list, and invalid limits and cursors are rejected."""

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
    "posts?branches=all",
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
async def seeded_client(client: httpx.AsyncClient, cue: Cuebook, model: ScriptedModel) -> httpx.AsyncClient:
    """A client of a conversation with two branches, five turns (one failed) and memories."""
    for n, fact in enumerate(FACTS):
        if n == 2:
            model.say(Script(error=UpstreamError("the model broke", status=503)))
        await client.post("/api/chat", json={"message": fact, "conversationId": "c1", "userId": "ann"})
    side = {"posts": [{"id": f"s{n}", "sendFrom": "ann", "message": f"Side {n}"} for n in range(3)]}
    first = (await client.get("/api/conversations/c1/posts")).json()["items"][0]
    side["posts"][0]["parent"] = first["id"]
    assert (await client.post("/api/conversations/c1/posts", json=side)).status_code == 201
    last = (await client.get("/api/conversations/c1/posts?branches=all")).json()["items"][-4]
    assert (await client.put("/api/conversations/c1/head", json={"postId": last["id"]})).status_code == 200
    return client


async def pages(client: httpx.AsyncClient, name: str, limit: int) -> list[list[dict[str, Any]]]:
    results, cursor = [], None
    while True:
        params = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        answer = await client.get(httpx.URL(f"/api/conversations/c1/{name}").copy_merge_params(params))
        assert answer.status_code == 200, answer.text
        fields = answer.json()
        assert set(fields) <= {"items", "next"}
        results.append(fields["items"])
        if (cursor := fields.get("next")) is None:
            return results


@pytest.mark.parametrize("name", LISTS)
async def test_pages_form_the_whole_list(seeded_client: httpx.AsyncClient, name: str) -> None:
    whole = (await seeded_client.get(f"/api/conversations/c1/{name}")).json()
    assert set(whole) == {"items"}
    assert len(whole["items"]) >= 4, "The list must be long enough for several pages."
    for limit in (1, 2, 3, 200):
        result = await pages(seeded_client, name, limit)
        assert list(itertools.chain(*result)) == whole["items"]
        assert [len(page) for page in result[:-1]] == [limit] * (len(result) - 1)
        assert 0 < len(result[-1]) <= limit


async def test_page_names_parents_on_earlier_pages(seeded_client: httpx.AsyncClient) -> None:
    posts = (await seeded_client.get("/api/conversations/c1/posts")).json()["items"]
    assert [each["parent"] for each in posts] == [None, *(each["id"] for each in posts[:-1])]
    assert (await seeded_client.get("/api/conversations/c1/posts?last=2")).json()["items"] == posts[-2:]
    rounds = (await seeded_client.get("/api/conversations/c1/rounds?role=assistant")).json()["items"]
    assert all(post["parent"] for each in rounds for post in each["posts"] if post["seq"] > 1)


async def test_pages_stay_on_their_branch_when_the_head_moves(seeded_client: httpx.AsyncClient) -> None:
    whole = (await seeded_client.get("/api/conversations/c1/posts")).json()["items"]
    first = (await seeded_client.get("/api/conversations/c1/posts?limit=3")).json()
    await seeded_client.put("/api/conversations/c1/head", json={"postId": "s2"})
    more = {"limit": 200, "cursor": first["next"]}
    rest = (await seeded_client.get("/api/conversations/c1/posts", params=more)).json()
    assert first["items"] + rest["items"] == whole


async def test_cursor_without_limit_uses_the_default_page_size(seeded_client: httpx.AsyncClient) -> None:
    posts = {"posts": [{"sendFrom": "ann", "message": f"Post {n}"} for n in range(120)]}
    await seeded_client.post("/api/conversations/c2/posts", json=posts)
    first = (await seeded_client.get("/api/conversations/c2/posts?limit=1")).json()
    second = (await seeded_client.get("/api/conversations/c2/posts", params={"cursor": first["next"]})).json()
    assert (len(second["items"]), second["items"][0]["seq"]) == (50, 2)


@pytest.mark.parametrize("name", ["posts", "rounds", "turns", "items"])
async def test_invalid_limits_and_cursors_name_their_field(seeded_client: httpx.AsyncClient, name: str) -> None:
    await seeded_client.post(
        "/api/conversations/c2/posts", json={"posts": [{"sendFrom": "ann", "message": "I like it."}] * 3}
    )
    url = f"/api/conversations/c1/{name}"
    other = {"posts": "rounds", "rounds": "posts", "turns": "posts", "items": "posts"}[name]
    good = (await seeded_client.get(f"{url}?limit=1")).json()["next"]
    others = (await seeded_client.get(f"/api/conversations/c1/{other}?limit=1")).json()["next"]
    forged = base64.urlsafe_b64encode(b'["posts",1,99999999999999999999,0]').decode()
    wrong = [("limit", each) for each in ("0", "-1", "1001", "x", "1.5")]
    wrong += [("cursor", each) for each in ("x", "%00", "ü", good[:-3], good + "AAAA", others, forged, "A" * 5000)]
    for field, value in wrong:
        answer = await seeded_client.get(url, params={field: value})
        assert (answer.status_code, answer.json()["where"]) == (400, field), (value, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    elsewhere = await seeded_client.get(f"/api/conversations/c2/{name}", params={"cursor": good})
    assert (elsewhere.status_code, elsewhere.json()["where"]) == (400, "cursor")
    assert (await seeded_client.get(f"{url}?limit=1&userId=bob")).status_code == 404
    if name in ("posts", "turns"):
        both = await seeded_client.get(f"{url}?limit=1&last=1")
        assert (both.status_code, both.json()["where"]) == (400, "last")


async def test_cursor_of_one_branch_is_invalid_for_all_branches(seeded_client: httpx.AsyncClient) -> None:
    for one, other in (("", "&branches=all"), ("&branches=all", "")):
        cursor = (await seeded_client.get(f"/api/conversations/c1/posts?limit=1{one}")).json()["next"]
        answer = await seeded_client.get(f"/api/conversations/c1/posts?cursor={cursor}{other}")
        assert (answer.status_code, answer.json()["where"]) == (400, "cursor")


def test_python_api_reads_pages() -> None:
    with BlockingCuebook.open() as cue:
        cue.append("c1", [Posted(sender="ann", message=f"I own {n} boats.", id=f"p{n}") for n in range(5)])
        first = cue.conversations.posts("c1", limit=3)
        second = cue.conversations.posts("c1", limit=3, cursor=first.next)
        assert [each.id for each in (*first.items, *second.items)] == [f"p{n}" for n in range(5)]
        assert second.next is None
        assert [each.parent for each in second] == ["p2", "p3"]
        assert len(cue.conversations.rounds("c1", limit=2).items) == 2
        for read in (
            cue.conversations.posts,
            cue.conversations.rounds,
            cue.memory.items,
            cue.turns.list,
        ):
            with pytest.raises(InvalidInput, match="limit"):
                read("c1", limit=0)
            with pytest.raises(InvalidInput, match="cursor"):
                read("c1", cursor="elsewhere")
            with pytest.raises(NotFound):
                read("nowhere")
