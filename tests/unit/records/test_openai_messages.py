"""Tests of how OpenAI chat messages are parsed into posts, written back and digested."""

import json
from timeit import timeit

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.records.conversation import Part, Post
from cuebook.wire.chat_messages import (
    ROLES,
    MessageContent,
    ToolCall,
    canonical,
    digest,
    read_call,
    read_message,
    write_message,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORD = TEXT.filter(bool)
NAME = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
URL = st.sampled_from(["https://example.org/a.png", "data:image/png;base64,AAAA"])
TEXT_PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
USER_PART = st.one_of(
    TEXT_PART,
    st.fixed_dictionaries({"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": URL})}),
    st.fixed_dictionaries(
        {"type": st.just("input_audio"), "input_audio": st.fixed_dictionaries({"data": WORD, "format": st.just("wav")})}
    ),
    st.fixed_dictionaries({"type": st.just("file"), "file": st.fixed_dictionaries({"file_id": WORD})}),
    st.fixed_dictionaries({"type": st.just("video"), "video": JSON}),
)
CALL = st.fixed_dictionaries(
    {
        "id": WORD,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": NAME, "arguments": TEXT | JSON.map(json.dumps)}),
    }
)
MESSAGE = st.one_of(
    st.fixed_dictionaries(
        {"role": st.just("user"), "content": TEXT | st.lists(USER_PART, max_size=4)}, optional={"name": NAME}
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.none() | TEXT | st.lists(TEXT_PART, max_size=3)},
        optional={
            "tool_calls": st.lists(CALL, max_size=3),
            "refusal": st.none() | TEXT,
            "reasoning_content": TEXT,
            "audio": st.none() | st.fixed_dictionaries({"id": WORD, "transcript": TEXT}),
        },
    ),
    st.fixed_dictionaries({
        "role": st.just("tool"), "tool_call_id": WORD, "content": TEXT | st.lists(TEXT_PART, max_size=3),
    }),
    st.fixed_dictionaries({"role": st.sampled_from(["system", "developer"]), "content": TEXT}),
)  # fmt: skip


def post(message="", *parts, role="assistant", sender="assistant", state="complete"):
    return Post(
        id="p", seq=1, parent=0, round=1, sender=sender, recipient="user", role=role, message=message,
        created_at=0.0, tokens=1, parts=parts, state=state,
    )  # fmt: skip


def write_wire(*args, user=None, **kwargs):
    return json.loads(write_message(post(*args, **kwargs), user=user))


def have_equal_digests(one, other):
    return digest(read_message(one)) == digest(read_message(other))


@given(MESSAGE)
def test_bytes_and_mappings_are_parsed_alike(message):
    assert read_message(json.dumps(message).encode()) == read_message(message)


@given(MESSAGE)
@example({"role": "assistant", "content": None, "refusal": "no", "tool_calls": []})
@example(
    {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "https://x"}}, {"type": "text", "text": "a"}],
    }
)
def test_a_parsed_and_rewritten_message_means_the_same(message):
    said = read_message(message)
    sender = said.name or said.role
    again = write_message(post(said.message, *said.parts, role=said.role, sender=sender))
    assert canonical(read_message(again)) == canonical(said)


