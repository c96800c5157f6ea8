"""Render posts in the forms of a window (whole, compressed, cut) as wire messages, and count their tokens.

A whole post has its original bytes. Its short forms are ours: role, speaker, the answered call, and a text. They do not
depend on whether the whole post was loaded, and never truncate anything except text.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.memory.rolling import Calls
from cuebook.records.conversation import ASSISTANT, CALL, ERROR, RESULT, SYSTEM, TOOL, Part, PathPost, Post
from cuebook.records.turn import Cut, Form
from cuebook.window.cut_json import cut_json
from cuebook.window.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, Counter, cut
from cuebook.wire.anthropic_messages import THINKING
from cuebook.wire.chat_messages import write_message
from cuebook.wire.responses_items import ITEMS

#: Minimum text of a cut post, in tokens: a head, a marker and a tail.
LEAST_TEXT = 20
#: Tokens around a call or a result (hmarr's openai-chat-tokens: 3 around a call). OpenAI does not charge its id.
CALL_TOKENS = 3
#: Tokens between two texts of one message: a line break or two, or a content part.
JOIN_TOKENS = 2
JOIN = "\n\n"

#: Part types without text: a post with one is never cut.
_NO_TEXT = frozenset({"image_url", "file", "audio", "input_audio", "opaque"})
#: Parts of a wire message counted as an image of any length. A tuple, because a type may be a list.
_MEDIA = ("image_url", "input_audio", "file")
_ARGUMENTS = {"function": "arguments", "custom": "input"}
#: Tokens of the note after an interrupted reply.
_NOTE = 8
#: Field of a provider's state, which is charged by what it contains, not by its letters.
_ENCRYPTED = "encrypted_content"
#: Levels of unknown JSON that are scanned.
_DEEPEST = 16

encode = msgspec.json.Encoder().encode
decode: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode
_parts = msgspec.json.Decoder(tuple[Part, ...]).decode


class PostInForm(Struct, frozen=True, gc=False):
    """A kept post, its form, and its tokens in this form. `cut` and `text` describe the cut."""

    post: PathPost
    form: Form
    tokens: int
    cut: Cut | None = None
    text: str = ""


# ---- Tokens of a message --------------------------------------------------------------------------------------------


def weigh(message: Mapping[str, Any], count: Counter) -> int:
    """Return the tokens of a wire message: its texts, calls, images, and overhead."""
    total = MESSAGE_OVERHEAD
    for key, value in message.items():
        if key == "role" or value is None:
            continue
        if key == "content":
            total += _weigh_content(value, count)
        elif key in ("tool_calls", "function_call"):
            total += sum(_weigh_call(call, count) for call in (value if isinstance(value, list) else [value]))
        elif key == "tool_call_id":
            total += CALL_TOKENS
        elif key == "audio":
            total += IMAGE_TOKENS
        elif key == THINKING and isinstance(value, list):  # signatures are not charged
            total += sum(count(str(each.get("thinking", ""))) for each in value if isinstance(each, dict))
        elif key == ITEMS:  # counted as the message's text and calls
            continue
        elif key == "name" and isinstance(value, str):
            total += count(value) + 1
        else:
            total += weigh_json(value, count)
    return total


def _weigh_content(content: object, count: Counter) -> int:
    if isinstance(content, str):
        return count(content)
    total = 0
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            total += count(part["text"]) + JOIN_TOKENS
        elif kind in _MEDIA:
            total += IMAGE_TOKENS
        else:
            total += weigh_json(part, count) + JOIN_TOKENS
    return total


def _weigh_call(call: object, count: Counter) -> int:
    if not isinstance(call, dict):
        return weigh_json(call, count)
    kind = call.get("type", "function")
    body = call.get(kind, call) if isinstance(kind, str) else call
    if not isinstance(body, dict):
        return weigh_json(call, count)
    texts = (body.get("name"), body.get("arguments", body.get("input")))
    if not all(isinstance(text, str) for text in texts):
        return weigh_json(call, count) + CALL_TOKENS
    return sum(count(text) for text in texts if isinstance(text, str)) + CALL_TOKENS


def weigh_json(value: object, count: Counter, depth: int = 0) -> int:
    """Return the tokens of unknown JSON, with data in its strings counted as an image."""
    if isinstance(value, str):
        return IMAGE_TOKENS if value.startswith("data:") else count(value)
    if isinstance(value, dict | list) and depth < _DEEPEST:
        inner = value if isinstance(value, list) else [*value, *(value[key] for key in value if key != _ENCRYPTED)]
        return sum(weigh_json(each, count, depth + 1) + 1 for each in inner) + 1
    return count(encode(value).decode())


# ---- The forms ------------------------------------------------------------------------------------------------------


def whole(post: PathPost, owner: str | None) -> bytes:
    """Return a post as received. Without an original message, render it, with a name unless it is the owner's."""
    if post.wire is not None:
        return post.wire
    if post.parts is None and post.state == "complete" and _unnamed(post, owner):
        return encode({"role": SYSTEM if post.role == "summary" else post.role, "content": post.message or ""})
    return write_message(_as_post(post, post.message or "", parts_of(post)), user=owner)


