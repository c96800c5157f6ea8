"""Input no client would send: answered with what is wrong about it, never with a fault of ours."""

import base64
from typing import Any

import httpx
import pytest
from shared_app import app_of

from conftest import config
from cuebook import Cuebook
from cuebook.testing.doubles import ScriptedModel

ODD: list[Any] = [["user"], {"a": 1}, 5, None]


async def asked(client: httpx.AsyncClient) -> tuple[str, str]:
    """Ask once; gives the answer's id and its conversation."""
    answer = (await client.post("/v1/responses", json={"model": "m", "input": "Hi"})).json()
    return answer["id"], answer["conversation"]["id"]


@pytest.mark.parametrize("odd", ODD)
async def test_types_and_roles_that_are_no_texts(client: httpx.AsyncClient, odd: Any) -> None:
    """What is looked up by a field of a request may be of any type."""
    part = {"role": "user", "content": [{"type": odd, "text": "x"}]}
    chat = await client.post("/v1/chat/completions", json={"model": "m", "messages": [part]})
    assert chat.status_code == 200, chat.text  # the upstream's to judge
    for path, field in (("/v1/responses", "input"), ("/v1/conversations", "items")):
        for item in (part, {"role": odd, "content": "x"}, {"type": odd or ["x"], "role": "user", "content": "x"}):
            answer = await client.post(path, json={"model": "m", field: [item]})
            assert answer.status_code == 400, (path, item, answer.text)
            assert answer.json()["error"]["param"].startswith(f"{field}[0]")


@pytest.mark.parametrize("when", ["²", "①", "9" * 400, "9" * 4_500, "9" * 18, 10**30, "\x01"])
async def test_times_that_are_none(client: httpx.AsyncClient, when: str | int) -> None:
    """Some digits are no number to anybody else, and some numbers are no turn's."""
    await client.post("/api/chat", json={"message": "Hi", "conversationId": "c"})
    answers = [await client.post("/api/conversations/c/turns/1/replay", json={"asOf": when})]
    address = "/page/conversations/c/turns/1/what-if"
    answers += [await client.get(address, params={"asOf": when}), await client.post(address, data={"asOf": str(when)})]
    assert {answer.status_code for answer in answers} <= {400, 404}, [answer.text for answer in answers]


async def test_an_answer_has_one_id(client: httpx.AsyncClient) -> None:
    """Its step is not counted from the end."""
    kept, conversation = await asked(client)
    for step, status in ((1, 200), (0, 404), (-1, 404), (2, 404), (10**30, 404)):
        name = base64.urlsafe_b64encode(f'["{conversation}",1,{step}]'.encode()).decode().rstrip("=")
        assert (f"resp_{name}" == kept) == (step == 1)
        assert (await client.get(f"/v1/responses/resp_{name}")).status_code == status


async def test_references_say_no_more_than_a_request_may() -> None:
    """A name is short, what it names is not: a small request would else become one of any size."""
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
