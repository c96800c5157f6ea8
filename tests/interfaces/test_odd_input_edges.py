"""Tests of unusual input: the server answers with a client error, never with a server error."""

import base64
from typing import Any

import httpx
import pytest
from shared_app import app_of

from conftest import config
from cuebook import Cuebook
from cuebook.testing.doubles import ScriptedModel

ODD: list[Any] = [["user"], {"a": 1}, 5, None]


async def create_response(client: httpx.AsyncClient) -> tuple[str, str]:
    """Create a response. Return its ID and the ID of its conversation."""
    answer = (await client.post("/v1/responses", json={"model": "m", "input": "Hi"})).json()
    return answer["id"], answer["conversation"]["id"]


@pytest.mark.parametrize("odd", ODD)
async def test_types_and_roles_must_be_strings(client: httpx.AsyncClient, odd: Any) -> None:
    """A request field that selects a handler can have any JSON type."""
    part = {"role": "user", "content": [{"type": odd, "text": "x"}]}
    chat = await client.post("/v1/chat/completions", json={"model": "m", "messages": [part]})
    assert chat.status_code == 200, chat.text  # the upstream validates it
    for path, field in (("/v1/responses", "input"), ("/v1/conversations", "items")):
        for item in (part, {"role": odd, "content": "x"}, {"type": odd or ["x"], "role": "user", "content": "x"}):
            answer = await client.post(path, json={"model": "m", field: [item]})
            assert answer.status_code == 400, (path, item, answer.text)
            assert answer.json()["error"]["param"].startswith(f"{field}[0]")


@pytest.mark.parametrize("when", ["²", "①", "9" * 400, "9" * 4_500, "9" * 18, 10**30, "\x01"])
async def test_invalid_as_of_values_are_rejected(client: httpx.AsyncClient, when: str | int) -> None:
    """Some Unicode digits are not numbers, and some numbers are not valid turns."""
    await client.post("/api/chat", json={"message": "Hi", "conversationId": "c"})
    answers = [await client.post("/api/conversations/c/turns/1/replay", json={"asOf": when})]
    address = "/page/conversations/c/turns/1/what-if"
    answers += [await client.get(address, params={"asOf": when}), await client.post(address, data={"asOf": str(when)})]
    assert {answer.status_code for answer in answers} <= {400, 404}, [answer.text for answer in answers]


async def test_response_has_exactly_one_id(client: httpx.AsyncClient) -> None:
    """A negative step does not count from the end."""
    stored, conversation = await create_response(client)
    for step, status in ((1, 200), (0, 404), (-1, 404), (2, 404), (10**30, 404)):
        name = base64.urlsafe_b64encode(f'["{conversation}",1,{step}]'.encode()).decode().rstrip("=")
        assert (f"resp_{name}" == stored) == (step == 1)
        assert (await client.get(f"/v1/responses/resp_{name}")).status_code == status


async def test_item_references_count_toward_the_body_limit() -> None:
    """Short references to long items must not make a small request arbitrarily large."""
    async with Cuebook.open(config(max_v1_body=20_000), model=ScriptedModel(default="Hi.")) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            long = {"role": "user", "content": "word " * 1_000}
            made = (await client.post("/v1/conversations", json={"items": [long]})).json()["id"]
            [item] = (await client.get(f"/v1/conversations/{made}/items")).json()["data"]
            named = {"type": "item_reference", "id": item["id"]}
            statuses = [
                (await client.post("/v1/responses", json={"model": "m", "input": [named] * many})).status_code
                for many in (3, 5)
            ]
            assert statuses == [200, 413]
