"""Tests of cache breakpoints: they are set at the anchors and change no message text."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cuebook.records.turn import Anchor, Block
from cuebook.window.partition import Partition
from cuebook.window.window import FIELD, Sheet, attach, volatile_text, with_breakpoints

FENCE = "0123456789abcdef"


def sheet(*, summary: str = "", volatile: tuple[str, ...] = ()) -> Sheet:
    return Sheet(
        front=(),
        client=(),
        summary=Block(kind="summary", source="summary:1", text=summary) if summary else None,
        partition=Partition(kept=(), dropped=(), tokens=0),
        volatile=tuple(Block(kind="memory", source="post:x", text=text, role="user") for text in volatile),
        fence=FENCE,
        query=1,
    )


def text_of_message(message: bytes) -> str:
    content = msgspec.json.decode(message)["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def marks(message: bytes) -> list[bool]:
    content = msgspec.json.decode(message)["content"]
    return [FIELD in part for part in content] if isinstance(content, list) else [False]


@given(
    system=st.text(min_size=1),
    summary=st.text(),
    query=st.text(min_size=1),
    recalled=st.lists(st.text(min_size=1), max_size=3),
)
def test_adding_breakpoints_changes_no_text(system: str, summary: str, query: str, recalled: list[str]) -> None:
    page = sheet(summary=summary, volatile=tuple(recalled))
    front = msgspec.json.encode({"role": "system", "content": system + summary})
    asked = msgspec.json.encode({"role": "user", "content": query})
    last = attach(asked, volatile_text(page.volatile, FENCE)) if recalled else asked
    anchors = (Anchor("summary" if summary else "system", 0), Anchor("last", 1))
    marked = with_breakpoints((front, last), anchors, page)
    assert [text_of_message(message) for message in marked] == [text_of_message(front), text_of_message(last)]


def test_volatile_text_gets_no_breakpoint() -> None:
    page = sheet(volatile=("- a",))
    asked = attach(b'{"role":"user","content":"why?"}', volatile_text(page.volatile, FENCE))
    [marked] = with_breakpoints((asked,), (Anchor("last", 0),), page)
    assert marks(marked) == [True, False]


def test_the_summary_and_the_text_before_it_get_separate_breakpoints() -> None:
    page = sheet(summary="what was")
    [marked] = with_breakpoints(
        (b'{"role":"system","content":"be kind\\n\\nwhat was"}',), (Anchor("summary", 0),), page
    )
    assert marks(marked) == [True, True]


def test_content_lists_keep_their_other_parts() -> None:
    page = sheet()
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    message = msgspec.json.encode({"role": "user", "content": [{"type": "text", "text": "what is this"}, image]})
    [marked] = with_breakpoints((message,), (Anchor("last", 0),), page)
    assert msgspec.json.decode(marked)["content"][1] == image | {FIELD: {"mode": "explicit"}}


def test_breakpoints_of_the_client_are_kept() -> None:
    page = sheet()
    mine = b'{"role":"user","content":[{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}}]}'
    other = b'{"role":"user","content":"y"}'
    assert with_breakpoints((mine, other), (Anchor("last", 1),), page) == (mine, other)


def test_a_message_without_text_is_unchanged() -> None:
    calls = b'{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}'
    assert with_breakpoints((calls,), (Anchor("last", 0),), sheet()) == (calls,)
