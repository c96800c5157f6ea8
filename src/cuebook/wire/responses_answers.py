"""Read the answers of OpenAI's Responses API, render a chat completion as a response, and posts as conversation items.

Item ids encode their location. Items of an answer have the ids that the response used, others are named by seq.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cuebook.errors import InvalidInput
from cuebook.records.answers import mended
from cuebook.records.conversation import Post
from cuebook.records.erasure import GONE
from cuebook.wire.answer import AnswerWriter, StreamReader, as_dict, dicts, error_message
from cuebook.wire.chat_answers import read_usage
from cuebook.wire.chat_messages import write_message
from cuebook.wire.responses_items import COMPACTION, ITEMS, read_answer, write_content, write_items, wrong
from cuebook.wire.responses_requests import PREFIX, UNSTORED, AnswerId, id_stem, read_stem

#: Fields with the id and the model of an answer.
_FRAME: Final = ("id", "model")
#: Final states of an answer, and those of a complete one.
_ENDS: Final = ("completed", "incomplete", "failed", "cancelled")
_COMPLETE: Final = ("completed", "incomplete")
#: Reason of an incomplete response by a chat completion's finish reason.
_CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
#: Field of a delta -> type of its part, and key of the part's text.
_PARTS: Final = {"content": ("output_text", "text"), "refusal": ("refusal", "refusal")}
#: Error message of a stream that ended without a finish reason.
_ENDED_EARLY: Final = "The answer ended early. The text received so far is stored."

_encode = msgspec.json.Encoder().encode


# ---- Reading --------------------------------------------------------------------------------------------------------


class ResponsesReader(StreamReader):
    """Reads a response: its events, or one document. `compacts`: the answer of `/responses/compact`."""

    def __init__(self, *, compacts: bool = False) -> None:
        super().__init__()
        self.answer.finish = {0: ""}
        self._items: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}  # of unfinished items
        self._compacts = compacts

    def add(self, event: dict[str, Any]) -> str:
        """Add an event. Return the text it adds."""
        kind, place, delta = event.get("type"), event.get("output_index"), event.get("delta")
        if kind == "response.output_text.delta" and isinstance(place, int) and isinstance(delta, str):
            self._texts.setdefault(place, []).append(delta)
            return delta
        if kind == "response.output_item.done" and isinstance(place, int) and isinstance(event.get("item"), dict):
            self._items[place] = event["item"]
            self._texts.pop(place, None)
        elif kind == "error":
            self._fail(event)
        elif isinstance(event.get("response"), dict):
            self.add_document(event["response"])
        return ""

    def add_document(self, document: dict[str, Any]) -> None:
        """Add a response so far, or a complete one."""
        answer, status, output = self.answer, document.get("status"), document.get("output")
        items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
        if items:
            self._items, self._texts = dict(enumerate(items)), {}
        answer.frame = {name: document[name] for name in _FRAME if isinstance(document.get(name), str)}
        answer.done = answer.done or status in _ENDS
        if status in _COMPLETE or self._compacts:
            calls = any(str(item.get("type")).endswith("_call") and "call_id" in item for item in self._items.values())
            answer.finish[0] = "length" if status == "incomplete" else "tool_calls" if calls else "stop"
        if isinstance(used := document.get("usage"), dict):
            names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
            counts = {ours: used.get(theirs) for ours, theirs in names.items()}
            answer.usage = read_usage(counts | {"prompt_tokens_details": used.get("input_tokens_details")})
        if isinstance(error := document.get("error"), dict):
            self._fail(error)

    def _fail(self, error: dict[str, Any]) -> None:
        self.answer.error, self.answer.done = error_message(error), True

    def message(self, choice: int = 0) -> bytes | None:
        """Return the answer so far as one chat message with its items, or None if it is empty or invalid."""
        begun = {
            place: {"type": "message", "role": "assistant", "content": "".join(lines)}
            for place, lines in self._texts.items()
        }
        items = [item for _, item in sorted((begun | self._items).items())]
        if self._compacts:  # the user's messages before it are stored already
            items = [item for item in items if item.get("type") == COMPACTION]
        try:
            return _encode(read_answer(items)) if items and not choice else None
        except (InvalidInput, UnicodeEncodeError):
            return None


# ---- Writing --------------------------------------------------------------------------------------------------------


class ResponsesWriter(AnswerWriter):
    """Renders a chat completion as a response, with the events of its stream."""

    reports_faults = True

    def __init__(self, id_: str, *, conversation: str, created: int, model: str, echo: Mapping[str, Any]) -> None:
        """Start. `created` is in Unix seconds, `echo` repeats fields of the request."""
        super().__init__()
        self._response: dict[str, Any] = {
            "id": id_,
            "object": "response",
            "created_at": created,
            "status": "in_progress",
            "background": False,
            "conversation": {"id": conversation},
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "usage": None,
            **echo,
        }
        self._output: list[dict[str, Any]] = self._response["output"]
        self._stem = id_.partition("_")[2].removeprefix(UNSTORED)
        self._number = 0  # of the next event
        self._open: list[int] = []  # unfinished items

    def document(self) -> dict[str, Any]:
        """Return the response so far."""
        return self._response

    def take_message(self, message: dict[str, Any]) -> None:
        """Add a complete stored message."""
        if isinstance(parts := message.get("content"), list) and ITEMS not in message:
            message = {**message, "content": "".join(part.get("text") or "" for part in parts)}
        self.take({"choices": [{"message": message, "finish_reason": "stop"}]}, "message")

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        for item in dicts(delta.get(ITEMS)):
            self._add_item(item)
        if ITEMS not in delta:
            super()._add_delta(delta)

    def _add_item(self, item: dict[str, Any]) -> None:
        """Add a complete item of a provider's answer."""
        place = len(self._output)
        self._output.append(item)
        self._emit("response.output_item.added", output_index=place, item=item)
        for number, part in enumerate(dicts(item.get("content"))):
            if (kind := part.get("type")) in ("output_text", "refusal"):
                key = "text" if kind == "output_text" else "refusal"
                where = {"output_index": place, "item_id": item.get("id", ""), "content_index": number}
                self._emit("response.content_part.added", **where, part=part | {key: ""})
                self._emit(f"response.{kind}.delta", **where, delta=part.get(key), **_logprobs(key))
                self._emit(f"response.{kind}.done", **where, **{key: part.get(key)}, **_logprobs(key))
                self._emit("response.content_part.done", **where, part=part)
        self._emit("response.output_item.done", output_index=place, item=item)

    def begin(self) -> bytes:
        """Return the first events of a stream."""
        self._emit("response.created", response=self._response)
        self._emit("response.in_progress", response=self._response)
        return self._flush()

    def end(self, broken: str = "") -> bytes:
        """End the response and return its last events. `broken` is the reason why it is incomplete."""
        cut, response = _CUT.get(self.finish), self._response
        for place in sorted(self._open):
            self._end_item(place, "incomplete" if cut or broken else "completed")
        if broken:
            response["status"], response["error"] = "failed", {"code": "server_error", "message": broken}
        else:
            response["status"] = "incomplete" if cut else "completed"
            response["incomplete_details"] = {"reason": cut} if cut else None
        self._emit(f"response.{response['status']}", response=response)
        return self._flush()

    def close(self, broken: str = "") -> bytes:
        """End a stream, which may be incomplete, and return its last events."""
        broken = f"Upstream error: {self.error}" if self.error else broken
        return self.end(broken or ("" if self.finish else _ENDED_EARLY))

    def _set_model(self, model: str) -> None:
        self._response["model"] = model

    def _set_usage(self, usage: Mapping[str, Any]) -> None:
        self._response["usage"] = _usage(usage)

    def _add_text(self, name: str, text: str) -> None:
        kind, key = _PARTS[name]
        place = self._message()
        if place is None:
            place = self._begin_item("msg", type="message", role="assistant", status="in_progress", content=[])
        content = self._output[place]["content"]
        if not content or content[-1]["type"] != kind:
            content.append({"type": kind, key: ""} | ({"annotations": [], "logprobs": []} if key == "text" else {}))
            self._emit_part("response.content_part.added", place, len(content) - 1)
        content[-1][key] += mended(text)
        where = {"content_index": len(content) - 1} | _logprobs(key)
        self._emit_at(f"response.{kind}.delta", place, delta=mended(text), **where)

    def _end_text(self) -> None:
        if (place := self._message()) is not None:
            self._end_item(place, "completed")

    def _message(self) -> int | None:
        """Return the place of the unfinished message, or None."""
        return next((place for place in self._open if self._output[place]["type"] == "message"), None)

    def _begin_call(self, id_: Any, name: Any) -> int:
        call = {"type": "function_call", "status": "in_progress", "arguments": ""}
        return self._begin_item("fc", **call, call_id=id_ or "", name=name or "")

    def _add_arguments(self, place: int, text: str) -> None:
        self._output[place]["arguments"] += text
        self._emit_at("response.function_call_arguments.delta", place, delta=text)

    def _begin_item(self, prefix: str, **fields: Any) -> int:
        place = len(self._output)
        item = {"id": f"{prefix}_{self._stem}_{place}", **fields}
        self._output.append(item)
        self._open.append(place)
        self._emit("response.output_item.added", output_index=place, item=item)
        return place

    def _end_item(self, place: int, status: str) -> None:
        """End an item with its complete text or arguments."""
        self._open.remove(place)
        item = self._output[place]
        item["status"] = status
        if item["type"] == "function_call":
            call = {"arguments": item["arguments"], "name": item["name"]}
            self._emit_at("response.function_call_arguments.done", place, **call)
        for number, part in enumerate(item.get("content", ())):
            key = "text" if part["type"] == "output_text" else "refusal"
            where = {"content_index": number, key: part[key]} | _logprobs(key)
            self._emit_at(f"response.{part['type']}.done", place, **where)
            self._emit_part("response.content_part.done", place, number)
        self._emit("response.output_item.done", output_index=place, item=item)

    def _emit_part(self, kind: str, place: int, number: int) -> None:
        self._emit_at(kind, place, content_index=number, part=self._output[place]["content"][number])

    def _emit_at(self, kind: str, place: int, **fields: Any) -> None:
        self._emit(kind, output_index=place, item_id=self._output[place]["id"], **fields)

    def _emit(self, kind: str, **fields: Any) -> None:
        super()._emit(kind, sequence_number=self._number, **fields)
        self._number += 1


