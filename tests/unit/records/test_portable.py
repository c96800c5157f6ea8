"""Tests of the portable format: conversations, posts and experiences survive export and import."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import InvalidInput
from cuebook.records.conversation import PART_TYPES, Conversation, LoadedConversation, Part, Post, Round, SharedEntry
from cuebook.records.portable import (
    conversation_from_dict,
    conversation_to_dict,
    part_from_dict,
    part_to_dict,
    post_to_dict,
)

yaml = pytest.importorskip("yaml")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
NUMBER = st.integers(0, 2**63 - 1)
ORIGINAL = st.fixed_dictionaries(
    {"originalType": TEXT | st.sampled_from(["board", "plan", "init_plan", "sample"])}, optional={"extra": JSON}
)
PART = st.builds(Part, st.sampled_from(sorted(PART_TYPES)), TEXT, JSON | ORIGINAL, TEXT) | st.builds(
    Part, st.just("opaque"), TEXT, ORIGINAL, TEXT
)
POST = st.builds(
    Post, id=TEXT, seq=NUMBER, parent=NUMBER, round=NUMBER, sender=TEXT, recipient=TEXT, message=TEXT, created_at=FLOAT,
    tokens=NUMBER, parts=st.lists(PART, max_size=4).map(tuple), wire=st.none() | st.binary(max_size=20),
    digest=st.binary(max_size=16),
)  # fmt: skip
ROUND = st.builds(Round, id=TEXT, seq=NUMBER, user_query=TEXT, posts=st.lists(POST, max_size=2).map(tuple))
CONVERSATION = st.builds(
    Conversation, id=TEXT, user=st.none() | TEXT, persona=st.none() | TEXT, created_at=FLOAT, updated_at=FLOAT,
    no=NUMBER, head=NUMBER, last_seq=NUMBER, turns=NUMBER, generation=NUMBER,
    lease_until=FLOAT, participants=st.lists(TEXT, max_size=2).map(tuple),
    metadata=st.dictionaries(TEXT, JSON, max_size=2),
)  # fmt: skip
TRANSCRIPT = st.builds(
    LoadedConversation,
    conversation=CONVERSATION,
    rounds=st.lists(ROUND, max_size=2).map(tuple),
)
SENDER = TEXT | st.just(msgspec.UNSET)


def through_json(data):
    return json.loads(json.dumps(data))


def through_yaml(data):
    return yaml.safe_load(yaml.safe_dump(data))


WAYS = st.sampled_from([lambda data: data, through_json, through_yaml])


@given(PART, WAYS)
def test_a_part_round_trips(part, way):
    assert part_from_dict(way(part_to_dict(part))) == part


@given(TRANSCRIPT, WAYS)
def test_a_conversation_round_trips(transcript, way):
    assert conversation_from_dict(way(conversation_to_dict(transcript))) == transcript


@given(TRANSCRIPT)
def test_exported_dicts_contain_only_plain_values(transcript):
    def plain(value):
        if type(value) is dict:
            return all(type(key) is str and plain(item) for key, item in value.items())
        if type(value) is list:
            return all(map(plain, value))
        return value is None or type(value) in (str, int, float, bool)

    assert plain(conversation_to_dict(transcript))


#: What TaskWeaver's `Attachment.from_dict` accepts; it raises ValueError for anything else, `text` among it (measured).
D_READS = PART_TYPES - {"text", "reasoning", "file", "audio", "refusal", "opaque"}


@given(POST)
def test_taskweaver_accepts_every_exported_attachment_type(post):
    unknown = {part.extra["originalType"] for part in post.parts
               if isinstance(part.extra, dict) and "originalType" in part.extra}  # fmt: skip
    assert {part["type"] for part in post_to_dict(post)["attachment_list"]} <= D_READS | unknown


POST_A = Post(
    id="post-a", seq=3, parent=1, round=3, sender="User", recipient="Planner", role="user", message="hi",
    created_at=5.0, tokens=2, wire=b'{"role":"user","content":"hi"}', state="interrupted",
    parts=(Part("plan", "1. x", id="atta-1"), Part("text", "hi", id="atta-2"), Part("stop", "", {"a": 1}, "atta-3")),
)  # fmt: skip


def test_keys_are_taskweavers_and_ours_are_under_one_more():
    assert post_to_dict(POST_A) == {
        "id": "post-a",
        "message": "hi",
        "send_from": "User",
        "send_to": "Planner",
        "attachment_list": [
            {"id": "atta-1", "type": "plan", "content": "1. x", "extra": None},
            {"id": "atta-3", "type": "stop", "content": "", "extra": {"a": 1}},
        ],
        "cuebook": {
            "seq": 3,
            "parent": 1,
            "round": 3,
            "role": "user",
            "created_at": 5.0,
            "tokens": 2,
            "state": "interrupted",
            "wire": '{"role":"user","content":"hi"}',
            "parts": [{"at": 1, "id": "atta-2", "type": "text", "content": "hi", "extra": None}],
        },
    }
    round_ = Round(id="round-1", seq=3, user_query="hi", state="finished", posts=(POST_A,))
    conversation = Conversation(
        id="conv-1", no=1, user="u1", persona=None, participants=("u1",), head=3, last_seq=3, turns=1, generation=1,
        created_at=1.0, updated_at=2.0,
    )  # fmt: skip
    written = conversation_to_dict(LoadedConversation(conversation=conversation, rounds=(round_,)))
    assert list(written) == ["id", "plugins", "roles", "enabled", "rounds", "cuebook"]
    assert list(written["rounds"][0]) == ["id", "user_query", "state", "post_list", "cuebook"]
    assert written["cuebook"]["participants"] == ["u1"]


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ({"type": "text", "content": "a"}, Part("text", "a")),  # TaskWeaver raises "Deprecated attachment type: text"
        ({"type": "python", "content": "a"}, Part("reply_content", "a")),
        ({"type": "sample", "content": "a"}, Part("text", "a")),
        ({"type": "init_plan", "content": "a"}, None),
        ({"type": "board", "content": "a", "id": "atta-1"}, Part("opaque", "a", {"originalType": "board"}, "atta-1")),
        (
            {"type": "board", "content": "a", "extra": [1]},  # TaskWeaver raises ValueError
            Part("opaque", "a", {"originalType": "board", "extra": [1]}),
        ),
        ({"type": "artifact_paths", "content": ["a.png"]}, Part("artifact_paths", '["a.png"]')),
        ({"type": "stop"}, Part("stop", "")),
    ],
)
def test_old_renamed_removed_and_unknown_types_load(written, part):
    assert part_from_dict(written) == part


def test_an_unknown_type_is_exported_under_its_name():
    written = {"id": "atta-1", "type": "board", "content": "a", "extra": {"x": 1}}
    assert part_to_dict(part_from_dict(written)) == written


def test_removed_attachment_types_are_left_out_of_a_post():
    attachments = [{"type": "init_plan", "content": "x"}, {"type": "plan", "content": "y"}]
    written = {"send_from": "Planner", "message": "m", "attachment_list": attachments}
    [round_] = conversation_from_dict({"rounds": [{"post_list": [written]}]}).rounds
    assert round_.posts[0].parts == (Part("plan", "y"),)


def test_posts_of_a_taskweaver_file_are_numbered_in_order():
    examples = yaml.safe_load("""
        enabled: True
        plugins: []
        rounds:
          - user_query: count the rows
            state: finished
            post_list:
              - {message: count the rows, send_from: User, send_to: Planner, attachment_list: []}
              - message: Please count
                send_from: Planner
                send_to: CodeInterpreter
                attachment_list:
                  - {type: init_plan, content: gone}
                  - {type: plan, content: 1. count}
          - user_query: thanks
            post_list:
              - {message: thanks, send_from: User, send_to: Planner, attachment_list: }
    """)
    transcript = conversation_from_dict(examples)
    posts = [post for round_ in transcript.rounds for post in round_.posts]
    assert [(post.id, post.seq, post.parent, post.round, post.role) for post in posts] == [
        ("post-1", 1, 0, 1, "user"),
        ("post-2", 2, 1, 1, "assistant"),
        ("post-3", 3, 2, 3, "user"),
    ]
    assert [(round_.id, round_.seq, round_.state) for round_ in transcript.rounds] == [
        ("round-1", 1, "finished"),
        ("round-3", 3, "created"),
    ]
    assert transcript.conversation.head == transcript.conversation.last_seq == 3
    assert conversation_from_dict(conversation_to_dict(transcript)) == transcript


def test_yaml_dates_and_tuples_in_extra_become_plain():
    assert part_from_dict(yaml.safe_load("{type: stop, content: x, extra: {at: 2024-01-02}}")).extra == {
        "at": "2024-01-02"
    }
    assert part_to_dict(Part("stop", "x", {"a": (1, 2), 3: SharedEntry("plan", "round", "c")}))["extra"] == {
        "a": [1, 2],
        "3": {"type": "plan", "scope": "round", "content": "c", "id": ""},
    }


def _story(**post):
    good = {"id": "p", "send_from": "User", "message": "m", "attachment_list": []}
    return {"rounds": [{"post_list": []}, {"post_list": [good, {**good, **post}]}]}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"rounds": [{"state": "odd"}]}, "rounds[0].state: unknown value 'odd'. Available: created, failed, finished."),
        ({"rounds": [{"cuebook": {"seq": "x"}}]}, "rounds[0].cuebook.seq: expected a whole number"),
        ({"cuebook": {"participants": [1]}}, "cuebook.participants[0]: expected a string, got 1"),
        (_story(send_from=1), "rounds[1].post_list[1].send_from: expected a string, got 1"),
        (_story(cuebook={"role": "x"}), "rounds[1].post_list[1].cuebook.role: unknown value 'x'"),
        (_story(cuebook={"wire": 1}), "rounds[1].post_list[1].cuebook.wire: expected a string, got 1"),
        (_story(cuebook={"wire_base64": "?"}), "rounds[1].post_list[1].cuebook.wire_base64: expected base64"),
        (
            _story(cuebook={"parts": [{"type": "text", "at": -1}]}),
            "rounds[1].post_list[1].cuebook.parts[0].at: expected a whole number from 0, got -1",
        ),
        (
            _story(attachment_list=[{"content": "x"}]),
            "rounds[1].post_list[1].attachment_list[0].type: missing. Expected a string.",
        ),
        (
            _story(attachment_list=[{"type": "stop", "extra": object()}]),
            "rounds[1].post_list[1].attachment_list[0].extra: ",
        ),
    ],
)
def test_invalid_shapes_are_reported_with_their_path(written, problem):
    with pytest.raises(InvalidInput) as caught:
        conversation_from_dict(written)
    assert str(caught.value).startswith(problem)
    assert caught.value.where == problem.partition(": ")[0]


@given(st.recursive(JSON, lambda inner: st.fixed_dictionaries({}, optional=dict.fromkeys(
    ["id", "rounds", "post_list", "attachment_list", "cuebook", "send_from", "type", "extra", "content"], inner)) |
    st.lists(inner, max_size=2), max_leaves=8))  # fmt: skip
def test_any_plain_value_is_loaded_or_rejected(value):
    try:
        transcript = conversation_from_dict(value)
    except InvalidInput:
        return  # as most values are
    assert conversation_from_dict(conversation_to_dict(transcript)) == transcript
