"""Read the answers of Anthropic's messages API, and render a chat completion as one."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any, Final

import msgspec

from cuebook.errors import InvalidInput
from cuebook.records.answers import mended
from cuebook.records.turn import Usage
from cuebook.wire.answer import AnswerWriter, StreamReader, as_dict, error_message, growing_text, joined
from cuebook.wire.anthropic_messages import call_input, read_reply
from cuebook.wire.chat_answers import read_usage
from cuebook.wire.event_stream import read_event, write_event

#: Stop reason of an answer that waits for tool results.
_CALLS: Final = "tool_use"
#: Fields of a block whose text grows by deltas. A call's JSON is parsed once complete.
_GROWS: Final = ("text", "thinking", "partial_json", "signature")
#: Field of an answer with the provider's edits of the context.
EDITS: Final = "context_management"
#: Fields of a compaction, which one delta sets.
_STATE: Final = frozenset({"content", "encrypted_content"})
#: Most blocks of an answer, to bound memory.
MOST_BLOCKS = 4096
#: Stop reason by a chat completion's finish reason.
_STOPS: Final = {
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
    "content_filter": "refusal",
}  # fmt: skip
#: Key of a block's content by its type, and the event that it is sent in.
_DELTAS: Final = {
    "text": ("text", "text_delta", "text"), "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}  # fmt: skip
#: Error types by HTTP status.
_ERRORS: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip

_encode = msgspec.json.Encoder().encode


# ---- Reading --------------------------------------------------------------------------------------------------------


class MessagesReader(StreamReader):
    """Reads a message: its events, or one document."""

    def __init__(self) -> None:
        super().__init__()
        self.answer.frame, self.answer.waits = {"id": "", "model": ""}, False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._counts: dict[str, int] = {}

    @property
    def content(self) -> list[dict[str, Any]]:
        """Return the blocks in order, with joined texts and parsed JSON of calls."""
        return [_whole(block) for _, block in sorted(self._blocks.items())]

    def add(self, event: dict[str, Any]) -> str:
        """Add an event. Return the text it adds."""
        kind, delta = event.get("type"), as_dict(event.get("delta"))
        if kind == "content_block_delta":
            return self._grow(_index(event), delta) if isinstance(event.get("delta"), dict) else ""
        if kind == "content_block_start" and isinstance(block := event.get("content_block"), dict):
            return self._begin(_index(event), block)
        if kind == "message_start" and isinstance(message := event.get("message"), dict):
            self.add_document(message)
        elif kind == "message_delta":
            if isinstance(stop := delta.get("stop_reason"), str):
                self._stop(mended(stop))
            self._count(event.get("usage"))
            self._keep_edits(event)
        elif kind == "message_stop":
            self.answer.finish.setdefault(0, "")
            self.answer.done = True
        elif kind == "error":
            self.answer.error = error_message(event.get("error"))
        return ""

    def add_document(self, document: dict[str, Any]) -> None:
        """Add a message: the start of a stream, or a complete answer."""
        if document.get("type") == "error":
            self.answer.error = error_message(document.get("error"))
            return
        self.answer.frame = {"id": _text(document.get("id")), "model": _text(document.get("model"))}
        self._stop(_text(document.get("stop_reason")))
        content = document.get("content")
        for number, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict):
                self._begin(number, block)
        self._count(document.get("usage"))
        self._keep_edits(document)

    def _keep_edits(self, data: Mapping[str, Any]) -> None:
        if isinstance(edits := data.get(EDITS), dict):
            self.answer.frame[EDITS] = edits

    def message(self, choice: int = 0) -> bytes | None:
        """Return the answer so far as one chat message, or None if it is empty or invalid."""
        if choice or not self.answer.finish or not (self._blocks or self.answer.whole):
            return None
        try:
            return read_reply(self.content)
        except (InvalidInput, msgspec.MsgspecError):
            return None

    def _stop(self, reason: str) -> None:
        self.answer.finish[0] = reason
        self.answer.waits = reason == _CALLS

    def _begin(self, index: int, block: Mapping[str, Any]) -> str:
        if index not in self._blocks and len(self._blocks) >= MOST_BLOCKS:
            return ""
        self._blocks[index] = {
            name: growing_text(value) if name in _GROWS and isinstance(value, str) else value
            for name, value in block.items()
        }
        return text if isinstance(text := block.get("text"), str) else ""

    def _grow(self, index: int, delta: Mapping[str, Any]) -> str:
        self.answer.finish.setdefault(0, "")
        if index not in self._blocks:
            self._begin(index, {"type": "text"})
        block = self._blocks.get(index, {})
        for name in _GROWS:
            piece = delta.get(name)
            text = block.setdefault(name, StringIO()) if isinstance(piece, str) else None
            if isinstance(text, StringIO):
                text.write(str(piece))
        for name in _STATE & delta.keys():
            block[name] = delta[name]
        if "citation" in delta:
            cited = block.get("citations")
            block["citations"] = [*(cited if isinstance(cited, list) else ()), delta["citation"]]
        return added if isinstance(added := delta.get("text"), str) else ""

    def _count(self, usage: object) -> None:
        """Add token counts. Input includes cache reads and cache writes."""
        for name, value in as_dict(usage).items():
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62:
                self._counts[name] = value
        if not (counts := self._counts):
            return
        read, write = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
        new = counts.get("input_tokens")
        prompt = None if new is None else new + (read or 0) + (write or 0)
        self.answer.usage = Usage(input=prompt, output=counts.get("output_tokens"), cache_read=read, cache_write=write)


def _whole(block: Mapping[str, Any]) -> dict[str, Any]:
    data = {
        name: joined(value) if isinstance(value, StringIO) else value
        for name, value in block.items()
        if name != "partial_json"
    }
    if isinstance(pieces := block.get("partial_json"), StringIO) and (raw := joined(pieces)):
        try:
            data["input"] = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            data["input"] = raw
    return data


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else 0


def _text(value: object) -> str:
    return mended(value) if isinstance(value, str) else ""


# ---- Writing --------------------------------------------------------------------------------------------------------


class MessagesWriter(AnswerWriter):
    """Renders a chat completion as a message, with the events of its stream."""

    def __init__(self, id_: str, *, model: str, tokens: int) -> None:
        """Start with `tokens` of the prompt, until the provider reports them."""
        super().__init__()
        self._id, self._model = id_, model
        self._blocks: list[dict[str, Any]] = []
        self._texts: list[StringIO] = []
        self._open: list[int] = []  # unfinished blocks
        self._usage = message_usage(Usage(input=tokens))

    def document(self) -> dict[str, Any]:
        """Return the message so far, with its calls' JSON parsed."""
        content = [_with_text(block, joined(text)) for block, text in zip(self._blocks, self._texts, strict=True)]
        return write_answer(self._id, self._model, content, stop=self._stop, usage=self._usage)

    def begin(self) -> bytes:
        """Return the first events of a stream."""
        return write_event(
            "message_start", message=write_answer(self._id, self._model, [], stop=None, usage=self._usage)
        )

    def end(self, broken: str = "") -> bytes:
        """Return the last events of a stream: block ends, stop reason and usage. After an error there are none."""
        if self.error or broken:
            return b""
        for place in self._open:
            self._emit("content_block_stop", index=place)
        self._open = []
        self._emit("message_delta", delta={"stop_reason": self._stop, "stop_sequence": None}, usage=self._usage)
        self._emit("message_stop")
        return self._flush()

    @property
    def _stop(self) -> str:
        calls = any(block["type"] == "tool_use" for block in self._blocks)
        return "tool_use" if calls and self.finish != "length" else _STOPS.get(self.finish, "end_turn")

    def _set_model(self, model: str) -> None:
        self._model = model

    def _set_usage(self, usage: Mapping[str, Any]) -> None:
        counts = read_usage(usage)
        if counts.input is None:
            counts = msgspec.structs.replace(counts, input=self._usage["input_tokens"])
        self._usage = message_usage(counts)

    def _fail(self, error: str) -> None:
        super()._fail(error)
        self._emit("error", error={"type": "api_error", "message": error})

    def _add_text(self, name: str, text: str) -> None:  # noqa: ARG002  a refusal is a text here
        if not self._blocks or self._blocks[-1]["type"] != "text":
            self._begin_block({"type": "text", "text": ""})
        self._grow(len(self._blocks) - 1, text)

    def _end_text(self) -> None:
        for place in [each for each in self._open if self._blocks[each]["type"] == "text"]:
            self._open.remove(place)
            self._emit("content_block_stop", index=place)

    def _begin_call(self, id_: Any, name: Any) -> int:
        place = len(self._blocks)
        call = {"id": str(id_ or f"toolu_{place}"), "name": str(name or "tool"), "input": {}}
        self._begin_block({"type": "tool_use", **call})
        return place

    def _add_arguments(self, place: int, text: str) -> None:
        self._grow(place, text)

    def _begin_block(self, block: dict[str, Any]) -> None:
        self._open.append(len(self._blocks))
        self._emit("content_block_start", index=len(self._blocks), content_block=block)
        self._blocks.append(block)
        self._texts.append(StringIO())

    def _grow(self, place: int, text: str) -> None:
        self._texts[place].write(text)
        _, kind, name = _DELTAS[self._blocks[place]["type"]]
        self._emit("content_block_delta", index=place, delta={"type": kind, name: mended(text)})


