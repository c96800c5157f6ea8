"""How an answer of Anthropic's wire comes: events that begin, grow and end blocks, and the usage they tell.

Read as the provider's own library does (streaming guide, read 2026-11-22): counts of `message_delta` are totals and
stand for those of `message_start`. What is no event of this wire is passed over.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.records.openai_stream import mended
from cuebook.records.turn import Usage

#: Where a delta's text grows, by its own field: a call's JSON is read once it is whole.
_GROWS = {"text": "text", "thinking": "thinking", "partial_json": "partial_json", "signature": "signature"}
#: Blocks of one answer: a stream may not make us keep more.
MOST_BLOCKS = 4096


class Grown(Struct):
    """An answer as far as it has come; grown in place."""

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
        """What the provider counted: what it read of its cache and wrote to it is input too."""
        if not self.counts:
            return None
        read, write = self.counts.get("cache_read_input_tokens"), self.counts.get("cache_creation_input_tokens")
        given = self.counts.get("input_tokens")
        whole = None if given is None else given + (read or 0) + (write or 0)
        return Usage(input=whole, output=self.counts.get("output_tokens"), cache_read=read, cache_write=write)

    @property
    def content(self) -> list[dict[str, Any]]:
        """The blocks in order, their texts whole and their calls' JSON read."""
        return [_whole(block) for _, block in sorted(self.blocks.items())]


def grow(grown: Grown, event: object) -> str:
    """Take in an event; answers with what it adds to the text."""
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
    """Take in a message: how a stream begins, or an answer in one piece."""
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
    held = grown.blocks[index] = dict(block)
    for name in _GROWS.values():
        given = held.get(name)
        held |= {name: [given]} if isinstance(given, str) else {}
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
    said = {name: value for name, value in block.items() if name != "partial_json"}
    for name in _GROWS.values():
        if name in said and isinstance(said[name], list) and all(isinstance(each, str) for each in said[name]):
            said[name] = mended("".join(said[name]))
    pieces = block.get("partial_json")
    if isinstance(pieces, list) and (given := mended("".join(map(str, pieces)))):
        try:
            said["input"] = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            said["input"] = given
    return said


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
    return mended(message) if isinstance(message, str) and message else "it reports an error"
