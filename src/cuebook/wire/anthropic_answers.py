"""Render a chat completion as an Anthropic message or stream of events, and parse Anthropic's streams."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.records.answers import mended
from cuebook.records.turn import Usage
from cuebook.wire.chat_stream import read_usage

#: Stop reason by a chat completion's finish reason.
_STOPS: Final = {
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
    "content_filter": "refusal",
}  # fmt: skip
#: Key of a block's content by its type, and the event that it is sent in.
_SAID: Final = {
    "text": ("text", "text_delta", "text"), "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}  # fmt: skip

_encode = msgspec.json.Encoder().encode


class MessageTelling:
    """Builds a message from the chunks of a chat completion. Each chunk returns its events."""

    def __init__(self, id_: str, *, model: str, tokens: int) -> None:
        """Start with `tokens` of the prompt, until the provider reports them."""
        self._id, self._model = id_, model
        self._blocks: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []
        self._open: list[int] = []  # unfinished blocks
        self._calls: dict[int, int] = {}  # a call's index in the chunks -> its block
        self._stop = ""
        self._usage = {
            "input_tokens": tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0,
        }  # fmt: skip
        self._said = False  # an answer has started
        self.error = ""  # the error instead of an answer

    @property
    def whole(self) -> bool:
        """Return whether there is an answer."""
        return self._said

    @property
    def message(self) -> dict[str, Any]:
        """Return the message so far, with its calls' JSON parsed."""
        texts = map("".join, self._texts)
        content = [_told(block, mended(text)) for block, text in zip(self._blocks, texts, strict=True)]
        return self._frame(content, self._why)

    def begin(self) -> bytes:
        """Return the first events of a stream."""
        return event("message_start", message=self._frame([], None))

    def take(self, chunk: Mapping[str, Any], text: str = "delta") -> bytes:
        """Parse a chunk (`delta`) or a complete answer (`message`). Only the first choice counts."""
        if isinstance(chunk.get("model"), str) and chunk["model"]:
            self._model = chunk["model"]
        if isinstance(chunk.get("usage"), dict):
            self._count(chunk["usage"])
        events = b""
        if isinstance(error := chunk.get("error"), dict | str):
            self.error = str(error.get("message") if isinstance(error, dict) else error)
            events += event("error", error={"type": "api_error", "message": self.error})
        for choice in _list(chunk.get("choices")):
            if choice.get("index", 0) == 0:
                self._said = True
                events += self._hear(_dict(choice.get(text)))
                finish = choice.get("finish_reason")
                self._stop = finish if isinstance(finish, str) and finish else self._stop
        return events

    def end(self) -> bytes:
        """Return the last events of a stream: block ends, stop reason and usage. After an error there are none."""
        if self.error:
            return b""
        events = b"".join(self._close(place) for place in list(self._open))
        delta = {"stop_reason": self._why, "stop_sequence": None}
        return events + event("message_delta", delta=delta, usage=self._usage) + event("message_stop")

    @property
    def _why(self) -> str:
        calls = any(block["type"] == "tool_use" for block in self._blocks)
        return "tool_use" if calls and self._stop != "length" else _STOPS.get(self._stop, "end_turn")

    def _frame(self, content: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": content,
            "stop_reason": stop, "stop_sequence": None, "usage": self._usage,
        }  # fmt: skip

    def _hear(self, delta: Mapping[str, Any]) -> bytes:
        events = b""
        for name in ("content", "refusal"):
            if isinstance(delta.get(name), str) and delta[name]:
                events += self._say(delta[name])
        for number, call in enumerate(_list(delta.get("tool_calls"))):
            index = call.get("index", number)
            events += self._call(call, index if isinstance(index, int) else number)
        return events

    def _say(self, text: str) -> bytes:
        events = b""
        if not self._blocks or self._blocks[-1]["type"] != "text":
            events = self._add({"type": "text", "text": ""})
        return events + self._grow(len(self._blocks) - 1, text)

    def _call(self, call: Mapping[str, Any], index: int) -> bytes:
        function = _dict(call.get("function"))
        events = b""
        if index not in self._calls:
            for place in [each for each in self._open if self._blocks[each]["type"] == "text"]:
                events += self._close(place)
            self._calls[index] = len(self._blocks)
            made = {
                "id": str(call.get("id") or f"toolu_{len(self._blocks)}"), "name": str(function.get("name") or "tool"),
            }  # fmt: skip
            events += self._add({"type": "tool_use", **made, "input": {}})
        value = function.get("arguments")
        return events + (self._grow(self._calls[index], value) if isinstance(value, str) and value else b"")

    def _add(self, block: dict[str, Any]) -> bytes:
        self._open.append(len(self._blocks))
        self._blocks.append(block)
        self._texts.append([])
        return event("content_block_start", index=len(self._blocks) - 1, content_block=block)

    def _grow(self, place: int, text: str) -> bytes:
        self._texts[place].append(text)
        _, kind, name = _SAID[self._blocks[place]["type"]]
        return event("content_block_delta", index=place, delta={"type": kind, name: mended(text)})

    def _close(self, place: int) -> bytes:
        self._open.remove(place)
        return event("content_block_stop", index=place)

    def _count(self, usage: Mapping[str, Any]) -> None:
        found = read_usage(usage)
        self._usage = told_usage(
            self._usage["input_tokens"] if found.input is None else found.input,
            found.output or 0,
            read=found.cache_read or 0,
            written=found.cache_write or 0,
        )


