"""Tests of the OpenAI Responses API with the real client and a scripted upstream or the configured model."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from upstream import Upstream

from conftest import Live, config
from cuebook.testing.doubles import ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import output_text, response, streamed_response

TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}


@pytest.fixture
def client(relayed: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{relayed.url}/v1", api_key="sk-theirs", max_retries=0) as http_client:
        yield http_client


@pytest.fixture
def local_client(serve_live: Callable[..., Live]) -> Iterator[openai.OpenAI]:
    """A client of a server that answers with its configured model."""
    live = serve_live(config(), model=ScriptedModel(default="Hello there."))
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as http_client:
        yield http_client


def sent_messages(upstream: Upstream) -> list[tuple[str, Any]]:
    return [(each["role"], each.get("content")) for each in upstream.last.fields["messages"]]


# ---- one answer


def test_response_is_created_and_retrieved(client: openai.OpenAI, upstream: Upstream) -> None:
    made = client.responses.create(
        model="plain", input="Hello you!", instructions="Be brief.", max_output_tokens=50, temperature=0.5,
        metadata={"app": "mine"}, reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}},
    )  # fmt: skip
    assert made.output_text == "You said 2 messages — “Hello you!”."
    assert (made.status, made.object, made.error, made.incomplete_details) == ("completed", "response", None, None)
    assert (made.instructions, made.temperature, made.metadata) == ("Be brief.", 0.5, {"app": "mine"})
    sent = upstream.last.fields
    assert upstream.last.path == "/v1/chat/completions"
    assert sent["messages"][0]["content"].endswith("Be brief.")
    assert sent["messages"][-1] == {"role": "user", "content": "Hello you!"}
    assert (sent["max_completion_tokens"], sent["temperature"], sent["reasoning_effort"]) == (50, 0.5, "low")
    schema = {"name": "x", "schema": {"type": "object"}, "strict": True}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert not {"input", "instructions", "text", "reasoning", "max_output_tokens"} & sent.keys()
    stored = client.responses.retrieve(made.id)
    assert (stored.id, stored.status, stored.output_text) == (made.id, "completed", made.output_text)
    assert stored.output == made.output
    assert (stored.usage, stored.metadata) == (made.usage, made.metadata)


def test_stream_has_every_event_in_order(client: openai.OpenAI, upstream: Upstream) -> None:
    events = list(client.responses.create(model="plain", input="Hi", stream=True))
    kinds = [event.type for event in events]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    first = ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    last = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert kinds == first + [each.type for each in deltas] + [f"response.{name}" for name in last]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in deltas) == "Grüße from upstream."
    done = events[-1]
    assert done.type == "response.completed"
    assert done.response.output_text == "Grüße from upstream."
    assert done.response.usage is not None
    assert (done.response.usage.input_tokens, done.response.usage.output_tokens) == (7, 5)
    assert client.responses.retrieve(done.response.id).output == done.response.output
    with client.responses.stream(
        model="plain", input="Hi"
    ) as stream:  # the response that the client builds from the events
        assert stream.get_final_response().output_text == "Grüße from upstream."


def test_interrupted_upstream_stream_fails_the_response(client: openai.OpenAI, upstream: Upstream) -> None:
    events = list(client.responses.create(model="half", input="Hi", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    stored = client.responses.retrieve(events[-1].response.id)
    assert stored.status == "failed"
    assert stored.output_text.startswith("Grüße from")


def test_upstream_error_is_forwarded(client: openai.OpenAI, upstream: Upstream) -> None:
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="limited", input="Hi")


# ---- continuing a conversation


def test_response_continues_another_and_can_branch(client: openai.OpenAI, upstream: Upstream) -> None:
    one = client.responses.create(model="plain", input="My name is Ann.")
    two = client.responses.create(model="plain", input="And I live in Oslo.", previous_response_id=one.id)
    assert two.previous_response_id == client.responses.retrieve(two.id).previous_response_id == one.id
    assert two.conversation == one.conversation
    texts = [("user", "My name is Ann."), ("assistant", one.output_text), ("user", "And I live in Oslo.")]
    assert [each for each in sent_messages(upstream) if each[0] != "system"][-3:] == texts
    client.responses.create(model="plain", input="No, in Rome.", previous_response_id=one.id)
    assert [each for each in sent_messages(upstream) if each[0] != "system"] == [*texts[:2], ("user", "No, in Rome.")]
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="plain", input="Hi", previous_response_id="resp_" + "W10")


def test_conversation_can_be_named(local_client: openai.OpenAI) -> None:
    one = local_client.responses.create(input="My name is Ann.", conversation="ann", model="any")
    two = local_client.responses.create(input="What is it?", conversation={"id": "ann"}, model="any")
    assert one.output_text == "Hello there."
    assert one.conversation is not None
    assert one.conversation.id == two.conversation.id == "ann"
    posts = httpx.get(str(local_client.base_url).replace("/v1/", "/api/conversations/ann/posts")).json()
    assert [post["message"] for post in posts["items"]] == [
        "My name is Ann.", "Hello there.", "What is it?", "Hello there.",
    ]  # fmt: skip
    events = list(local_client.responses.create(input="Again.", conversation="ann", model="any", stream=True))
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Hello there."


def test_function_call_and_output_continue_the_response(client: openai.OpenAI, upstream: Upstream) -> None:
    for stream in (False, True):
        if stream:
            events = list(client.responses.create(model="tools", input="Call f.", tools=[TOOL], stream=True))
            made = events[-1].response
            pieces = [event for event in events if event.type == "response.function_call_arguments.delta"]
            for done in (event for event in events if event.type == "response.function_call_arguments.done"):
                assert done.arguments == "".join(each.delta for each in pieces if each.item_id == done.item_id)
        else:
            made = client.responses.create(model="tools", input="Call f.", tools=[TOOL])
        assert upstream.last.fields["tools"][0] == {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False},
        }
        calls = [item for item in made.output if item.type == "function_call"]
        assert calls
        assert made.status == "completed"
        outputs: Any = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"result {n}"}
            for n, call in enumerate(calls)
        ]
        after = client.responses.create(model="plain", input=outputs, previous_response_id=made.id, tools=[TOOL])
        assert after.output_text.startswith("You said")
        messages = [each for each in upstream.last.fields["messages"] if each["role"] != "system"]
        assert [each["role"] for each in messages][-1 - len(calls) :] == ["assistant", *["tool"] * len(calls)]
        assert messages[-1]["content"] == f"result {len(calls) - 1}"
        assert [call["function"]["arguments"] for call in messages[-1 - len(calls)]["tool_calls"]] == [
            call.arguments for call in calls
        ]


def test_client_history_continues_the_conversation(client: openai.OpenAI, upstream: Upstream) -> None:
    history: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "My name is Ann."}]}]
    one = client.responses.create(model="plain", input=history, store=False)
    history += [item.model_dump(exclude_none=True) for item in one.output]
    history.append({"role": "user", "content": "What is it?"})
    two = client.responses.create(model="plain", input=history, store=False)
    assert one.conversation is not None
    assert two.conversation == one.conversation
    assert [each for each in sent_messages(upstream) if each[0] == "user"] == [
        ("user", "My name is Ann."), ("user", "What is it?"),
    ]  # fmt: skip


# ---- upstream and local requests


def test_request_that_continues_an_unknown_answer_is_forwarded_unchanged(
    client: openai.OpenAI, upstream: Upstream
) -> None:
    with pytest.raises(openai.NotFoundError, match="nothing here"):
        client.responses.create(model="plain", input="Hi", previous_response_id="resp_68a0theirs")
    assert upstream.last.path == "/v1/responses"
    assert upstream.last.fields == {"model": "plain", "input": "Hi", "previous_response_id": "resp_68a0theirs"}
    with pytest.raises(openai.NotFoundError, match="nothing here"):
        client.responses.retrieve("resp_68a0theirs")


def test_what_a_chat_completion_cannot_express_is_refused_by_name(client: openai.OpenAI, upstream: Upstream) -> None:
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "ZW5j"}
    for request, name in (
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"background": True}, "background"),
        ({"input": [compaction, {"role": "user", "content": "Hi"}]}, "compaction"),
    ):
        body: Any = {"model": "plain", "input": "Hi"} | request
        with pytest.raises(openai.BadRequestError, match=name):
            client.responses.create(**body)
    assert not upstream.received


@pytest.mark.parametrize("stream", [True, False])
def test_answer_names_what_a_chat_completion_cannot_express(relayed: Live, upstream: Upstream, *, stream: bool) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"}
    body: dict[str, Any] = {"model": "plain", "input": [thought, {"role": "user", "content": "Hi"}], "stream": stream}
    state = {"include": ["reasoning.encrypted_content"], "context_management": [{"type": "compaction"}]}
    state |= {"reasoning": {"effort": "low", "summary": "auto"}, "truncation": "disabled"}
    answer = httpx.post(f"{relayed.url}/v1/responses", json=body | state)
    assert upstream.last.fields["messages"] == [{"role": "user", "content": "Hi"}]
    assert answer.headers["x-cuebook-left-out"] == "context_management, include, input.reasoning, reasoning.summary"
    assert "x-cuebook-left-out" not in httpx.post(f"{relayed.url}/v1/responses", json=body | {"input": "Hi"}).headers


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": 1}]}, "input[0].content"),
        ({"conversation": "a", "previous_response_id": "b"}, "previous_response_id"),
        ({"conversation": 7}, "conversation"),
        ({"instructions": ["x"]}, "instructions"),
    ],
)
def test_unsupported_request_without_upstream_is_rejected(
    local_client: openai.OpenAI, fields: dict[str, Any], where: str
) -> None:
    body = {"model": "m", "input": "Hi"} | fields
    answer = httpx.post(f"{local_client.base_url}responses", content=json.dumps(body))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == where


def test_response_belongs_to_its_user(serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(), model=ScriptedModel(default="Hello there."))
    url = f"{live.url}/u/{{}}/v1"
    with openai.OpenAI(base_url=url.format("ann"), api_key="none", max_retries=0) as ann:
        made = ann.responses.create(model="m", input="Hi")
        assert ann.responses.retrieve(made.id).output_text == "Hello there."
    with openai.OpenAI(base_url=url.format("bob"), api_key="none", max_retries=0) as bob:
        with pytest.raises(openai.NotFoundError):
            bob.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            bob.responses.create(model="m", input="Hi", previous_response_id=made.id)


def test_idempotency_key_returns_the_same_response(client: openai.OpenAI, upstream: Upstream) -> None:
    same: Any = {"model": "plain", "input": "Hi", "extra_headers": {"Idempotency-Key": "k-1"}}
    one, two = client.responses.create(**same), client.responses.create(**same)
    assert (one.id, one.output_text) == (two.id, two.output_text)
    assert len(upstream.received) == 1


# ---- stored responses


def test_response_lists_its_input_items(client: openai.OpenAI) -> None:
    one = client.responses.create(model="plain", input="My name is Ann.", instructions="Be brief.")
    two = client.responses.create(
        model="plain", input=[{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "And you?"}],
        previous_response_id=one.id,
    )  # fmt: skip
    result = list(client.responses.input_items.list(two.id, order="asc", limit=2))
    assert [item.content[0].text for item in result if item.type == "message"] == [  # type: ignore[union-attr]
        "My name is Ann.", one.output_text, "Rhyme.", "And you?",
    ]  # fmt: skip
    assert result[1].id == one.output[0].id
    assert [each.id for each in client.responses.input_items.list(two.id)] == [each.id for each in result[::-1]]
    assert len(client.responses.input_items.list(one.id).data) == 1
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list(two.id, after=two.output[0].id + "0")


def test_instructions_apply_once_and_developer_messages_persist(client: openai.OpenAI, upstream: Upstream) -> None:
    one = client.responses.create(model="plain", input="Hi", instructions="Be brief.")
    developer_input: Any = [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "Hello"}]
    body: Any = {"model": "plain", "input": developer_input, "instructions": "Be long."}
    two = client.responses.create(**body, previous_response_id=one.id)
    assert "Be long." in str(sent_messages(upstream))
    client.responses.create(model="plain", input="Bye", previous_response_id=two.id)
    assert ("developer", "Rhyme.") in sent_messages(upstream)
    assert "Be " not in str(sent_messages(upstream))


def test_unstored_response_cannot_be_retrieved(client: openai.OpenAI) -> None:
    made = client.responses.create(model="plain", input="Hi", store=False)
    assert made.conversation is not None
    for ask in (
        lambda: client.responses.retrieve(made.id),
        lambda: client.responses.input_items.list(made.id),
        lambda: client.responses.create(model="plain", input="Hi", previous_response_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError, match="store: false"):
            ask()
    listed = client.conversations.items.list(made.conversation.id)
    assert [each.id for each in listed if each.type == "message" and each.role == "assistant"] == [made.output[0].id]


def test_items_can_be_referenced_by_id(client: openai.OpenAI, upstream: Upstream) -> None:
    one = client.responses.create(model="plain", input="My name is Ann.")
    named: Any = [
        {"role": "user", "content": "My name is Ann."}, {"type": "item_reference", "id": one.output[0].id},
        {"role": "user", "content": "What is it?"},
    ]  # fmt: skip
    two = client.responses.create(model="plain", input=named)
    assert two.conversation == one.conversation
    assert [each for each in sent_messages(upstream) if each[0] != "system"][1] == ("assistant", one.output_text)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="plain", input=[{"type": "item_reference", "id": one.output[0].id + "9"}])


def test_request_neither_side_can_answer_is_rejected(client: openai.OpenAI, upstream: Upstream) -> None:
    one = client.responses.create(model="plain", input="Hi")
    search: Any = {"model": "plain", "input": "Go on.", "tools": [{"type": "web_search"}]}
    for continued in ({"previous_response_id": one.id}, {"conversation": client.conversations.create().id}):
        with pytest.raises(openai.BadRequestError, match="web_search"):
            client.responses.create(**search, **continued)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(one.id)
    assert len(upstream.received) == 1
    with pytest.raises(openai.NotFoundError, match="nothing here"):
        client.responses.cancel("resp_68a0theirs")


def test_deleted_response_is_erased_with_its_input(client: openai.OpenAI, upstream: Upstream) -> None:
    one = client.responses.create(model="plain", input="My name is Ann.")
    named: Any = {"previous_response_id": one.id, "metadata": {"who": "Ann of Oslo"}}
    two = client.responses.create(model="plain", input="I live in Oslo.", **named)
    client.responses.delete(two.id)
    assert two.conversation is not None
    turns = httpx.get(str(client.base_url).replace("/v1/", f"/api/conversations/{two.conversation.id}/turns"))
    assert "Oslo" not in turns.text
    for ask in (
        lambda: client.responses.retrieve(two.id),
        lambda: client.responses.delete(two.id),
        lambda: client.responses.create(model="plain", input="Hi", previous_response_id=two.id),
    ):
        with pytest.raises(openai.NotFoundError, match="Unknown response"):
            ask()
    client.responses.create(model="plain", input="Who am I?", previous_response_id=one.id)
    texts = [("user", "My name is Ann."), ("assistant", one.output_text), ("user", "Who am I?")]
    assert [each for each in sent_messages(upstream) if each[0] != "system"] == texts
    many: Any = [{"role": "user", "content": f"I live in Oslo, in house {number}."} for number in range(250)]
    long = client.responses.create(model="plain", input=many)
    client.responses.delete(long.id)
    assert long.conversation is not None
    assert (
        "Oslo"
        not in httpx.get(str(client.base_url).replace("/v1/", f"/api/conversations/{long.conversation.id}/posts")).text
    ), "Every input post must be erased."
    made = client.conversations.create()
    named = client.responses.create(model="plain", input="Hi", conversation=made.id)
    with pytest.raises(openai.BadRequestError, match="Delete them there"):
        client.responses.delete(named.id)
    with pytest.raises(openai.NotFoundError, match="nothing here"):
        client.responses.delete("resp_68a0theirs")


# ---- An upstream with this API


REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "cnM="}
CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"}
FUNCTION = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c1",
    "name": "f",
    "arguments": "{}",
    "status": "completed",
}
COMPACTION = {"id": "cmp_1", "type": "compaction", "encrypted_content": "Y21w"}


@pytest.fixture
def native() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
def native_client(serve_live: Callable[..., Live], native: ScriptedUpstream) -> Iterator[openai.OpenAI]:
    live = serve_live(config(responses="auto"), upstream=native)
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="sk-theirs", max_retries=0) as http_client:
        yield http_client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [FUNCTION, CUSTOM])
def test_calls_and_reasoning_continue_by_id(
    native_client: openai.OpenAI, native: ScriptedUpstream, asked: dict[str, Any], *, stream: bool
) -> None:
    native.say((streamed_response if stream else response)("resp_theirs", REASONING, asked))
    tools: Any = [TOOL, {"type": "custom", "name": "sh"}, {"type": "web_search"}]
    fields: Any = {"model": "gpt-5.2", "tools": tools, "include": ["reasoning.encrypted_content"]}
    if stream:
        with native_client.responses.stream(input="Look.", **fields) as events:
            made: Any = events.get_final_response()
    else:
        made = native_client.responses.create(input="Look.", **fields)
    sent = native.sent()
    assert (native.requests[-1].path, sent["input"], sent["tools"]) == ("/responses", "Look.", tools)
    assert [item.type for item in made.output] == ["reasoning", asked["type"]]
    assert made.id != "resp_theirs"
    output: Any = [{"type": f"{asked['type']}_output", "call_id": "c1", "output": "Found."}]
    native.say(response("resp_2", output_text("It is there.")))
    after = native_client.responses.create(input=output, previous_response_id=made.id, **fields)
    assert (after.output_text, after.previous_response_id) == ("It is there.", made.id)
    assert native.sent()["input"][-3:] == [REASONING, asked, *output]
    assert native_client.responses.retrieve(made.id).output[0].encrypted_content == "cnM="  # type: ignore[union-attr]
    native_client.responses.delete(after.id)
    with pytest.raises(openai.NotFoundError):
        native_client.responses.retrieve(after.id)


def test_history_of_a_client_is_compacted_and_resent(native_client: openai.OpenAI, native: ScriptedUpstream) -> None:
    history: list[Any] = [{"role": "user", "content": "My name is Ann."}]
    native.say(response("resp_1", REASONING, output_text("Hello."), store=False))
    made = native_client.responses.create(model="gpt-5.2", input=history, store=False)
    assert made.id == "resp_1", "an answer that is not stored by the provider has its own id"
    history += [item.model_dump(exclude_none=True) for item in made.output]
    native.say(
        response("resp_2", history[0] | {"id": "msg_0", "type": "message"}, COMPACTION, object="response.compaction")
    )
    compacted = native_client.responses.with_raw_response.compact(model="gpt-5.2", input=history)
    assert native.sent()["input"] == history
    items: Any = json.loads(compacted.text)["output"]
    native.say(response("resp_3", output_text("Ann.")))
    after = native_client.responses.with_raw_response.create(
        model="gpt-5.2", input=[*items, {"role": "user", "content": "Who am I?"}]
    )
    assert native.sent()["input"][:-1] == items
    conversations = {each.headers["x-conversation-id"] for each in (compacted, after)}
    assert len(conversations) == 1


def test_conversation_keeps_the_items_of_the_provider(native_client: openai.OpenAI, native: ScriptedUpstream) -> None:
    made = native_client.conversations.create(items=[{"type": "message", "role": "user", "content": "I am Ann."}])
    native.say(response("resp_1", REASONING, output_text("Hello.")), response("resp_2", output_text("Ann.")))
    first = native_client.responses.create(model="gpt-5.2", input="Hi.", conversation=made.id)
    assert first.conversation is not None
    assert first.conversation.id == made.id
    second = native_client.responses.create(model="gpt-5.2", input="Who?", conversation=made.id)
    assert native.sent()["input"][2:4] == [REASONING, output_text("Hello.")]
    assert "conversation" not in native.sent()
    listed = native_client.conversations.items.list(made.id, order="asc").data
    assert [each.type for each in listed] == ["message", "message", "reasoning", "message", "message", "message"]
    native.say(response("resp_3", COMPACTION, object="response.compaction"))
    assert native_client.responses.compact(model="gpt-5.2", previous_response_id=second.id).output[0].id == "cmp_1"
    assert len(native.sent()["input"]) == len(listed), "the whole conversation is compacted"
    native_client.conversations.items.delete(listed[2].id or "", conversation_id=made.id)
    assert len(native_client.conversations.items.list(made.id).data) == 5, "the answer is deleted with its reasoning"


def test_compacting_needs_an_upstream_with_this_api(client: openai.OpenAI, local_client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no upstream can compact"):
        client.responses.compact(model="plain", input="Hi")
    with pytest.raises(openai.NotFoundError, match="no upstream can compact"):
        local_client.responses.compact(model="plain", input="Hi")
