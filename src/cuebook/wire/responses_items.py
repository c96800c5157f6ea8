"""Render stored posts as conversation items of OpenAI's wire, with ids that encode their location.

Items of an answer have the ids that the response used. Items of other posts are named by seq.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cuebook.records.conversation import Post
from cuebook.records.erasure import GONE
from cuebook.wire.chat_messages import write_message
from cuebook.wire.responses_answers import ResponsesWriter
from cuebook.wire.responses_requests import PREFIX, AnswerId, id_stem, read_stem, wrong

#: Metadata key of data that a client attached to a conversation.
ATTACHED: Final = "clientMetadata"
#: OpenAI's limits: pairs, characters of a name, characters of a value.
PAIRS, LONGEST_NAME, LONGEST_VALUE = 16, 64, 512
#: Id prefixes of conversations created here, and of OpenAI's.
_OURS: Final = re.compile(r"conv_cb[0-9a-f]{20}")
_THEIRS: Final = re.compile(r"conv_[0-9a-f]{32,}")
#: Parts of a chat message -> their type as input.
_INPUTS: Final = {"text": "input_text", "image_url": "input_image", "file": "input_file"}


def conversation_id(digest: bytes) -> str:
    """Return the id of a conversation created through this wire."""
    return f"conv_cb{digest.hex()[:20]}"


def may_be_ours(id_: str) -> bool:
    """Return whether an id has our format."""
    return _OURS.fullmatch(id_) is not None


def looks_foreign(id_: str) -> bool:
    """Return whether an id has OpenAI's format."""
    return _THEIRS.fullmatch(id_) is not None


def read_attached(raw: Any) -> dict[str, str]:
    """Parse a client's data of a conversation. Raises InvalidInput naming the field."""
    if raw is None:
        return {}
    if not isinstance(raw, dict) or len(raw) > PAIRS:
        raise wrong("metadata", f"an object of {PAIRS} pairs at most")
    for name, value in raw.items():
        if len(name) > LONGEST_NAME:
            raise wrong("metadata", f"names of {LONGEST_NAME} characters at most")
        if not isinstance(value, str) or len(value) > LONGEST_VALUE:
            raise wrong(f"metadata.{name}", f"a string of {LONGEST_VALUE} characters at most")
    return raw


# ---- Ids ------------------------------------------------------------------------------------------------------------


def read_item_id(id_: str) -> AnswerId | None:
    """Parse an item's id into its location. Return None for foreign ids."""
    return read_stem(id_.partition("_")[2].rpartition("_")[0])


# ---- Items of a post ------------------------------------------------------------------------------------------------


def items_of(
    post: Post, *, conversation: str, user: str | None, answer: tuple[int, int] | None
) -> list[dict[str, Any]]:
    """Return a post's items in order, none if it was erased. `answer`: the turn and step that wrote it."""
    if post.state == GONE:
        return []
    message = msgspec.json.decode(post.wire or write_message(post, user=user))
    stem = id_stem(AnswerId(conversation, *(answer or (post.seq,))))
    if message["role"] == "assistant":
        return _answer_items(message, stem, whole=post.state == "complete")
    if message["role"] in ("tool", "function"):
        call = message.get("tool_call_id") or message.get("name") or ""
        output = _inputs(message.get("content"))
        if len(output) == 1 and output[0]["type"] == "input_text":
            return [_output(stem, call, output[0]["text"])]
        return [_output(stem, call, output or "")]
    return [
        {
            "id": f"msg_{stem}_0",
            "type": "message",
            "role": message["role"],
            "status": "completed",
            "content": _inputs(message.get("content")),
        }
    ]


def _answer_items(message: Mapping[str, Any], stem: str, *, whole: bool) -> list[dict[str, Any]]:
    writer = ResponsesWriter(PREFIX + stem, conversation="", created=0, model="", echo={})
    if isinstance(parts := message.get("content"), list):
        message = {**message, "content": "".join(part.get("text") or "" for part in parts)}
    writer.take({"choices": [{"message": message, "finish_reason": "stop"}]}, "message")
    writer.end("" if whole else "The answer was interrupted.")
    output: list[dict[str, Any]] = writer.document()["output"]
    return output


def _output(stem: str, call: str, output: Any) -> dict[str, Any]:
    return {
        "id": f"fco_{stem}_0", "type": "function_call_output", "call_id": call, "output": output, "status": "completed",
    }  # fmt: skip


def _inputs(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [_input(part) for part in content or () if isinstance(part, dict)]


def _input(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(part.get("type"))
    body = part.get(kind)
    if kind == "image_url":
        image = body if isinstance(body, dict) else {"url": body}
        return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
    if kind == "file" and isinstance(body, dict):
        return {"type": "input_file"} | body
    return dict(part) | {"type": _INPUTS.get(kind, kind)}
