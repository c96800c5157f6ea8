"""Tests of the OpenAI Conversations API with the real client."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from api_keys import served
from upstream import Upstream

from conftest import Live, config
from cuebook.testing.doubles import ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import call, completion

ITEMS: Any = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": [{"type": "input_text", "text": "Look:"},
                                 {"type": "input_image", "image_url": "data:image/png;base64,aaaa", "detail": "low"}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Noted.", "annotations": []}]},
]  # fmt: skip


@pytest.fixture
def live(serve_live: Callable[..., Live]) -> Live:
    return serve_live(config(), model=ScriptedModel(default="Hello there."))


@pytest.fixture
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as http_client:
        yield http_client


def type_and_text(item: Any) -> tuple[str, str]:
    """Return the role or type of an item and its text."""
    if item.type == "message":
        return item.role, item.content[0].text
    return item.type, item.arguments if item.type == "function_call" else item.output


def test_conversation_is_created_updated_and_deleted(live: Live, client: openai.OpenAI) -> None:
    made = client.conversations.create(metadata={"topic": "demo"})
    assert (made.object, made.metadata, made.id[:7]) == ("conversation", {"topic": "demo"}, "conv_cb")
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.items.list(made.id).data == []
    assert client.conversations.update(made.id, metadata={"done": "1"}).metadata == {"done": "1"}
    client.conversations.items.create(made.id, items=[{"role": "user", "content": "My cat is called Miso."}])
    result = httpx.get(f"{live.url}/api/conversations/{made.id}").json()
    assert (result["lastSeq"], result["metadata"]["clientMetadata"]) == (1, {"done": "1"})
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    assert live.ask_cue(live.cue.memory.receipts)[0].counts["posts"] == 1
    for ask in (
        lambda: client.conversations.retrieve(made.id),
        lambda: client.conversations.update(made.id, metadata=None),
        lambda: client.conversations.items.create(made.id, items=ITEMS[:1]),
        lambda: client.responses.create(model="m", input="Hi", conversation=made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()
    assert httpx.get(f"{live.url}/api/conversations/{made.id}").status_code == 404  # no request recreated it


def test_items_are_returned_unchanged(client: openai.OpenAI) -> None:
    made = client.conversations.create(items=ITEMS)
    result = list(client.conversations.items.list(made.id, order="asc", limit=2))
    assert [type_and_text(each) for each in result] == [
        ("developer", "Be kind."), ("user", "Look:"), ("function_call", "{}"), ("function_call_output", "42"),
        ("assistant", "Noted."),
    ]  # fmt: skip
    assert result[1].to_dict()["content"][1] == ITEMS[1]["content"][1]  # type: ignore[index]
    newest_first = client.conversations.items.list(made.id, limit=3)
    assert [each.id for each in newest_first.data] == [each.id for each in result[:1:-1]]
    assert newest_first.has_more
    assert newest_first.last_id == result[2].id
    assert [each.id for each in newest_first] == [each.id for each in result[::-1]]
    assert client.conversations.items.retrieve(result[3].id, conversation_id=made.id) == result[3]
    added = client.conversations.items.create(made.id, items=[{"role": "user", "content": "Bye."}])
    assert [type_and_text(each) for each in added.data] == [("user", "Bye.")]
    assert client.conversations.items.list(made.id, limit=1).data == added.data


@pytest.mark.parametrize("stream", [False, True])
def test_responses_continue_the_conversation_and_are_listed(client: openai.OpenAI, *, stream: bool) -> None:
    made = client.conversations.create(items=[{"role": "user", "content": "My cat is called Miso."}])
    body: Any = {"model": "m", "input": "What is it called?", "conversation": made.id}
    if stream:
        answer: Any = list(client.responses.create(**body, stream=True))[-1].response
    else:
        answer = client.responses.create(**body)
    assert answer.conversation.id == made.id
    listed = client.conversations.items.list(made.id, order="asc").data
    assert [type_and_text(each) for each in listed] == [
        ("user", "My cat is called Miso."), ("user", "What is it called?"), ("assistant", "Hello there."),
    ]  # fmt: skip
    assert listed[-1].id == answer.output[0].id
    assert client.conversations.items.retrieve(answer.output[0].id, conversation_id=made.id) == listed[-1]


def test_tool_calls_of_an_answer_are_separate_items(
    relayed: Live, upstream: Upstream, openai_of: Callable[..., openai.OpenAI]
) -> None:
    client = openai_of(relayed)
    made = client.conversations.create()
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    answer = client.responses.create(model="tools", input="Weather?", conversation=made.id, tools=[tool])
    outputs: Any = [
        {"type": "function_call_output", "call_id": each.call_id, "output": "rain"}
        for each in answer.output
        if each.type == "function_call"
    ]
    client.responses.create(model="plain", input=outputs, conversation=made.id, tools=[tool])
    listed = client.conversations.items.list(made.id, order="asc").data
    kinds = ["message", "function_call", "function_call", "function_call_output", "function_call_output", "message"]
    assert [each.type for each in listed] == kinds
    assert [each.id for each in listed[1:3]] == [each.id for each in answer.output]


def test_unknown_conversation_is_requested_from_the_upstream(
    relayed: Live, upstream: Upstream, openai_of: Callable[..., openai.OpenAI]
) -> None:
    client = openai_of(relayed)
    theirs = "conv_" + "5a" * 24
    for ask in (
        lambda: client.conversations.retrieve(theirs),
        lambda: client.conversations.items.list(theirs),
        lambda: client.responses.create(model="plain", input="Hi", conversation=theirs),
    ):
        before = len(upstream.received)
        with pytest.raises(openai.NotFoundError, match="nothing here"):
            ask()
        assert len(upstream.received) == before + 1
    ours = client.conversations.create().id
    client.conversations.delete(ours)
    with pytest.raises(openai.NotFoundError, match="Unknown conversation"):
        client.conversations.retrieve(ours)


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("conversations", {"items": [{"role": "user", "content": "x"}] * 21}, "items"),
        ("conversations", {"items": [{"role": "user", "content": "x"}, {"type": "web_search_call"}]}, "items[1].type"),
        ("conversations", {"metadata": {"a": 1}}, "metadata.a"),
        ("conversations", {"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ("conversations/{}/items", {"items": []}, "items"),
        ("conversations/{}/items?limit=101", None, "limit"),
        ("conversations/{}/items?order=up", None, "order"),
    ],
)
def test_invalid_request_error_names_the_field(client: openai.OpenAI, path: str, body: Any, where: str) -> None:
    made = client.conversations.create()
    url = f"{client.base_url}{path.format(made.id)}"
    answer = httpx.get(url) if body is None else httpx.post(url, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == where


def test_idempotency_key_adds_items_once(client: openai.OpenAI) -> None:
    key: Any = {"extra_headers": {"Idempotency-Key": "k-1"}}
    one, two = (client.conversations.create(items=ITEMS[:1], **key) for _ in range(2))
    assert one == two
    key = {"extra_headers": {"Idempotency-Key": "k-2"}}
    added = [client.conversations.items.create(one.id, items=ITEMS[:2], **key) for _ in range(2)]
    assert added[0].data == added[1].data
    assert len(client.conversations.items.list(one.id).data) == 3
    with pytest.raises(openai.UnprocessableEntityError):
        client.conversations.items.create(one.id, items=ITEMS[:1], **key)


def test_deleting_an_item_erases_its_derived_data(
    serve_live: Callable[..., Live], upstream: Upstream, tmp_path: Path, openai_of: Callable[..., openai.OpenAI]
) -> None:
    live = serve_live(config(store=str(tmp_path / "cuebook.db"), upstream=upstream.url))
    client = openai_of(live)
    made = client.conversations.create(items=[{"role": "user", "content": "The code is Wolpertinger."}])
    for question, instruction in (
        ("What is the Wolpertinger code?", "Hunt the Tatzelwurm."),
        ("And now?", "Be brief."),
    ):
        client.responses.create(model="plain", input=question, instructions=instruction, conversation=made.id)
    listed = client.conversations.items.list(made.id, order="asc").data
    for named in ("The code is", "What is the", "You said 3 messages"):
        [item] = [each for each in listed if type_and_text(each)[1].startswith(named)]
        assert item.id
        assert client.conversations.items.delete(item.id, conversation_id=made.id).id == made.id
        with pytest.raises(openai.NotFoundError):
            client.conversations.items.retrieve(item.id, conversation_id=made.id)
        with pytest.raises(openai.NotFoundError):
            client.conversations.items.delete(item.id, conversation_id=made.id)
    assert live.ask_cue(live.cue.memory.receipts)[0].state == "done"
    files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert not any(word in files for word in (b"Wolpertinger", b"Tatzelwurm"))
    assert b"Be brief." in files
    left = client.conversations.items.list(made.id, order="asc").data
    assert [type_and_text(each)[1] for each in left] == ["And now?", type_and_text(listed[-1])[1]]
    client.responses.create(model="plain", input="Go on.", conversation=made.id)
    sent = [each["content"] for each in upstream.last.fields["messages"] if each["role"] != "system"]
    assert sent == ["[erased]"] * 3 + ["And now?", type_and_text(listed[-1])[1], "Go on."]


def test_deleting_an_output_deletes_its_tool_call(client: openai.OpenAI, live: Live) -> None:
    made = client.conversations.create(items=[*ITEMS[:4], *ITEMS[2:4], {"role": "user", "content": "Thanks."}])
    listed = client.conversations.items.list(made.id).data
    for item in listed[:2]:  # the last message, then an output: its round has the same call twice
        client.conversations.items.delete(item.id or "", conversation_id=made.id)
    left = client.conversations.items.list(made.id, order="asc").data
    assert [type_and_text(each)[0] for each in left] == ["developer", "user"]
    posts = live.ask_cue(lambda: live.cue.conversations.posts(made.id))
    assert [post.message for post in posts] == ["Be kind.", "Look:"]  # the head moved back


async def test_conversation_of_another_user_is_not_found() -> None:
    async with served() as keyed:
        ann, bob = await keyed.client_as("editor", "ann"), await keyed.client_as("editor", "bob")
        viewer = await keyed.client_as("viewer", "ann")
        made = (await ann.post("/v1/conversations", json={"items": ITEMS[:2]})).json()["id"]
        path = f"/v1/conversations/{made}"
        assert (await viewer.get(f"{path}/items")).json()["data"][0]["type"] == "message"
        assert (await viewer.post(f"{path}/items", json={"items": ITEMS[:1]})).status_code == 403
        item = (await ann.get(f"{path}/items")).json()["last_id"]
        for method, address, body in (
            ("GET", path, None), ("POST", path, {"metadata": {}}), ("DELETE", path, None),
            ("GET", f"{path}/items", None),
            ("POST", f"{path}/items", {"items": ITEMS[:1]}), ("GET", f"{path}/items/{item}", None),
            ("DELETE", f"{path}/items/{item}", None),
        ):  # fmt: skip
            answer = await bob.request(method, address, json=body)
            assert answer.status_code == 404, (method, address)
        assert (await ann.get(path)).json()["metadata"] == {}


def test_conversation_without_owner_belongs_to_its_first_user(live: Live, client: openai.OpenAI) -> None:
    made = client.conversations.create()
    client.responses.create(model="m", input="Hi", conversation=made.id, user="ann")
    assert httpx.get(f"{live.url}/api/conversations/{made.id}").json()["userId"] == "ann"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="m", input="Hi", conversation=made.id, user="bob")


def test_client_that_adds_items_itself_keeps_one_conversation(serve_live: Callable[..., Live]) -> None:
    """Act like a session of the Agents SDK: add the input before each call and the output after it."""
    upstream = ScriptedUpstream(completion("", calls=[call("c1", "look"), call("c2", "look")]), completion("42."))
    live = serve_live(config(), upstream=upstream)
    tool: Any = {"type": "function", "name": "look", "parameters": {}, "strict": False}
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        made = client.conversations.create(items=[])
        messages: list[Any] = [{"role": "user", "content": "Look twice."}]
        client.conversations.items.create(made.id, items=messages)
        first = client.responses.create(model="m", input=messages, tools=[tool])
        asked = [each.model_dump(exclude={"id"}) for each in first.output]
        tool_outputs = [{"type": "function_call_output", "call_id": name, "output": name} for name in ("c1", "c2")]
        added = client.conversations.items.create(made.id, items=asked + tool_outputs)
        assert [each.type for each in added.data] == ["function_call"] * 2 + ["function_call_output"] * 2
        last = client.responses.create(model="m", input=messages + asked + tool_outputs, tools=[tool])
        output_items: Any = [each.model_dump(exclude={"id"}) for each in last.output]
        added = client.conversations.items.create(made.id, items=output_items)
        listed = client.conversations.items.list(made.id, order="asc").data
        assert listed[-1].id == added.data[0].id == last.output[0].id, "The answer must be stored once."
        assert [type_and_text(each)[1] for each in listed] == ["Look twice.", "{}", "{}", "c1", "c2", "42."]
        client.conversations.items.create(made.id, items=[*output_items, {"role": "user", "content": "Thanks."}])
        assert len(client.conversations.items.list(made.id).data) == 7, "The new item after it must be added."
    [conversation] = live.ask_cue(live.cue.conversations.list).items
    assert conversation.id == made.id
    [turn] = live.ask_cue(lambda: live.cue.turns.list(made.id))
    assert (turn.state, len(turn.steps)) == ("finished", 2), "The added results must continue the open turn."


def test_request_matching_two_conversations_continues_neither(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    made = [client.conversations.create(items=messages) for _ in range(2)]
    answer = client.responses.create(model="m", input=messages)
    assert answer.conversation
    assert answer.conversation.id not in {each.id for each in made}
    assert all(len(client.conversations.items.list(each.id).data) == 1 for each in made)
