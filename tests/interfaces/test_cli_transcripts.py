"""Tests of transcript import and export: format detection, errors that name the location, and round trips."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upstream import CALLS

from conftest import Live
from cuebook import BlockingCuebook, Conflict, CuebookError, Part, Post, Posted
from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.app.transcripts.store import batches_of, store_transcript
from cuebook.app.transcripts.transcript import Transcript
from cuebook.app.transcripts.write import Format, write_transcript
from cuebook.interfaces.store import ROOT

MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_10_date_time": "9:05 am on 1 June, 2023",
        "session_10": [{"speaker": "Bo", "dia_id": "D10:1", "text": "Look!", "blip_caption": "a red kite"}],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": [
            {"speaker": "Ann", "dia_id": "D2:1", "text": "Hello"},
            {"speaker": "Bo", "dia_id": "D2:2", "text": "Hi."},
        ],
    },
    "qa": [
        {"question": "Who greets?", "answer": "Ann", "evidence": ["D2:01; D2:2", "D:10:1"], "category": 4},
        {"question": "Who swims?", "adversarial_answer": "Bo", "evidence": ["D2:1"], "category": 5},
        {"question": "Why?", "answer": "?", "evidence": [], "category": 3},
    ],
}


def read(value: Any, name: str = "talk.json") -> Transcript:
    [transcript] = read_transcripts(value if isinstance(value, str) else json.dumps(value), name=name)
    return transcript


@pytest.mark.parametrize(
    "value",
    [MESSAGES, {"messages": MESSAGES}, "\n".join(map(json.dumps, MESSAGES)) + "\n\n"],
    ids=["list", "object", "lines"],
)
def test_openai_messages_are_read_in_three_forms(value: Any) -> None:
    transcript = read(value)
    assert (transcript.conversation, transcript.source) == ("talk", "OpenAI messages")
    assert transcript.posts == tuple(message | {"id": f"import-{n}"} for n, message in enumerate(MESSAGES, 1))


def test_single_json_line_is_one_message() -> None:
    assert len(read(json.dumps(MESSAGES[0])).posts) == 1


def test_messages_can_have_ids_timestamps_and_a_conversation_id() -> None:
    named = {"role": "user", "content": "x", "id": 7, "timestamp": "2026-03-01T10:00:00+01:00", "name": "Ann"}
    transcript = read({"conversationId": "c1", "userId": "ann", "personaId": "helper", "messages": [named]})
    assert (transcript.conversation, transcript.user, transcript.persona) == ("c1", "ann", "helper")
    assert transcript.posts == ({"role": "user", "content": "x", "id": "7", "timestamp": 1772355600.0, "name": "Ann"},)


def test_each_line_can_be_a_conversation() -> None:
    text = "\n".join(json.dumps({"id": name, "messages": MESSAGES}) for name in ("a", "b"))
    assert [each.conversation for each in read_transcripts(text, name="all.jsonl")] == ["a", "b"]
    unnamed = "\n".join(json.dumps({"messages": MESSAGES}) for _ in range(2))
    assert [each.conversation for each in read_transcripts(unnamed, name="all.jsonl")] == ["all-1", "all-2"]


def test_posts_are_read_with_attachments() -> None:
    attachment = {"type": "function", "content": "{}", "extra": {"callId": "1"}}
    transcript = read(
        {
            "title": "A talk",
            "user": "ann",
            "posts": [
                {
                    "id": "p1",
                    "sendFrom": "ann",
                    "sendTo": "helper",
                    "message": "Hi",
                    "timestamp": "2026-01-05T08:12:00Z",
                },
                {"sendFrom": "assistant", "attachments": [attachment, {"type": "never seen", "content": "x"}]},
                {"sendFrom": "ann", "parts": [{"type": "text", "content": "one"}, {"type": "text", "content": "two"}]},
            ],
        }
    )
    first, second, third = transcript.posts
    assert isinstance(first, Posted)
    assert isinstance(second, Posted)
    assert isinstance(third, Posted)
    assert (first.id, first.sender, first.recipient, first.created_at) == ("p1", "ann", "helper", 1767600720.0)
    assert [(part.type, part.extra) for part in second.parts] == [
        ("function", {"callId": "1"}),
        ("opaque", {"originalType": "never seen"}),
    ]
    assert third.message == "one\ntwo"
    assert (transcript.title, transcript.user) == ("A talk", "ann")


def test_locomo_posts_follow_the_session_order() -> None:
    transcript = read([LOCOMO])
    assert (transcript.conversation, transcript.user, transcript.source) == ("conv-1", "Ann", "LoCoMo")
    assert [
        (post.id, post.sender, post.message, post.created_at) for post in transcript.posts if isinstance(post, Posted)
    ] == [
        ("D2:1", "Ann", "Hello", 1683554160.0),
        ("D2:2", "Bo", "Hi.", 1683554161.0),
        ("D10:1", "Bo", "Look! [image: a red kite]", 1685610300.0),
    ]
    [question] = transcript.questions
    assert (question.text, question.evidence) == ("Who greets?", ("D2:1", "D2:2", "D10:1"))


def test_taskweaver_is_read_as_json_and_yaml() -> None:
    rounds = {"id": "c9", "rounds": [{"post_list": [{"send_from": "User", "send_to": "Planner", "message": "Hi"}]}]}
    yaml = "id: c9\nrounds:\n- post_list:\n  - {send_from: User, send_to: Planner, message: Hi}\n"
    assert read(rounds) == read(yaml, name="talk.yaml")
    assert read(rounds).conversation == "c9"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "talk.json: empty"),
        ("[]", "talk.json: empty list"),
        ('{"messages": []}', "talk.json: messages: empty list"),
        ("hello", "talk.json: not JSON (Expecting value: line 1 column 1 (char 0)). Supported formats: OpenAI"),
        ('{"a": ', "talk.json: invalid JSON (Expecting value: line 1 column 7"),
        ("5", "talk.json: expected an object or a list, got a number"),
        ('{"a": 1, "b": 2}', "talk.json: unknown format (keys: a, b). Supported formats:"),
        ("[" * 100_000, "talk.json: invalid JSON (nested deeper than 256 levels)"),
        ('{"role": "user", "content": "x"}\n{"role": \n', "talk.json: line 2: invalid JSON"),
        ('{"role": "user", "content": "x"}\n[1]\n', "talk.json: line 2: expected an object, got a list"),
        ('{"role": "user", "content": "x"}\n{"role": "usr"}\n', "talk.json: line 2.role: expected one of"),
        ('[{"role": "user", "content": "x"}, {"role": "robot"}]', "talk.json: [1].role: expected one of system"),
        ('{"messages": [{"role": "user", "content": 5}]}', "talk.json: messages[0].content: expected a string or"),
        ('[{"role": "user", "content": "a\\u0000b"}]', "talk.json: [0].content: NUL character at position 1"),
        ('[{"role": "user", "content": "\\ud800"}]', "talk.json: [0].content: lone surrogate"),
        ('[{"role": "user", "content": "x", "timestamp": "yesterday"}]', "talk.json: [0].timestamp: expected a time"),
        (f'[{{"role": "user", "content": "x", "timestamp": {10**399}}}]', "talk.json: [0].timestamp: expected a time"),
        ('[{"role": "user", "content": NaN}]', "talk.json: invalid JSON (NaN is not JSON)"),
        ('{"posts": [{"sendFrom": "a", "message": "x", "sendto": "b"}]}', "talk.json: posts[0].sendto: unknown field"),
        ('{"posts": [{"message": "x"}]}', "talk.json: posts[0].sendFrom: expected a string, got null"),
        ('{"posts": [{"sendFrom": "a"}]}', "talk.json: posts[0]: empty. Provide a message or attachments."),
        ('{"posts": [{"sendFrom": "a", "attachments": [{"type": 1}]}]}', "talk.json: posts[0].attachments[0]: type"),
        ('{"rounds": [{"post_list": [{"send_from": 3}]}]}', "talk.json: rounds[0].post_list[0].send_from: expected"),
        ('{"format": "cuebook.transcript/9", "posts": []}', "talk.json: format: unknown format 'cuebook.transcript/9'"),
        ('[{"conversation": {"session_1": [{"text": "x"}]}}]', "talk.json: [0].conversation.session_1[0].dia_id"),
        ('{"session_1_date_time": "noon", "session_1": []}', "talk.json: session_1_date_time: expected a time like"),
    ],
)  # fmt: skip
def test_invalid_file_error_names_the_location(text: str, expected: str) -> None:
    with pytest.raises(CuebookError, match="^" + re.escape(expected)) as caught:
        read_transcripts(text, name="talk.json")
    assert "\n" not in str(caught.value)


def test_invalid_yaml_is_rejected() -> None:
    with pytest.raises(CuebookError, match=r"^talk\.yaml: invalid YAML"):
        read_transcripts("a: [", name="talk.yaml")


def test_non_utf8_file_error_names_the_byte(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_bytes(b'["caf\xe9"]')
    with pytest.raises(CuebookError, match=re.escape("talk.json: line 1: not UTF-8 (byte 0xe9)")):
        read_transcripts(file)
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(MESSAGES).encode())
    assert len(read_transcripts(file)[0].posts) == 2


@settings(max_examples=3 * settings().max_examples)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda each: st.lists(each, max_size=3) | st.dictionaries(
            st.sampled_from([
                "role", "content", "messages", "posts", "rounds", "conversation", "session_1", "sendFrom", "message",
                "post_list", "send_from", "dia_id", "text", "speaker", "attachments", "wire", "parent", "id", "format",
                "session_1_date_time", "qa", "evidence", "timestamp", "parts", "type", "tool_calls", "cuebook",
            ]),
            each | st.sampled_from(["user", "assistant", "cuebook.transcript/1"]),
            max_size=4,
        ),
        max_leaves=20,
    )
)  # fmt: skip
def test_any_json_is_read_or_rejected_with_the_file_name(value: object) -> None:
    try:
        transcript = read_transcripts(json.dumps(value), name="talk.json")
    except CuebookError as error:
        assert str(error).startswith("talk.json: ")  # noqa: PT017
    else:
        assert all(each.posts for each in transcript)


# ---- storing


def store(cue: BlockingCuebook, transcript: Transcript) -> int:
    *_, last = store_transcript(cue, transcript)
    return last.stored


def test_repeated_import_stores_only_new_posts() -> None:
    grown = [*MESSAGES, {"role": "user", "content": "More"}]
    with BlockingCuebook.open() as cue:
        assert store(cue, read(MESSAGES)) == 2
        assert store(cue, read(MESSAGES)) == 0
        assert store(cue, read(grown)) == 1
        assert [post.message for post in cue.conversations.posts("talk")] == ["Hello", "Hi.", "More"]
        with pytest.raises(Conflict, match="import-1"):
            store(cue, read([{"role": "user", "content": "Other"}]))


def test_batches_split_at_size_branches_and_stored_posts() -> None:
    posts = [{"id": f"p{n}", "sendFrom": "a", "message": str(n)} for n in range(6)]
    plain = read({"posts": posts})
    assert [(len(batch), parent) for batch, parent in batches_of(plain, size=4)] == [(4, None), (2, "p3")]
    assert [(len(batch), parent) for batch, parent in batches_of(plain, {"p0", "p1"})] == [(2, None), (4, "p1")]
    posts[3]["parent"] = "p0"
    assert [(len(batch), parent) for batch, parent in batches_of(read({"posts": posts}))] == [(3, None), (3, "p0")]


@pytest.mark.parametrize("form", ["cuebook", "taskweaver-json", "taskweaver-yaml"])
def test_exported_formats_round_trip(form: Format) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "unknown": True},
        {"role": "tool", "tool_call_id": "1", "content": "done \u202e\x1b[31m"},
        {"role": "assistant", "content": "É voilà"},
    ]
    with BlockingCuebook.open() as cue:
        cue.append("c1", messages, user="ann")
        loaded = cue.conversations.load("c1", branches=form == "cuebook")
        text = write_transcript(loaded, form=form)
    [transcript] = read_transcripts(text, name="c1.yaml" if form.endswith("yaml") else "c1.json")
    assert (transcript.conversation, transcript.user) == ("c1", "ann")
    with BlockingCuebook.open() as copy:
        assert store(copy, transcript) == 4
        second = copy.conversations.load("c1", branches=True).posts
    assert [(p.id, p.role, p.sender, p.message, p.parts, p.wire, p.digest) for p in second] == [
        (p.id, p.role, p.sender, p.message, p.parts, p.wire, p.digest) for p in loaded.posts
    ]


def test_export_keeps_branches_and_the_head() -> None:
    with BlockingCuebook.open() as cue:
        post = {"role": "user", "content": "x"}
        cue.append("c1", [post | {"id": f"a{n}"} for n in range(3)])
        cue.append("c1", [post | {"id": "b1"}], parent="a0")
        cue.append("c1", [post | {"id": "c2"}], parent="a1")
        cue.conversations.move_head("c1", "b1")
        text = write_transcript(cue.conversations.load("c1", branches=True))
    with BlockingCuebook.open() as copy:
        store(copy, read(text))
        assert [each.id for each in copy.conversations.posts("c1")] == ["a0", "b1"]
        parents = {each.id: each.parent for each in copy.conversations.posts("c1", branches="all")}
    assert parents == {"a0": None, "a1": "a0", "a2": "a1", "b1": "a0", "c2": "a1"}


def test_openai_export_matches_the_client_messages() -> None:
    with BlockingCuebook.open() as cue:
        cue.append("c1", MESSAGES)
        text = write_transcript(cue.conversations.load("c1"), form="openai")
    assert json.loads(text) == {"id": "c1", "messages": MESSAGES}


def test_markdown_export_is_a_page_for_people() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Look: ```x```", "timestamp": 1772359200},
        {"role": "assistant", "content": None, "tool_calls": [call], "timestamp": 1772359260},
    ]
    with BlockingCuebook.open() as cue:
        cue.append("c1", messages, user="ann")
        text = write_transcript(cue.conversations.load("c1"), form="markdown")
    assert text.startswith("---\nconversation: c1\nuser: ann\n")
    assert "## ann · 2026-03-01 10:00\n\nLook: ```x```\n" in text
    assert '**function**\n\n```\n{"name":"f","arguments":"{}"}\n```\n' in text


def test_second_root_post_is_stored_beside_the_first() -> None:
    posts = [{"id": name, "sendFrom": "a", "message": name, "parent": parent} for name, parent in
             (("a", None), ("b", None), ("c", "b"), ("d", "a"))]  # fmt: skip
    transcript = read({"conversation": {"id": "c1", "head": "d"}, "posts": posts})
    assert [parent for _, parent in batches_of(transcript)] == [None, ROOT, "a"]
    with BlockingCuebook.open() as cue:
        *_, last = store_transcript(cue, transcript)
        assert (last.done, last.stored, last.last_seq) == (4, 4, 4)
        stored = cue.conversations.posts("c1", branches="all")
        assert [(each.id, each.parent) for each in stored] == [("a", None), ("b", None), ("c", "b"), ("d", "a")]
        assert [each.id for each in cue.conversations.posts("c1")] == ["a", "d"]
        assert store(cue, transcript) == 0


def test_interrupted_import_resumes_and_ends_at_the_same_head() -> None:
    posts = [{"id": f"p{n}", "sendFrom": "a", "message": str(n), "parent": parent} for n, parent in
             enumerate((None, "p0", "p1", None, "p3"))]  # fmt: skip
    whole = read({"conversation": {"id": "c1", "head": "p2"}, "posts": posts})
    with BlockingCuebook.open() as cue:
        next(store_transcript(cue, whole))
        assert store(cue, whole) == 2
        assert [each.id for each in cue.conversations.posts("c1")] == ["p0", "p1", "p2"]
        cue.append("c1", [Posted(sender="a", message="said since", id="new")])
        grown = read({"conversation": {"id": "c1", "head": "p2"}, "posts": [*posts, posts[0] | {"id": "p5"}]})
        assert store(cue, grown) == 1
        assert [each.id for each in cue.conversations.posts("c1")] == ["p5"], "The head is the newest post."


# ---- round trips

CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1.50}'}}
#: Wire messages. Parsing and reserializing would change the bytes of some.
WIRES = [
    b'{"role": "user",  "content": "spaced", "n": 1.50}',
    b'{"role":"user","content":"caf\\u00e9 \\ud83d\\ude00","seed":12345678901234567890123}',
    b'{"role":"assistant","content":null,"tool_calls":[' + json.dumps(CALL).encode() + b'],"reasoning_content":"hm"}',
    b'{"role":"tool","tool_call_id":"call_1","content":"12 degrees"}',
    b'{"role":"user","content":[{"type":"text","text":"What?"},{"type":"image_url","image_url":{"url":"data:,A"}}]}',
    b'{"role":"user","content":[{"type":"hologram","hologram":[1e-3]}]}',
    b'{"role":"assistant","content":"signed","signature":"s\\/1","content_filter":{"a":1e3}}',
]
PARTS = st.lists(
    st.sampled_from([
        Part("plan", "1. rest"), Part("image_url", "https://x.y/a.png", {"detail": "low"}, "atta-1"),
        Part("text", "more"), Part("opaque", "(o)", {"originalType": "hologram", "extra": {"x": [1, None]}}),
        Part("function", '{"name": "f", "arguments": "{}"}', {"callId": "1"}), Part("code_error", "boom", ""),
        Part("shared_memory_entry", "", {"type": "plan", "scope": "round", "content": "x"}), Part("opaque", "", []),
    ]),
    max_size=3,
)  # fmt: skip
POSTS = st.one_of(
    st.builds(
        lambda sender, recipient, message, parts, state, role: Posted(
            sender=sender, recipient=recipient, message=message or ("" if parts else "x"), parts=tuple(parts),
            state=state, role=role,
        ),
        st.sampled_from(["ann", "bob", "user", "assistant", "tool", "system", "Planner"]),
        st.sampled_from(["", "ann", "Planner"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12),
        PARTS,
        st.sampled_from(["complete", "interrupted"]),
        st.sampled_from([None, "user", "assistant", "tool", "system"]),
    ),
    st.builds(
        lambda sender, wire: Posted(sender=sender, wire=wire),
        st.sampled_from(["ann", "user", "assistant", "tool"]),
        st.sampled_from(WIRES),
    ),
    st.sampled_from([json.loads(wire) for wire in WIRES]),
)  # fmt: skip
#: Each post with the index of its parent: -1 is the previous post, None is no parent.
TREES = st.lists(st.tuples(POSTS, st.none() | st.integers(0, 9) | st.just(-1)), min_size=1, max_size=9)


def exported(cue: BlockingCuebook) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(write_transcript(cue.conversations.load("c1", branches=True)))
    for time_field in ("createdAt", "updatedAt"):
        del document["conversation"][time_field]
    return document


def records(cue: BlockingCuebook) -> list[Post]:
    posts = cue.conversations.load("c1", branches=True).posts
    return [msgspec.structs.replace(post, created_at=0.0) for post in posts]  # exports round times to the microsecond


@settings(settings.get_profile("database"))
@given(TREES, st.integers(0, 8), st.sampled_from([None, "ann"]))
@pytest.mark.slow
def test_export_of_an_import_equals_the_original_export(
    tree: list[tuple[Posted | dict[str, Any], int | None]], head: int, user: str | None
) -> None:
    with BlockingCuebook.open(worker=False) as cue, BlockingCuebook.open(worker=False) as copy:
        for n, (post, follows) in enumerate(tree):
            named = msgspec.structs.replace(post, id=f"p{n}") if isinstance(post, Posted) else post | {"id": f"p{n}"}
            parent = ROOT if follows is None else f"p{n - 1 if follows < 0 else follows % n}" if n else None
            cue.append("c1", [named], user=user, persona="helper", parent=parent)
        cue.conversations.move_head("c1", f"p{head % len(tree)}", user=user)
        first = exported(cue)
        store(copy, read(json.dumps(first)))
        assert exported(copy) == first
        assert records(copy) == records(cue)
        assert store(cue, read(json.dumps(first))) == 0, "The source database already has these posts."


def test_proxied_conversation_survives_export_and_import(relayed: Live) -> None:
    """Covers tool calls, images, a regenerated answer, a second root and an interrupted answer."""

    def say(model: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
        body = {"model": model, "messages": messages, "stream": model == "half"}
        with suppress(httpx.RemoteProtocolError):
            httpx.post(f"{relayed.url}/c/c1/v1/chat/completions", json=body)
        newest = relayed.ask_cue(lambda: relayed.cue.conversations.load("c1")).posts[-1]
        return [*messages, json.loads(newest.wire or b"{}")]

    def ask(text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    history = say("tools", ask("Weather in Oslo and Rome?"))
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "mild"} for call in CALLS]
    history = say("tools", *history, *results)
    say("plain", *history, ask("And now?"))
    say("plain", *history, ask("And then?"))
    say("plain", *history, {"role": "user", "content": picture})
    say("plain", ask("Weather in Bergen?"), *history[1:])
    say("half", *history, ask("Go on"))
    loaded = relayed.ask_cue(lambda: relayed.cue.conversations.load("c1", branches=True))
    posts = loaded.posts
    assert len({post.parent for post in posts}) < len(posts) - 2, "The conversation must have branches."
    assert sum(post.parent == 0 for post in posts) == 2
    assert {post.state for post in posts} == {"complete", "interrupted"}
    text = write_transcript(loaded)
    with BlockingCuebook.open(worker=False) as copy:
        store(copy, read(text))
        assert exported(copy)["posts"] == json.loads(text)["posts"]
        second = copy.conversations.load("c1", branches=True).posts
        assert [(post.wire, post.digest, post.state) for post in second] == [
            (post.wire, post.digest, post.state) for post in posts
        ]
        [interrupted] = [post for post in second if post.state == "interrupted"]
        assert interrupted.message == "Grüße from"


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("state", "half", "posts[0].state: expected one of complete, interrupted, erased, got 'half'"),
        ("state", 1, "posts[0].state: expected a string, got a number"),
        ("wire", "{", "posts[0].wire: invalid JSON"),
        ("wire", {"role": "robot"}, "posts[0].wire.role: expected one of system"),
        ("wire", 5, "posts[0].wire: expected an object, got a number"),
    ],
)
def test_invalid_state_or_wire_error_names_the_field(field: str, value: object, expected: str) -> None:
    with pytest.raises(CuebookError, match=re.escape(expected)):
        read({"posts": [{"sendFrom": "a", "message": "x", field: value}]})
