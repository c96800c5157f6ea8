"""Tests of the full, compressed and cut forms of a post: their content, their tokens, and repeated cuts."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cuebook.records.conversation import Part, PathPost
from cuebook.window.post_forms import (
    CALL_TOKENS,
    LEAST_TEXT,
    PostInForm,
    calls_of,
    can_cut,
    cut_again,
    cut_down,
    least_of,
    message_of,
    short,
    text_of,
    weigh,
    whole,
)
from cuebook.window.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, estimate
from scripted_answers import call

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=80)
long_texts = st.builds(lambda text, n: (text + " ") * n, words.filter(bool), st.integers(1, 60))


def post(message="", *, role="user", sender="ann", parts=(), wire=None, small=None, state="complete", seq=1):
    encoded = msgspec.json.encode(parts) if parts else None
    bare = PathPost(seq, "p", seq, role, sender, message, 0, small, 0, 0, 0.0, encoded, wire, state)
    tokens = weigh(json.loads(whole(bare, None)), estimate)
    small_tokens = weigh(json.loads(short(bare, small, None)), estimate) if small else tokens
    return msgspec.structs.replace(bare, tokens=tokens, small_tokens=small_tokens, path_tokens=tokens)


RESULT = (Part("execution_result", "", {"callId": "c1"}),)
CALL = (Part("function", '{"name":"look","arguments":"{}"}', {"callId": "c1", "name": "look"}),)
posts = st.one_of(
    st.builds(post, long_texts, sender=st.sampled_from(["user", "ann", "Zoë Bär", "x" * 200])),
    st.builds(post, long_texts, role=st.just("assistant"), sender=st.just("assistant"),
              state=st.sampled_from(["complete", "interrupted"])),
    st.builds(post, long_texts, role=st.just("tool"), sender=st.just("tool"), parts=st.just(RESULT)),
    st.builds(post, long_texts, role=st.just("tool"), sender=st.just("tool")),
    st.builds(post, long_texts, role=st.just("system"), sender=st.just("system")),
    st.builds(post, words, parts=st.builds(lambda text: (Part("plan", text), Part("text", "more")), long_texts)),
)  # fmt: skip


@given(posts, st.integers(0, 400))
def test_a_cut_post_fits_its_limit_and_is_reproducible(given_post, extra):
    most = least_of(given_post) + extra
    if most >= given_post.tokens:
        return
    placed = cut_down(PostInForm(given_post, "cut", most), "ann", estimate)
    assert placed.tokens <= most
    assert weigh(json.loads(message_of(placed, "ann")), estimate) <= placed.tokens or given_post.sender == "ann"
    again = cut_again(given_post, placed.cut)
    assert (again, message_of(again, "ann")) == (placed, message_of(placed, "ann"))
    head, tail = placed.text[: placed.cut.head], placed.text[len(placed.text) - placed.cut.tail :]
    assert text_of(given_post).startswith(head)
    assert text_of(given_post).endswith(tail)


@given(posts, words)
def test_a_short_form_keeps_role_speaker_and_call(given_post, text):
    unread = msgspec.structs.replace(given_post, message=None, wire=None)
    assert short(given_post, text, "ann") == short(unread, text, "ann")
    message, shortened = json.loads(whole(given_post, "ann")), json.loads(short(given_post, text, "ann"))
    for key in ("role", "name", "tool_call_id"):
        assert message.get(key) == shortened.get(key)
    assert set(shortened) <= {"role", "content", "name", "tool_call_id"}


@given(st.lists(posts, max_size=4))
def test_a_post_counts_at_least_the_tokens_of_its_texts(some):
    for each in some:
        message = json.loads(whole(each, None))
        content = message["content"]
        texts = [content] if isinstance(content, str) else [part["text"] for part in content]
        assert weigh(message, estimate) >= MESSAGE_OVERHEAD + max(map(estimate, texts), default=0)


def test_token_count_of_a_message():
    def tokens(**message):
        return weigh(message, len) - MESSAGE_OVERHEAD

    assert tokens(role="user", content="12345") == 5
    assert tokens(role="user", content="12345", name="ann") == 9
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}
    assert tokens(role="user", content=[{"type": "text", "text": "123"}, image]) == 5 + IMAGE_TOKENS
    video = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + "A" * 10_000}}
    assert tokens(role="user", content=[video]) < IMAGE_TOKENS + 60
    assert tokens(role="assistant", content=None, tool_calls=[call("call_1", "look", {"a": 1})]) == 4 + 8 + CALL_TOKENS
    assert tokens(role="assistant", content=None, reasoning_content="12345") == 5
    assert (
        tokens(role="assistant", content=None, function_call={"name": "look", "arguments": "{}"}) == 4 + 2 + CALL_TOKENS
    )
    assert tokens(role="tool", tool_call_id="call_1", content="12") == 2 + CALL_TOKENS
    assert tokens(role="user", content="", unknown={"deep": [["x"] * 3]}) > 3


def test_deeply_nested_json_is_counted():
    nested: object = "x" * 50
    for _ in range(300):
        nested = [nested]
    assert weigh({"role": "user", "content": "", "unknown": nested}, len) >= 50


def test_calls_and_non_text_parts_are_never_cut():
    assert not can_cut(post("x" * 999, role="assistant", sender="assistant", parts=CALL))
    assert not can_cut(post("x" * 999, parts=(Part("image_url", "https://x/y.png"),)))
    assert can_cut(post("x" * 999, role="tool", sender="tool", parts=RESULT))
    assert can_cut(post("x" * 999, parts=(Part("execution_result", "", {"callId": "function"}),)))


def test_calls_are_identified_by_their_ids():
    assert calls_of(post("hi")) is None
    assert calls_of(post("", role="assistant", sender="assistant", parts=CALL))[0] == ["c1"]
    assert calls_of(post("ok", role="tool", sender="tool", parts=RESULT))[1] == ["c1"]
    assert calls_of(post("ok", role="user", sender="CodeInterpreter", parts=RESULT))[1] == ["c1"]
    assert calls_of(post("ok", role="tool", sender="tool"))[1] == ("",)


def test_a_cut_post_keeps_its_attachments():
    given_post = post("look here", parts=(Part("plan", "first " + "and then " * 400 + "last"),))
    placed = cut_down(PostInForm(given_post, "cut", 100), "ann", estimate)
    assert placed.text.startswith("look here\n\n[plan] first")
    assert placed.text.endswith("last")


def test_a_wire_message_is_sent_unchanged():
    wire = b'{"content": "hi",  "role":"user", "x_unknown": 1}'
    assert whole(post("hi", wire=wire), "ann") == wire
    assert json.loads(short(post("hi", wire=wire), "h", "ann")) == {"role": "user", "content": "h"}


def test_the_smallest_form_is_a_text_with_its_frame():
    assert least_of(post("short")) == post("short").tokens
    assert LEAST_TEXT < least_of(post("long " * 500, sender="user")) < 40