def _shuffled(value, draw):
    if isinstance(value, dict):
        return {key: _shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    return [_shuffled(item, draw) for item in value] if isinstance(value, list) else value


@given(MESSAGE, st.data(), st.sampled_from([None, 0, 3]))
def test_key_order_space_and_extra_fields_keep_the_digest(message, data, indent):
    resent = {**_shuffled(message, data.draw), "annotations": [], "id": "msg_1"}
    for field in ("refusal", "audio", "function_call"):
        resent.setdefault(field, None)
    if isinstance(content := resent.get("content"), str):
        resent["content"] = data.draw(st.sampled_from([content, [{"type": "text", "text": content}]]))
    if message["role"] == "assistant":
        resent.pop("reasoning_content", None)
        resent["name"] = data.draw(st.none() | NAME)
    assert have_equal_digests(json.dumps(resent, indent=indent).encode(), message)


@given(MESSAGE, MESSAGE)
def test_messages_of_different_text_or_role_differ(one, other):
    a, b = read_message(one), read_message(other)
    if (a.role, a.message) != (b.role, b.message):
        assert digest(a) != digest(b)


FIELDS = ["role", "content", "name", "tool_calls", "function_call", "refusal", "audio", "reasoning", "tool_call_id"]
INNER = ["type", "text", "image_url", "file", "input_audio", "function", "custom", "id", "url", "name", "arguments"]
ODD = st.recursive(
    JSON | st.sampled_from([*ROLES, *INNER]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4),
    max_leaves=8,
)


@given(st.builds(lambda message, field, value: {**message, field: value}, MESSAGE, st.sampled_from(FIELDS), ODD) | ODD)
@example({"role": "user", "content": [{"type": "text"}]})
@example({"role": "user", "content": [{"type": ["text"]}]})
@example({"role": "assistant", "tool_calls": [{"type": ["x"], "x": 1}]})
@example({"role": ["user"]})
def test_any_json_is_parsed_or_rejected_with_its_path(value):
    try:
        said = read_message(msgspec.json.encode(value), index=7)
    except InvalidInput as error:
        assert (error.where or "").startswith("messages[7]")  # noqa: PT017 - most JSON is rejected, some is parsed
        return
    assert len(digest(said)) == 16
    assert json.loads(write_message(post(said.message, *said.parts, role=said.role)))["role"] in ROLES


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
IMAGE_PART = Part("image_url", "https://example.org/a.png", {"detail": "low"})
CALL_X = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
CALL_X_PART = Part("function", '{"name":"find","arguments":"{\\"q\\": 1}"}', {"callId": "call_1", "name": "find"})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "user", "content": "hi"}, MessageContent("user", None, "hi")),
        ({"role": "user", "name": "ann", "content": "hi"}, MessageContent("user", "ann", "hi")),
        ({"role": "developer", "content": "be brief"}, MessageContent("system", None, "be brief")),
        ({"role": "user"}, MessageContent("user", None, "")),
        (
            {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
            MessageContent("user", None, "look", (IMAGE_PART,)),
        ),
        (
            {"role": "user", "content": [IMAGE, {"type": "text", "text": "look"}]},
            MessageContent("user", None, "look", (IMAGE_PART, Part("text", "look"))),
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}]},
            MessageContent("user", None, "a\nb", (Part("text", "a"), IMAGE_PART, Part("text", "b"))),
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}]},
            MessageContent("user", None, "", (Part("audio", "UklG", {"format": "wav"}),)),
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:x"}}]},
            MessageContent("user", None, "", (Part("file", "data:x", {"filename": "a.pdf", "source": "file_data"}),)),
        ),
        (
            {"role": "user", "content": [{"video": {"b": 1, "a": 2}, "type": "video"}]},
            MessageContent(
                "user",
                None,
                "",
                (Part("opaque", '{"type":"video","video":{"a":2,"b":1}}', {"originalType": "video", "in": "content"}),),
            ),
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL_X]},
            MessageContent("assistant", None, "", (CALL_X_PART,)),
        ),
        (
            {"role": "assistant", "content": "Let me see.", "reasoning_content": "hmm", "tool_calls": [CALL_X]},
            MessageContent(
                "assistant",
                None,
                "Let me see.",
                (Part("reasoning", "hmm", {"field": "reasoning_content"}), CALL_X_PART),
            ),
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
            },
            MessageContent(
                "assistant",
                None,
                "",
                (Part("function", '{"name":"sh","arguments":"ls"}', {"callId": "c", "name": "sh", "kind": "custom"}),),
            ),
        ),
        (
            {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": "{}"}},
            MessageContent(
                "assistant",
                None,
                "",
                (
                    Part(
                        "function",
                        '{"name":"find","arguments":"{}"}',
                        {"callId": "function:find", "name": "find", "legacy": True},
                    ),
                ),
            ),
        ),
        (
            {"role": "assistant", "content": None, "refusal": "I cannot."},
            MessageContent("assistant", None, "I cannot.", (Part("refusal", "I cannot."),)),
        ),
        (
            {"role": "assistant", "content": None, "audio": {"id": "audio_1", "data": "AAAA", "transcript": "Hello"}},
            MessageContent("assistant", None, "Hello", (Part("audio", "Hello", {"audioId": "audio_1"}),)),
        ),
        (
            {"role": "tool", "tool_call_id": "call_1", "content": "42"},
            MessageContent("tool", None, "42", (Part("execution_result", "", {"callId": "call_1"}),)),
        ),
        ({"role": "tool", "content": "42"}, MessageContent("tool", None, "42", (Part("execution_result", ""),))),
        (
            {"role": "function", "name": "find", "content": "42"},
            MessageContent(
                "tool", "find", "42", (Part("execution_result", "", {"callId": "function:find", "legacy": True}),)
            ),
        ),
    ],
)
def test_a_message_is_parsed_into_text_and_ordered_parts(message, said):
    assert read_message(message) == said


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"{", "messages[3]: invalid JSON"),
        (b'{"role": "user", "content": "\\ud800"}', "messages[3]: invalid JSON"),
        (b'{"a":' * 9000, "messages[3]: invalid JSON"),
        (b"[]", "messages[3]: expected an object, got list"),
        (b"{}", "messages[3].role: expected one of " + ", ".join(ROLES) + ", got None"),
        ({"role": "robot"}, "messages[3].role: expected one of " + ", ".join(ROLES) + ", got 'robot'"),
        ({"role": "user", "name": 1}, "messages[3].name: expected a string, got int"),
        ({"role": "user", "content": 1}, "messages[3].content: expected a string or a list of parts, got int"),
        ({"role": "user", "content": ["a"]}, "messages[3].content[0]: expected an object, got str"),
        ({"role": "assistant", "tool_calls": {}}, "messages[3].tool_calls: expected a list, got dict"),
        ({"role": "assistant", "tool_calls": [None]}, "messages[3].tool_calls[0]: expected an object, got NoneType"),
    ],
)
def test_an_unknown_form_is_rejected_with_its_field(raw, problem):
    with pytest.raises(InvalidInput) as caught:
        read_message(raw, index=3)
    assert str(caught.value).startswith(problem)
    assert caught.value.where == problem.partition(": ")[0]


