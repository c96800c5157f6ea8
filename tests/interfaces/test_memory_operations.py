"""Tests of operations on memories as Python calls, routes and commands: adding, the history, and refused arguments."""

import re
from typing import Any

import httpx
import pytest
from api_keys import served
from commands import CommandRunner

from cuebook import Cuebook, InvalidInput, NotFound

OLD, NEW = "The printer is on floor 3.", "The printer is on floor 4."


async def test_python_adds_memories_and_returns_their_history(cue: Cuebook) -> None:
    old = await cue.memory.add(OLD, key="printer")
    assert (old.scope, old.category, old.key, old.text, old.usage_count) == ("project", "domain", "printer", OLD, 1)
    new = await cue.memory.add(NEW, key="printer")
    assert new.id == old.id, "the newest statement has the key's ID"
    page = await cue.memory.history(new.id)
    assert [each.text for each in page] == [NEW, OLD]
    assert page[0].supersedes == page[1].id
    assert (page[0].valid_to, page[1].valid_to is None) == (None, False)
    assert await cue.memory.history(page[1].id) == page, "an old statement has the same history"
    tea = await cue.memory.add("Prefers tea.", user="ann")
    assert (tea.scope, tea.user_id, tea.category) == ("user", "ann", "user_preference")
    assert (await cue.memory.add("Prefers tea.", user="ann")).confidence == pytest.approx(tea.confidence + 0.1)
    assert [each.text for each in await cue.memory.history(tea.id, user="ann")] == ["Prefers tea."]
    for name, user in ((tea.id, "bob"), ("nowhere", None)):
        with pytest.raises(NotFound, match=f"Unknown memory '{name}'"):
            await cue.memory.history(name, user=user)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": 5}, "text: expected a string, got 5"),
        ({"text": ""}, "text: "),
        ({"text": " "}, "text: empty. Provide the text to remember."),
        ({"text": "x\x00"}, "text: "),
        ({"text": "x", "category": 5}, "category: expected a string, got 5"),
        ({"text": "x", "category": "colors"}, "category: unknown category 'colors'. Available: domain, "),
        ({"text": "x", "key": ["k"]}, "key: expected a string, got "),
        ({"text": "x", "user": 5}, "userId: expected a string, got 5"),
    ],
)
async def test_python_call_with_a_wrong_argument_is_refused_by_name(
    cue: Cuebook, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await cue.memory.add(**arguments)
    assert str(refused.value).startswith(message)
    assert refused.value.where == message.partition(":")[0]
    assert not await cue.memory.list()


async def test_limits_of_arguments_hold_in_python(cue: Cuebook) -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: cue.memory.list(limit=0), "limit: expected a whole number from 1 to 1,000, got 0"),
        (lambda: cue.memory.list(ended="yes"), "ended: expected true or false, got 'yes'"),
        (lambda: cue.memory.list(as_of="now"), "asOf: expected a number, got 'now'"),
        (lambda: cue.memory.put_knowledge("domain", "k", "v", confidence=2), "confidence: expected a number from 0 to"),
        (lambda: cue.memory.digest("c1", last=0), "last: expected a whole number from 1 to 1,000, got 0"),
        (lambda: cue.memory.compress(5), "text: expected a string, got 5"),
    ]
    for call, message in wrong:
        with pytest.raises(InvalidInput) as refused:
            await call()
        assert str(refused.value).startswith(message)
    with pytest.raises(TypeError, match="colour"):
        await cue.memory.add("x", colour="red")  # type: ignore[call-arg]


