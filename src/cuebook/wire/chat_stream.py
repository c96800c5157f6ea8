"""How an answer of the OpenAI wire comes: lines of server-sent events, the JSON they hold, the usage they tell.

The grammar of events is WHATWG HTML's, 9.2 "Server-sent events".
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cuebook.records.expression import nests_deeper
from cuebook.records.turn import Usage

#: A line longer than this is passed on before it ends: no upstream may make us keep it.
LONGEST_LINE = 4 * 1024 * 1024
#: How deep an answer may nest to be kept. Ten levels are usual; each costs who reads it two of Python's 1000 frames.
DEPTH = 256
#: What ends a stream instead of an event.
DONE = b"[DONE]"

_BOM = b"\xef\xbb\xbf"
_HALVES = re.compile("[\ud800-\udfff]")
_decode = msgspec.json.Decoder().decode


class ByteLines:
    """Cuts a byte stream into lines without changing a byte."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that are complete, each with its end."""
        if self._pieces and self._pieces[-1].endswith(b"\r"):
            data = self.rest() + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1  # a "\r" at the end may be half a line end
        if end:
            yield from (b"".join(self._pieces) + data[:end]).splitlines(keepends=True)
            self._pieces, self._size, data = [], 0, data[end:]
        if data:
            self._pieces.append(data)
            self._size += len(data)
        if self._size > LONGEST_LINE:
            yield self.rest()

    def rest(self) -> bytes:
        """Return what came behind the last line end."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return rest


class Events:
    """Reads the JSON of events off a stream's lines."""

    def __init__(self) -> None:
        self.done = False  # the stream has said that it is
        self._held = bytearray()  # data of an event that has not ended

    def read(self, line: bytes) -> Any:
        """Return the JSON of the event a line completes; None where it completes none, or one that is no JSON.

        A line that is a whole event by itself is given at once, one that is not when its event ends.
        """
        line = line.removeprefix(_BOM)  # a stream may begin with one
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
    """Return an event's JSON, None where it is none or nests too deep; bytes that are no UTF-8 are replaced.

    Half a surrogate pair stays: servers that cut texts between the halves send the other one next (`mended`).
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
    """Return a provider's count, with what its cache read and wrote; None for what is no count."""
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