def test_a_lone_surrogate_is_rejected_without_a_unicode_error():
    with pytest.raises(InvalidInput):
        digest(read_message({"role": "user", "content": "\ud800"}))


def _call(arguments, call="call_1", name="find"):
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}]}  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (_call('{"a": 1, "b": [2]}'), _call('{"b":[2],"a":1}'), True),  # clients parse arguments and serialize again
        (_call(""), _call("{}"), True),
        (_call({"a": 1}), _call('{"a":1}'), True),
        (_call('{"a": 1}'), _call('{"a": 2}'), False),
        (_call('{"a": 1'), _call('{"a":1'), False),  # not JSON: compared as text
        (_call("{}"), _call("{}", call="call_2"), False),
        (_call("{}"), _call("{}", name="seek"), False),
        (_call("{}"), {**_call("{}"), "content": ""}, True),
        ({"role": "user", "content": "a"}, {"role": "user", "name": "ann", "content": "a"}, False),
        ({"role": "user", "content": "a"}, {"role": "user", "name": "User", "content": "a"}, True),
        ({"role": "assistant", "content": "a"}, {"role": "assistant", "name": "ann", "content": "a"}, True),
        ({"role": "system", "content": "a"}, {"role": "developer", "content": "a"}, True),
        ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}, False),
        ({"role": "user", "content": "a"}, {"role": "user", "content": "a "}, True),
        (
            {"role": "user", "content": [IMAGE]},
            {"role": "user", "content": [{**IMAGE, "image_url": {"url": "https://b"}}]},
            False,
        ),
        (
            {"role": "user", "content": [IMAGE]},
            {"role": "user", "content": [{**IMAGE, "image_url": {"url": "https://example.org/a.png"}}]},
            True,
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": "a"},
            True,
        ),
        (
            {"role": "tool", "tool_call_id": "1", "content": "a"},
            {"role": "tool", "tool_call_id": "2", "content": "a"},
            False,
        ),
        (
            {"role": "tool", "tool_call_id": "1", "name": "find", "content": "a"},
            {"role": "tool", "tool_call_id": "1", "content": "a"},
            True,
        ),
        (
            {"role": "assistant", "content": "No.", "refusal": None},
            {"role": "assistant", "content": None, "refusal": "No."},
            False,
        ),
        (
            {"role": "assistant", "content": None, "audio": {"id": "x", "data": "AA", "transcript": "Hi"}},
            {"role": "assistant", "audio": {"id": "x"}},
            True,
        ),
        ({"role": "assistant", "content": "4", "reasoning": "2+2"}, {"role": "assistant", "content": "4"}, True),
        ({"role": "assistant", "content": "It is 4. \n"}, {"role": "assistant", "content": "It is 4."}, True),
        ({"role": "assistant", "content": "It is  4."}, {"role": "assistant", "content": "It is 4."}, False),
    ],
)
def test_the_digest_covers_only_the_content(one, other, equal):
    assert have_equal_digests(one, other) is equal


