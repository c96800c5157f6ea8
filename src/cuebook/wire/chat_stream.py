"""Parse streams of OpenAI's wire: lines of server-sent events (SSE), their JSON, and token usage.

The grammar of events is WHATWG HTML's, 9.2 "Server-sent events".
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cuebook.records.expression import nests_deeper
from cuebook.records.turn import Usage

#: A longer line is relayed before it ends, to bound memory.
LONGEST_LINE = 4 * 1024 * 1024
#: Deepest nesting of a stored answer. Ten levels are usual; each takes a parser two of Python's 1000 frames.
DEPTH = 256
#: Data that marks the end of a stream.
DONE = b"[DONE]"

_BOM = b"\xef\xbb\xbf"
_HALVES = re.compile("[\ud800-\udfff]")
_decode = msgspec.json.Decoder().decode


class ByteLines:
    """Splits a byte stream into lines without changing a byte."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield complete lines with their line ends."""
        if self._pieces and self._pieces[-1].endswith(b"\r"):
            data = self.rest() + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1  # a final "\r" may be the first half of "\r\n"
        if end:
            yield from (b"".join(self._pieces) + data[:end]).splitlines(keepends=True)
            self._pieces, self._size, data = [], 0, data[end:]
        if data:
            self._pieces.append(data)
            self._size += len(data)
        if self._size > LONGEST_LINE:
            yield self.rest()

    def rest(self) -> bytes:
        """Return the bytes after the last line end."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return rest


class Events:
    """Parses the JSON of events from a stream's lines."""

    def __init__(self) -> None:
        self.done = False  # the stream sent its end marker
        self._held = bytearray()  # data of an unfinished event

    def read(self, line: bytes) -> Any:
        """Return the JSON of the event that a line completes, or None if there is none or it is invalid.

        A line with a complete event is parsed at once, others at the end of their event.
        """
        line = line.removeprefix(_BOM)  # a stream may start with one
        if line.startswith(b"data:"):
            return self._add(line[5:].strip())
        if line.strip() or not self._held:
            return None
        data, self._held = bytes(self._held), bytearray()
        return read_event(data)

    def _add(self, data: bytes) -> Any:
        if data == DONE:
            self.done = True
            return None
        event = None if self._held else read_event(data)
        if event is None and len(self._held) + len(data) < LONGEST_LINE:
            self._held += data + b"\n"
        return event


def read_event(data: bytes) -> Any:
    """Parse an event's JSON. Return None if it is invalid or too deep. Replace bytes that are not UTF-8.

    A lone surrogate stays, because some servers send the other half in the next event (`mended`).
    """
    if nests_deeper(data, DEPTH):
        return None
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        return None


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return a provider's token counts with cache reads and writes, or None if they are invalid."""
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    return Usage(
        input=_count(usage.get("prompt_tokens")),
        output=_count(usage.get("completion_tokens")),
        cache_read=_count(details.get("cached_tokens")),
        cache_write=_count(details.get("cache_write_tokens")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None