def told_usage(given: int, said: int, *, read: int, written: int) -> dict[str, int]:
    """Return token counts in Anthropic's format: cache reads and cache writes are not part of the input."""
    return {
        "input_tokens": max(given - read - written, 0), "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read, "output_tokens": said,
    }  # fmt: skip


def events_of(message: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a complete message as the events of a stream."""
    content: Sequence[Mapping[str, Any]] = message["content"]
    yield event("message_start", message={**message, "content": [], "stop_reason": None})
    for place, block in enumerate(content):
        name, kind, piece = _SAID.get(str(block.get("type")), ("", "", ""))
        value = block.get(name)
        empty: Any = {} if name == "input" else ""
        begun = {**block, name: empty} if name else dict(block)
        signature = begun.pop("signature", None)
        yield event("content_block_start", index=place, content_block=begun)
        if value:
            text = value if isinstance(value, str) else _encode(value).decode()
            yield event("content_block_delta", index=place, delta={"type": kind, piece: text})
        if signature:
            yield event("content_block_delta", index=place, delta={"type": "signature_delta", "signature": signature})
        yield event("content_block_stop", index=place)
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    yield event("message_delta", delta=delta, usage=message["usage"])
    yield event("message_stop")


def event(kind: str, **fields: Any) -> bytes:
    """Return an event of a stream."""
    return b"event: " + kind.encode() + b"\ndata: " + _encode({"type": kind, **fields}) + b"\n\n"


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _told(block: Mapping[str, Any], text: str) -> dict[str, Any]:
    if block["type"] != "tool_use":
        return {**block, "text": text}
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        value = None
    return {**block, "input": value if isinstance(value, dict) else {"input": text}}


# ---- Stream of a provider -------------------------------------------------------------------------------------------


#: Key of a delta's text by its type. A call's JSON is parsed once complete.
_GROWS = {"text": "text", "thinking": "thinking", "partial_json": "partial_json", "signature": "signature"}
#: Most blocks of an answer, to bound memory.
MOST_BLOCKS = 4096


class Grown(Struct):
    """An answer so far. Mutable."""

    id: str = ""
    model: str = ""
    blocks: dict[int, dict[str, Any]] = {}
    stop: str = ""
    counts: dict[str, int] = {}
    begun: bool = False
    done: bool = False
    error: str = ""

    @property
    def usage(self) -> Usage | None:
        """Return the provider's token counts. Input includes cache reads and cache writes."""
        if not self.counts:
            return None
        read, write = self.counts.get("cache_read_input_tokens"), self.counts.get("cache_creation_input_tokens")
        given = self.counts.get("input_tokens")
        whole = None if given is None else given + (read or 0) + (write or 0)
        return Usage(input=whole, output=self.counts.get("output_tokens"), cache_read=read, cache_write=write)

    @property
    def content(self) -> list[dict[str, Any]]:
        """Return the blocks in order, with joined texts and parsed JSON of calls."""
        return [_whole(block) for _, block in sorted(self.blocks.items())]


def grow(grown: Grown, event: object) -> str:
    """Parse an event. Return the text it adds."""
    if not isinstance(event, dict):
        return ""
    kind = event.get("type")
    if kind == "message_start" and isinstance(message := event.get("message"), dict):
        take_message(grown, message)
    elif kind == "content_block_start" and isinstance(block := event.get("content_block"), dict):
        return _begin(grown, _index(event), block)
    elif kind == "content_block_delta" and isinstance(delta := event.get("delta"), dict):
        return _add(grown, _index(event), delta)
    elif kind == "message_delta":
        delta = event.get("delta")
        stop = delta.get("stop_reason") if isinstance(delta, dict) else None
        grown.stop = mended(stop) if isinstance(stop, str) else grown.stop
        _count(grown, event.get("usage"))
    elif kind == "message_stop":
        grown.begun = grown.done = True
    elif kind == "error":
        grown.error = _reason(event.get("error"))
    return ""


def take_message(grown: Grown, message: Mapping[str, Any]) -> None:
    """Parse a message: the start of a stream, or a complete answer."""
    if message.get("type") == "error":
        grown.error = _reason(message.get("error"))
        return
    grown.begun = True
    grown.id, grown.model = _text(message.get("id")), _text(message.get("model"))
    grown.stop = _text(message.get("stop_reason"))
    content = message.get("content")
    for number, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict):
            _begin(grown, number, block)
    _count(grown, message.get("usage"))