@pytest.mark.parametrize(
    ("part", "call"),
    [
        (CALL_X_PART, ToolCall("call_1", "find", '{"q": 1}')),
        (Part("function", '{"q": 1}', {"callId": "c", "name": "find"}), ToolCall("c", "find", '{"q": 1}')),
        (
            Part("function", '{"name": "find", "arguments": {"q": 1}}', {"callId": "c"}),
            ToolCall("c", "find", '{"q":1}'),
        ),
        (Part("function", "not json"), ToolCall("", "", "not json")),
        (Part("function", "[" * 9000, ["odd"]), ToolCall("", "", "[" * 9000)),
    ],
)
def test_calls_in_hand_written_posts_are_parsed(part, call):
    assert read_call(part) == call


def test_a_plain_post_is_written_as_compact_ordered_json():
    assert write_message(post("hi")) == b'{"role":"assistant","content":"hi"}'
    assert write_message(post("hi", role="user", sender="ann")) == b'{"role":"user","content":"hi","name":"ann"}'


@pytest.mark.parametrize(
    ("sender", "user", "expected"),
    [
        ("user", None, {"content": "hi"}),
        ("User", None, {"content": "hi"}),
        ("u1", "u1", {"content": "hi"}),
        ("ann", "u1", {"content": "hi", "name": "ann"}),
        ("Ann Lee", "u1", {"content": "Ann Lee: hi"}),
        ("Zoë", None, {"content": "Zoë: hi"}),
        ("a" * 65, None, {"content": "a" * 65 + ": hi"}),
        ("x\nsystem", None, {"content": "x system: hi"}),  # a name cannot forge a line
    ],
)
def test_other_speakers_are_written_with_their_name(sender, user, expected):
    assert write_wire("hi", role="user", sender=sender, user=user) == {"role": "user", **expected}


RESULT_PART = Part("execution_result", "", {"callId": "call_1"})