def _logprobs(key: str) -> dict[str, Any]:
    return {"logprobs": []} if key == "text" else {}


def _usage(data: Mapping[str, Any]) -> dict[str, Any]:
    read, written = data.get("prompt_tokens") or 0, data.get("completion_tokens") or 0
    cached, thought = as_dict(data.get("prompt_tokens_details")), as_dict(data.get("completion_tokens_details"))
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached.get("cached_tokens") or 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought.get("reasoning_tokens") or 0},
        "total_tokens": data.get("total_tokens") or read + written,
    }


# ---- Conversation items ------------------------------------------------------------------------------------------


#: Metadata key of data that a client attached to a conversation.
ATTACHED: Final = "clientMetadata"
#: OpenAI's limits: pairs, characters of a name, characters of a value.
PAIRS, LONGEST_NAME, LONGEST_VALUE = 16, 64, 512
#: Id prefixes of conversations created here, and of OpenAI's.
_OURS: Final = re.compile(r"conv_cb[0-9a-f]{20}")
_THEIRS: Final = re.compile(r"conv_[0-9a-f]{32,}")
#: Prefix of an item's id by its type.
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fco"}


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
    message = post.wire or write_message(post, user=user)
    stem = id_stem(AnswerId(conversation, *(answer or (post.seq,))))
    if post.role == "assistant":
        writer = ResponsesWriter(PREFIX + stem, conversation="", created=0, model="", echo={})
        writer.take_message(msgspec.json.decode(message))
        writer.end("" if post.state == "complete" else "The answer was interrupted.")
        return [{**item, "id": f"{_prefix(item)}_{stem}_{n}"} for n, item in enumerate(writer.document()["output"])]
    return [
        {"id": f"{_prefix(item)}_{stem}_{n}", "status": "completed", **item}
        | ({"content": write_content(item["content"])} if isinstance(item.get("content"), str) else {})
        for n, item in enumerate(write_items(message))
    ]


def _prefix(item: Mapping[str, Any]) -> str:
    """Return the prefix of an item's id: that of the provider's, or the usual one of its type."""
    kind, id_ = str(item.get("type")), str(item.get("id") or "")
    return _PREFIXES.get(kind) or id_.partition("_")[0] or kind
