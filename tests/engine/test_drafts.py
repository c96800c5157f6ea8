"""Tests of post validation and redaction before a post is stored."""

import json
import math

import pytest
from msgspec.structs import replace
from turn_helpers import NAME, cue_on, user

from cuebook import Ask, Conflict, InvalidInput, NotFound, Part, Posted
from cuebook.records.conversation import Appended
from cuebook.wire.chat_messages import read_message


@pytest.fixture
async def cue(tmp_path):
    async with cue_on(tmp_path) as handle:
        yield handle


@pytest.mark.parametrize(
    "when", [1.7e12, -62_135_596_800.0, 253_402_300_799.0, 1e300, math.inf, -math.inf, math.nan], ids=str
)
async def test_an_invalid_time_is_refused_and_nothing_is_stored(cue, when):
    for post in (Posted(sender="user", message="hi", created_at=when), user("hi", timestamp=when)):
        with pytest.raises(InvalidInput) as refused:
            await cue.append(NAME, [Posted(sender="user", message="before"), post])
        assert refused.value.where in ("posts[1].created_at", "posts[1].timestamp")
    with pytest.raises(NotFound):
        await cue.conversations.get(NAME)


@pytest.mark.parametrize("when", [-30_610_224_000.0, 0.0, 253_370_764_799.0])
async def test_posts_of_any_date_are_recalled_and_compacted(cue, when):
    await cue.append(NAME, [user(f"The boat number {n} is red.", timestamp=when) for n in range(40)])
    assert await cue.settle() == {}
    assert await cue.conversations.summary(NAME) is not None
    assert await cue.memory.search("boat", conversation=NAME)


async def test_a_password_in_an_attachment_url_is_not_stored(cue, tmp_path):
    address, data = "https://ann:hunter2Pass9@example.com/x.png", "data:image/png;base64,AAAA"
    parts = (Part("image_url", address), Part("image_url", data), Part("file", "ftp://bob:hunter2Pass9@host/f"))
    await cue.append(NAME, [Posted(sender="user", message="see", parts=parts)])
    [post] = await cue.conversations.posts(NAME)
    assert post.parts[0].content.startswith("https://ann:[[secret:url_password#")
    assert post.parts[1].content == data
    assert b"hunter2Pass9" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


async def test_only_new_posts_are_drafted(cue):
    counted = []
    writer = cue.services.writer
    cue.services.writer = replace(writer, count=lambda text: counted.append(text) or writer.count(text))
    posts = [
        user("The boat is red.", id="a"),
        Posted(sender="cuebook", message="Noted.", id="b"),
        Posted(sender="bob", message="So is mine.", parts=(Part("file", "x"),), id="c"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "t", "type": "function", "function": {"name": "find", "arguments": "{}"}}],
            "id": "d",
        },
    ]
    assert (await cue.append(NAME, posts)).stored == 4
    counted.clear()
    assert await cue.append(NAME, posts) == Appended(0, 4)
    assert counted == []
    assert await cue.append(NAME, [*posts, user("And the sail?", id="e")]) == Appended(1, 5)
    assert counted == ["And the sail?"]
    for changed in (user("The boat is blue.", id="a"), Posted(sender="eve", message="So is mine.", id="c")):
        with pytest.raises(Conflict):
            await cue.append(NAME, [changed])
    for secret in ("ghp_" + "a1B2" * 9, "ghp_" + "Z9y8" * 9):
        posts = [user(f"The key is {secret}", id=secret[:8])]
        assert [(await cue.append(NAME, posts)).stored for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    "part", [Part("text", "half \ud800"), Part("file", "x", {"a": "\udc00"}), Part("file", "x", object())]
)
@pytest.mark.parametrize("key", [None, "k"])
async def test_an_attachment_that_is_not_json_is_refused_by_name(cue, part, key):
    for variant in (part, Part(f"{part.type}", part.content, {"in": part.extra})):
        with pytest.raises(InvalidInput) as refused:
            await cue.ask(Ask("hi", NAME, attachments=(variant,), idempotency_key=key))
        assert refused.value.where == "attachments"
    with pytest.raises(NotFound):
        await cue.conversations.get(NAME)


@pytest.mark.parametrize(
    ("post", "where"),
    [
        (user("x", timestamp="2024-05-01T10:00:00Z"), "posts[1].timestamp"),
        (user("x", timestamp=[1]), "posts[1].timestamp"),
        (user("x", timestamp=10**400), "posts[1].timestamp"),
        (user("x", id=5), "posts[1].id"),
        (user(object()), "posts[1]"),
        (user("half \ud800"), "posts[1]"),
        ("x", "posts[1]"),
        (None, "posts[1]"),
    ],
)
async def test_an_invalid_post_is_refused_by_its_location(cue, post, where):
    for append in (cue.append, cue.conversations.append):
        with pytest.raises(InvalidInput) as refused:
            await append(NAME, [user("fine"), post])
        assert refused.value.where == where
        assert "posts[1]" in str(refused.value)
    with pytest.raises(NotFound):
        await cue.conversations.get(NAME)


LONG = "Berlin, 3 May 2024: `get_user` failed at /srv/app/main.py with error 4711. " * 5


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": LONG},
        {"role": "user", "content": LONG, "name": "ana"},
        {"role": "user", "content": [{"type": "text", "text": LONG}, {"type": "text", "text": "And then?"}]},
        {"role": "assistant", "content": LONG, "annotations": []},
        {"role": "assistant", "refusal": "No.", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f",
         "arguments": '{"password": "hunter2"}'}}]},
        {"role": "tool", "tool_call_id": "a", "content": LONG},
        {"role": "system", "content": LONG},
    ],
    ids=str,
)  # fmt: skip
async def test_skipping_the_secret_scan_yields_the_same_post(cue, message):
    raw, writer = json.dumps(message).encode(), cue.services.writer
    clean = writer.clean_json(raw)
    parsed = read_message(clean)
    post = writer.message(clean, parsed, id="p", user="ana", now=1.7e9, owner="ana", clean=True)
    assert post == writer.message(bytes(clean), parsed, id="p", user="ana", now=1.7e9, owner="ana")