@pytest.mark.parametrize(
    ("given_post", "message"),
    [
        (post("a", role="summary", sender="summary"), {"role": "system", "content": "a"}),
        (post("a", role="system", sender="system"), {"role": "system", "content": "a"}),
        (post("", CALL_X_PART), {"role": "assistant", "content": None, "tool_calls": [CALL_X]}),
        (post("See.", CALL_X_PART), {"role": "assistant", "content": "See.", "tool_calls": [CALL_X]}),
        (
            post("42", RESULT_PART, role="tool", sender="tool"),
            {"role": "tool", "content": "42", "tool_call_id": "call_1"},
        ),
        (
            post("", Part("execution_result", "42", {"callId": "c"}), role="tool", sender="tool"),
            {"role": "tool", "content": "42", "tool_call_id": "c"},
        ),
        (
            post("", Part("code_error", "boom", {"callId": "c"}), role="user", sender="CodeInterpreter"),
            {"role": "tool", "content": "boom", "tool_call_id": "c"},
        ),
        (post("42", role="tool", sender="tool"), {"role": "user", "content": "42", "name": "tool"}),
        (
            post("look", IMAGE_PART, role="user", sender="Ann Lee"),
            {"role": "user", "content": [{"type": "text", "text": "Ann Lee: look"}, IMAGE]},
        ),
        (
            post("", IMAGE_PART, role="user", sender="Ann Lee"),
            {"role": "user", "content": [{"type": "text", "text": "Ann Lee:"}, IMAGE]},
        ),
        (post("", role="user", sender="user"), {"role": "user", "content": ""}),
        (post("Here.", IMAGE_PART), {"role": "assistant", "content": "Here.\n\n[image_url] https://example.org/a.png"}),
        (
            post("Here.", Part("image_url", "data:image/png;base64,AA")),
            {"role": "assistant", "content": "Here.\n\n[image_url]"},
        ),
        (
            post("Do it", Part("plan", "1. read"), Part("thought", "x"), role="user", sender="Planner"),
            {"role": "user", "content": "Do it\n\n[plan] 1. read\n\n[thought] x", "name": "Planner"},
        ),
        (
            post("Do it", Part("reasoning", "hm"), Part("shared_memory_entry", "{}")),
            {"role": "assistant", "content": "Do it"},
        ),
        (
            post("Do it", Part("opaque", "x", {"originalType": "board"}), role="user", sender="user"),
            {"role": "user", "content": "Do it\n\n[board] x"},
        ),
        (
            post("I cannot.", Part("refusal", "I cannot.")),
            {"role": "assistant", "content": None, "refusal": "I cannot."},
        ),
        (
            post("Hi", Part("audio", "Hi", {"audioId": "a1"})),
            {"role": "assistant", "content": None, "audio": {"id": "a1"}},
        ),
        (post("I was sa", state="interrupted"), {"role": "assistant", "content": "I was sa\n\n[interrupted]"}),
        (post("", state="interrupted"), {"role": "assistant", "content": "[interrupted]"}),
        (
            post("See.", CALL_X_PART, state="interrupted"),  # the call has no result, so it is left out
            {"role": "assistant", "content": "See.\n\n[calling find]\n\n[interrupted]"},
        ),
        (
            post(
                "", Part("opaque", "not json", {"originalType": "video", "in": "content"}), role="user", sender="user"
            ),
            {"role": "user", "content": "[video] not json"},
        ),
    ],
)
def test_posts_without_a_wire_message_are_written_in_standard_form(given_post, message):
    assert json.loads(write_message(given_post)) == message


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": "{}"}},
        {"role": "function", "content": "42", "name": "find"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "a", "input": "b"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "mcp", "mcp": {"x": 1}}]},
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}}]},
        {"role": "user", "content": [{"type": "video", "video": {"url": "x"}}, {"type": "text", "text": "b"}]},
    ],
)
def test_unusual_messages_round_trip_unchanged(message):
    said = read_message(message)
    assert json.loads(write_message(post(said.message, *said.parts, role=said.role, sender="user"))) == message


def test_a_call_and_its_result_share_the_call_id():
    asked = read_message({"role": "assistant", "function_call": {"name": "find", "arguments": "{}"}})
    answered = read_message({"role": "function", "name": "find", "content": "42"})
    assert post("42", *answered.parts, role="tool").result_of == asked.parts[0].extra["callId"]


def test_plain_posts_are_written_at_100_000_a_second():
    plain = post("What did we decide about the budget in March? " * 5)
    assert min(timeit(lambda: write_message(plain), number=5_000) for _ in range(5)) < 0.05
