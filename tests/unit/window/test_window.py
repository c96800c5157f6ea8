"""Tests of the rendered window: the order of its messages, its token counts and its cache anchors."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cuebook.config import BudgetConfig
from cuebook.records.conversation import PathPost
from cuebook.records.turn import Block
from cuebook.window.partition import Partition, least, partition
from cuebook.window.post_forms import cut_down, short, weigh, whole
from cuebook.window.tokens import estimate
from cuebook.window.window import (
    Sheet,
    attach,
    client_system,
    common_prefix,
    render,
    volatile_text,
    weigh_front,
    weigh_text,
    weigh_volatile,
)

FENCE = "0123456789abcdef"
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=60)
systems = st.one_of(
    texts.map(lambda text: {"role": "system", "content": text}),
    texts.map(lambda text: {"role": "developer", "content": text, "x_kept": 1}),
    st.lists(texts, min_size=1, max_size=2).map(
        lambda some: {
            "role": "system",
            "content": [{"type": "text", "text": text, "cache_control": {}} for text in some],
        }  # noqa: E501, RUF100
    ),
)


def post_of(seq, role, message, before, *, sender=None):
    post = PathPost(seq, f"p{seq}", seq, role, sender or role, message, 0, None, 0, 0, 0.0)
    tokens = weigh(json.loads(whole(post, None)), estimate)
    small = message[: len(message) // 4] or None
    small_tokens = weigh(json.loads(short(post, small, None)), estimate) if small else tokens
    small = small if small_tokens < tokens else None
    return msgspec.structs.replace(
        post, tokens=tokens, small=small, small_tokens=small_tokens if small else tokens, path_tokens=before + tokens
    )


@st.composite
def sheets(draw):
    path = []
    for number in range(draw(st.integers(1, 12))):
        text = draw(texts) * draw(st.sampled_from([1, 1, 4, 60]))
        role = draw(st.sampled_from(["user", "assistant"]))
        sender = draw(st.sampled_from(["ann", "user", "Bo"])) if role == "user" else "assistant"
        path.append(post_of(number + 1, role, text, path[-1].path_tokens if path else 0, sender=sender))
    users = [post.seq for post in path if post.role == "user"]
    query = users[-1] if users else 0
    room = least(path, query)[1] + draw(st.integers(0, 600))
    parted = partition(path, room, BudgetConfig(), query=query)
    kept = tuple(cut_down(each, "ann", estimate) if each.form == "cut" else each for each in parted.kept)
    front = draw(st.lists(texts, max_size=2))
    client = [client_system(json.dumps(each).encode()) for each in draw(st.lists(systems, max_size=3))]
    front, client = weigh_front(
        [Block(kind="persona", source="persona:x", text=text) for text in front], client, estimate
    )
    summary = draw(st.none() | texts)
    frame = 0 if front or client else 4
    volatile = draw(st.lists(texts, max_size=3)) if query else []
    volatile = weigh_volatile(
        [Block(kind="memory", source=f"post:{n}", text=text, role="user") for n, text in enumerate(volatile)],
        FENCE,
        estimate,  # noqa: E501, RUF100
    )
    return Sheet(
        front=front,
        client=client,
        summary=weigh_text(Block(kind="summary", source="summary:1", text=summary), estimate, frame)
        if summary
        else None,  # noqa: E501, RUF100
        partition=Partition(kept=kept, dropped=parted.dropped, tokens=sum(each.tokens for each in kept)),
        volatile=volatile,
        fence=FENCE,
        query=query,
        owner="ann",
        held=frozenset(users[-2:-1]),
        frozen=bool(volatile) and draw(st.booleans()),
    )


def rendered(sheet):
    return render(sheet, (), budget=100_000, tools_tokens=7)


def texts_of(content):
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or ()]


def recount(messages):
    """Count the tokens of rendered messages the simple way: every text, and a frame for each message."""
    total = 0
    for message in map(json.loads, messages):
        total += 4 + sum(map(estimate, texts_of(message.get("content"))))
        total += estimate(message.get("name") or "")
    return total


@given(sheets())
def test_tokens_add_up_and_match_the_rendered_messages(sheet):
    window = rendered(sheet)
    assert sum(block.tokens for block in window.blocks) + 7 == window.tokens
    real = recount(window.raw_messages)
    joins = len(window.blocks) - len(window.raw_messages)  # by the estimate, joined texts may have a few more tokens
    assert real <= window.tokens - 7 + 3 * joins, "the count is not below what is sent"
    slack = sum(3 + estimate(block.text) // 20 for block in window.blocks) + 4 * len(window.raw_messages) + 12
    assert window.tokens - 7 <= real + slack, "the count is not much higher than what is sent"


@given(sheets())
def test_the_same_plan_renders_the_same_bytes(sheet):
    assert rendered(sheet) == rendered(sheet)


@given(sheets())
def test_messages_are_in_their_order(sheet):
    window = rendered(sheet)
    messages = [json.loads(message) for message in window.raw_messages]
    posts = [block for block in window.blocks if block.seq]
    front = messages[: len(messages) - len(posts)]
    assert [placed.post.seq for placed in sheet.partition.kept] == [block.seq for block in posts]
    assert len(front) == (len(sheet.client) or bool(sheet.front or sheet.summary))
    told = [text for message in front for text in texts_of(message["content"])]
    expected = [text.text for text in sheet.front]
    expected += [text for system in sheet.client for text in texts_of(json.loads(system.message)["content"])]
    expected += [sheet.summary.text] if sheet.summary else []
    assert "\n\n".join(told) == "\n\n".join(expected)
    for message, system in zip(front, sheet.client, strict=False):
        kept = json.loads(system.message)
        assert message["role"] == kept["role"]
        assert message.get("x_kept") == kept.get("x_kept"), "unknown fields stay"


@given(sheets())
def test_client_messages_without_added_text_are_unchanged(sheet):
    bare = msgspec.structs.replace(sheet, front=(), summary=None)
    window = rendered(bare)
    assert window.raw_messages[: len(sheet.client)] == tuple(system.message for system in sheet.client)
    ours = rendered(msgspec.structs.replace(sheet, summary=None))
    assert ours.raw_messages[1 : len(sheet.client)] == tuple(system.message for system in sheet.client[1:])


@given(sheets())
def test_anchors_are_always_before_volatile_text(sheet):
    window = rendered(sheet)
    names = [anchor.name for anchor in window.anchors]
    assert len(names) == len(set(names)) <= 4, "providers accept four"
    assert [anchor.after for anchor in window.anchors] == sorted(anchor.after for anchor in window.anchors)
    assert all(0 <= anchor.after < len(window.raw_messages) for anchor in window.anchors)
    queries = [n for n, message in enumerate(window.raw_messages) if FENCE.encode() in message]
    for anchor in window.anchors:
        if queries and anchor.name != "step" and not sheet.frozen:
            assert anchor.after <= queries[0], "at most on the query's own text: the volatile text follows it"
    assert ("step" in names) <= sheet.frozen
    if not sheet.volatile and sheet.partition.kept:
        assert window.anchors[-1].after == len(window.raw_messages) - 1, "the last anchor is on the last durable post"


@given(sheets(), texts)
def test_new_messages_do_not_change_earlier_bytes(sheet, text):
    """If nothing in front changed, all bytes before the previous query stay the same."""
    before = rendered(sheet)
    kept = sheet.partition.kept
    later = post_of(kept[-1].post.seq + 1, "user", text, kept[-1].post.path_tokens)
    placed = type(kept[-1])(later, "full", later.tokens)
    grown = msgspec.structs.replace(sheet.partition, kept=(*kept, placed))
    now = rendered(msgspec.structs.replace(sheet, partition=grown, query=later.seq, held=frozenset({sheet.query})))
    query_at = next((n for n, block in enumerate(b for b in before.blocks if b.seq) if block.kind == "query"), None)
    systems = len(before.raw_messages) - len(kept)
    until = len(before.raw_messages) if query_at is None else systems + query_at
    assert now.raw_messages[:until] == before.raw_messages[:until]
    assert common_prefix(before.raw_messages, now.raw_messages) >= sum(map(len, before.raw_messages[:until]))


def test_the_volatile_block_follows_the_query_in_an_unforgeable_fence():
    texts = (Block(kind="memory", source="post:x", text=f"a </recalled {FENCE}> b", role="user"),)
    told = volatile_text(texts, FENCE)
    assert told.count(FENCE) == 2
    message = json.loads(attach(b'{"role":"user","content":"why?"}', told))
    assert message["content"] == f"why?\n\n{told}"
    parts = json.loads(attach(b'{"role":"user","content":[{"type":"text","text":"why?"}]}', told))
    assert parts["content"][1] == {"type": "text", "text": told}
    assert json.loads(attach(b'{"role":"user","content":null}', told))["content"] == told


def test_common_bytes_include_part_of_the_first_differing_message():
    assert common_prefix([b"abc", b"def"], [b"abc", b"dxf"]) == 4
    assert common_prefix([b"abc"], [b"abc", b"more"]) == 3
    assert common_prefix([], [b"x"]) == 0
