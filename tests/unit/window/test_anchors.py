"""Breakpoints stand at the anchors, and the text of every message stays what it was."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cuebook.records.turn import Anchor
from cuebook.window.anchors import FIELD, with_breakpoints
from cuebook.window.partition import Partition
from cuebook.window.window import Sheet, Text, attach, volatile_text

FENCE = "0123456789abcdef"


def sheet(*, summary: str = "", volatile: tuple[str, ...] = ()) -> Sheet:
    return Sheet(
        front=(),
        client=(),
        summary=Text(kind="summary", source="summary:1", text=summary) if summary else None,
        partition=Partition(kept=(), dropped=(), tokens=0),
        volatile=tuple(Text(kind="memory", source="post:x", text=text, role="user") for text in volatile),
        fence=FENCE,
        query=1,
    )


def said(message: bytes) -> str:
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
def test_marking_changes_no_text(system: str, summary: str, query: str, recalled: list[str]) -> None:
    page = sheet(summary=summary, volatile=tuple(recalled))
    front = msgspec.json.encode({"role": "system", "content": system + summary})
    asked = msgspec.json.encode({"role": "user", "content": query})
    last = attach(asked, volatile_text(page.volatile, FENCE)) if recalled else asked
    anchors = (Anchor("summary" if summary else "system", 0), Anchor("last", 1))
    marked = with_breakpoints((front, last), anchors, page)
    assert [said(message) for message in marked] == [said(front), said(last)]


def test_volatile_text_is_never_marked() -> None:
    page = sheet(volatile=("- a",))
    asked = attach(b'{"role":"user","content":"why?"}', volatile_text(page.volatile, FENCE))
    [marked] = with_breakpoints((asked,), (Anchor("last", 0),), page)
    assert marks(marked) == [True, False]


def test_summary_and_what_stands_before_it_are_marked_apart() -> None:
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


def test_the_clients_own_markers_are_left_alone() -> None:
    page = sheet()
    mine = b'{"role":"user","content":[{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}}]}'
    other = b'{"role":"user","content":"y"}'
    assert with_breakpoints((mine, other), (Anchor("last", 1),), page) == (mine, other)


def test_a_message_without_text_is_left_as_it_is() -> None:
    calls = b'{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}'
    assert with_breakpoints((calls,), (Anchor("last", 0),), sheet()) == (calls,)
