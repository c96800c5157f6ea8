"""Parse and write streams of server-sent events (SSE): lines, and the JSON of their events.

The grammar of events is WHATWG HTML's, 9.2 "Server-sent events".
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from cuebook.records.expression import nests_deeper

#: A longer line is relayed before it ends, to bound memory.
LONGEST_LINE = 4 * 1024 * 1024
#: Deepest nesting of a stored answer. Ten levels are usual; each takes a parser two of Python's 1000 frames.
DEPTH = 256
#: Data that marks the end of a stream.
DONE = b"[DONE]"

_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


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


def write_event(kind: str, **fields: Any) -> bytes:
    """Return a named event whose JSON repeats its name as `type`."""
    return b"event: " + kind.encode() + b"\ndata: " + _encode({"type": kind, **fields}) + b"\n\n"