def _begin(grown: Grown, index: int, block: Mapping[str, Any]) -> str:
    if index not in grown.blocks and len(grown.blocks) >= MOST_BLOCKS:
        return ""
    new_block = grown.blocks[index] = dict(block)
    for name in _GROWS.values():
        value = new_block.get(name)
        new_block |= {name: [value]} if isinstance(value, str) else {}
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _add(grown: Grown, index: int, delta: Mapping[str, Any]) -> str:
    grown.begun = True
    if index not in grown.blocks:
        _begin(grown, index, {"type": "text"})
    block = grown.blocks.get(index, {})
    for name, into in _GROWS.items():
        piece = delta.get(name)
        if isinstance(piece, str):
            held = block.setdefault(into, [])
            if isinstance(held, list):
                held.append(piece)
    if "citation" in delta:
        cited = block.get("citations")
        block["citations"] = [*(cited if isinstance(cited, list) else ()), delta["citation"]]
    text = delta.get("text")
    return text if isinstance(text, str) else ""


def _whole(block: Mapping[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in block.items() if name != "partial_json"}
    for name in _GROWS.values():
        if name in data and isinstance(data[name], list) and all(isinstance(each, str) for each in data[name]):
            data[name] = mended("".join(data[name]))
    pieces = block.get("partial_json")
    if isinstance(pieces, list) and (raw := mended("".join(map(str, pieces)))):
        try:
            data["input"] = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            data["input"] = raw
    return data


def _count(grown: Grown, usage: object) -> None:
    for name, value in usage.items() if isinstance(usage, dict) else ():
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62:
            grown.counts[name] = value


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) else 0


def _text(value: object) -> str:
    return mended(value) if isinstance(value, str) else ""


def _reason(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return mended(message) if isinstance(message, str) and message else "The provider reported an error."