def write_answer(
    id_: str, model: str, content: list[dict[str, Any]], *, stop: str | None, usage: Mapping[str, int]
) -> dict[str, Any]:
    """Return an answer's document."""
    return {
        "id": id_, "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": stop, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def message_usage(usage: Usage | None) -> dict[str, int]:
    """Return token counts in Anthropic's format: cache reads and cache writes are not part of the input."""
    usage = usage or Usage()
    read, write = usage.cache_read or 0, usage.cache_write or 0
    return {
        "input_tokens": max((usage.input or 0) - read - write, 0), "cache_creation_input_tokens": write,
        "cache_read_input_tokens": read, "output_tokens": usage.output or 0,
    }  # fmt: skip


def write_error(status: int, body: bytes) -> bytes:
    """Return an error of OpenAI's wire as an error of this wire."""
    error = as_dict(read_event(body)).get("error")
    reason = error.get("message") if isinstance(error, dict) else error
    message = reason if isinstance(reason, str) else body[:500].decode("utf-8", "replace") or "no answer"
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return _encode({"type": "error", "error": {"type": kind, "message": message}})


def write_events(message: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a complete message as the events of a stream."""
    content: Sequence[Mapping[str, Any]] = message["content"]
    yield write_event("message_start", message={**message, "content": [], "stop_reason": None})
    for place, block in enumerate(content):
        name, kind, piece = _DELTAS.get(str(block.get("type")), ("", "", ""))
        value = block.get(name)
        empty: Any = {} if name == "input" else ""
        begun = {**block, name: empty} if name else dict(block)
        signature = begun.pop("signature", None)
        yield write_event("content_block_start", index=place, content_block=begun)
        deltas = []
        if value:
            deltas.append({"type": kind, piece: value if isinstance(value, str) else _encode(value).decode()})
        if signature:
            deltas.append({"type": "signature_delta", "signature": signature})
        for delta in deltas:
            yield write_event("content_block_delta", index=place, delta=delta)
        yield write_event("content_block_stop", index=place)
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    edits = {EDITS: message[EDITS]} if EDITS in message else {}
    yield write_event("message_delta", delta=delta, usage=message["usage"], **edits)
    yield write_event("message_stop")


def _with_text(block: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {**block, "input": call_input(text)} if block["type"] == "tool_use" else {**block, "text": text}