async def test_routes_add_memories_and_return_their_history(client: httpx.AsyncClient) -> None:
    added = [
        await client.post("/api/memories", json={"text": text, "key": "printer", "userId": "ann"})
        for text in (OLD, NEW)
    ]
    assert [each.status_code for each in added] == [201, 201]
    new = added[1].json()
    assert (new["scope"], new["userId"], new["text"], new["usageCount"]) == ("user", "ann", NEW, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", new["validFrom"])
    assert (await client.get(f"/api/memories/{new['id']}?userId=ann")).json() == new
    answer = await client.get(f"/api/memories/{new['id']}/history?userId=ann")
    assert answer.status_code == 200
    now, before = answer.json()["items"]
    assert (now, before["text"], now["supersedes"]) == (new, OLD, before["id"])
    assert before["validTo"] == now["validFrom"]
    assert (await client.get(f"/api/memories/{new['id']}/history?userId=bob")).status_code == 404


async def test_route_refuses_unknown_and_wrong_fields_by_name(client: httpx.AsyncClient) -> None:
    for body, where in (
        ({"text": "x", "colour": "red"}, "colour"),
        ({"text": "x", "user": "ann"}, "user"),
        ({"text": 5}, "text"),
        ({"text": ""}, "text"),
        ({"key": "k"}, "text"),
        ({"text": "x", "category": "colors"}, "category"),
    ):
        answer = await client.post("/api/memories", json=body)
        assert (answer.status_code, answer.json()["where"]) == (400, where), answer.text
    unknown = await client.get("/api/memories?colour=red")
    assert (unknown.status_code, unknown.json()["where"]) == (400, "colour")
    assert (await client.get("/api/memories")).json() == {"items": []}


async def test_route_with_an_idempotency_key_adds_once(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k1"}
    first, repeat = [
        await client.post("/api/memories", json={"text": OLD, "userId": "ann"}, headers=headers) for _ in range(2)
    ]
    assert (repeat.status_code, repeat.json()) == (first.status_code, first.json())
    assert (await client.get("/api/memories?userId=ann")).json()["items"] == [first.json()]
    other = await client.post("/api/memories", json={"text": NEW, "userId": "ann"}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "urn:cuebook:problem:idempotency-key-reused")


async def test_keys_of_other_users_add_and_read_nothing() -> None:
    async with served() as keyed:
        ann, bob = await keyed.client_as("editor", "ann"), await keyed.client_as("editor", "bob")
        viewer = await keyed.client_as("viewer", "ann")
        added = (await ann.post("/api/memories", json={"text": OLD})).json()
        assert added["userId"] == "ann"
        history = f"/api/memories/{added['id']}/history"
        assert [(await each.get(history)).status_code for each in (ann, viewer, bob)] == [200, 200, 404]
        for client, body in ((bob, {"text": OLD, "userId": "ann"}), (viewer, {"text": NEW})):
            assert (await client.post("/api/memories", json=body)).status_code == 403
        for path in ("/api/memories/search", "/api/memories"):
            body = {"query": "printer"} if path.endswith("search") else {"text": NEW}
            assert (await bob.post(path, json=body | {"userId": "ann"})).status_code == 403, path
        asked = {"query": "printer", "organizationId": "acme"}
        assert (await bob.post("/api/memories/search", json=asked)).status_code == 404
        assert [each.text for each in await keyed.cue.memory.list()] == [OLD]


@pytest.mark.slow
def test_commands_add_memories_and_print_their_history(here: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # a narrower table wraps the IDs
    added = here("memory", "add", OLD, "--key", "printer", "--user", "ann")
    name = added.split()[0]
    assert added.splitlines()[1] == f"printer: {OLD}"
    assert here.json("memory", "add", NEW, "--key", "printer", "--user", "ann")["id"] == name
    assert [each["text"] for each in here.json("memory", "history", name, "--user", "ann")["items"]] == [NEW, OLD]
    shown = here("memory", "history", name, "--user", "ann")
    assert "until" in shown
    assert "until" not in here("memory", "list", "--user", "ann"), "a column without values is omitted"
    assert "user ann" in here("memory", "list")
    assert f"Unknown memory '{name}'" in here("memory", "history", name, "--user", "bob", code=1)
    assert "unknown category 'colors'" in here("memory", "add", "x", "--category", "colors", code=1)