def short(post: PathPost, text: str, owner: str | None) -> bytes:
    """Return a post with another text. Only role, speaker and answered call stay."""
    answered = tuple(
        Part(part.type, "", part.extra)
        for part in parts_of(post)
        if part.type in (RESULT, ERROR) and post.role != ASSISTANT
    )
    return write_message(_as_post(post, text, answered[:1]), user=owner)


def text_of(post: PathPost) -> str:
    """Return a post as one text: its message, then its rendered parts."""
    parts = parts_of(post)
    if not parts:
        return post.message or ""
    if post.role == ASSISTANT:
        parts = tuple(part for part in parts if part.type != CALL)
    content = decode(write_message(_as_post(post, post.message or "", parts, state="complete"), user=post.sender))[
        "content"
    ]
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def can_cut(post: PathPost) -> bool:
    """Return whether a post may be cut: text may, call arguments and other parts may not."""
    return post.parts is None or not any(part.type == CALL or part.type in _NO_TEXT for part in parts_of(post))


def least_of(post: PathPost) -> int:
    """Return the least tokens of a post in a window: a cut text with its overhead, or all of it."""
    named = len(post.sender.encode()) if post.role == "user" else 0
    least = LEAST_TEXT + MESSAGE_OVERHEAD + CALL_TOKENS + named + (_NOTE if post.state == "interrupted" else 0)
    return least if post.tokens > least and can_cut(post) else post.tokens


def cut_down(post_in_form: PostInForm, owner: str | None, count: Counter) -> PostInForm:
    """Return a post cut to a number of tokens, with the cut and its real tokens."""
    post, most = post_in_form.post, post_in_form.tokens
    text = text_of(post)
    room = most - weigh(decode(short(post, "", owner)), count)
    content = _cut_text(text, room, count)
    tokens = weigh(decode(short(post, content, owner)), count)
    while tokens > most and room > 0:  # the sum of parts may be slightly less than the whole
        room -= max(1, tokens - most)
        content = _cut_text(text, room, count)
        tokens = weigh(decode(short(post, content, owner)), count)
    head = common_length(text, content)
    tail = min(common_length(text[::-1], content[::-1]), len(content) - head, len(text) - head)
    how = Cut(tokens, head, content[head : len(content) - tail], tail)
    return PostInForm(post, "cut", tokens, how, content)


def _cut_text(text: str, room: int, count: Counter) -> str:
    """Return a text cut to a number of tokens. A JSON document stays one."""
    if room <= 0:
        return ""
    return (cut_json(text, room, count=count) if text[:1] in ("{", "[") else None) or cut(text, room, count=count)


def cut_again(post: PathPost, how: Cut) -> PostInForm:
    """Return a post cut as recorded."""
    text = text_of(post)
    content = text[: how.head] + how.marker + (text[-how.tail :] if how.tail else "")
    return PostInForm(post, "cut", how.tokens, how, content)


def message_of(post_in_form: PostInForm, owner: str | None) -> bytes:
    """Return a kept post's message in its form."""
    if post_in_form.form == "full":
        return whole(post_in_form.post, owner)
    return short(post_in_form.post, shown_of(post_in_form), owner)


def shown_of(post_in_form: PostInForm) -> str:
    """Return the text of a kept post in its form."""
    if post_in_form.form == "full":
        return post_in_form.post.message or ""
    return post_in_form.text if post_in_form.form == "cut" else post_in_form.post.small or ""


def parts_of(post: PathPost) -> tuple[Part, ...]:
    """Parse a post's parts."""
    return _parts(post.parts) if post.parts else ()


def calls_of(post: PathPost) -> Calls | None:
    """Return the calls that a post makes and answers, or None."""
    if post.parts is None or b'"callId"' not in post.parts:
        return ((), ("",)) if post.role == TOOL else None
    return calls_among(post.role, parts_of(post))


def calls_among(role: str, parts: Iterable[Part]) -> Calls:
    """Return the calls that the parts of a post make and answer. A tool's post answers one, also without an id."""
    calls = [(part.type, part.call_id) for part in parts if part.call_id]
    made = [call for kind, call in calls if call and kind == CALL]
    answered = [call for kind, call in calls if call and kind in (RESULT, ERROR) and role != ASSISTANT]
    return made, answered or [""] * (role == TOOL)


def _unnamed(post: PathPost, owner: str | None) -> bool:
    return post.role in (ASSISTANT, SYSTEM) or (post.role != TOOL and post.sender in (owner, "user"))


def _as_post(post: PathPost, text: str, parts: tuple[Part, ...], *, state: str | None = None) -> Post:
    return Post(
        id=post.id,
        seq=post.seq,
        parent=0,
        round=post.round,
        sender=post.sender,
        recipient="",
        role=post.role,
        message=text,
        created_at=post.created_at,
        tokens=post.tokens,
        parts=parts,
        state="interrupted" if (state or post.state) == "interrupted" else "complete",
    )


def common_length(one: str | bytes, other: str | bytes) -> int:
    """Return the length of the common prefix of two texts."""
    sizes = range(min(len(one), len(other)))
    return bisect_left(sizes, True, key=lambda size: one[: size + 1] != other[: size + 1])  # noqa: FBT003
