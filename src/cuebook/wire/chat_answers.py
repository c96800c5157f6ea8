"""Read and write the answers of OpenAI's chat completions: chunks of a stream, or one document."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

import msgspec
from msgspec import Raw

from cuebook.records.answers import mended
from cuebook.records.turn import Usage
from cuebook.wire.answer import StreamReader, as_dict, error_message, growing_text, joined

#: Fields of a delta that are never split: providers that repeat them must not cause "call_1call_1".
_WHOLE = frozenset({"role", "id", "type", "name", "index"})
#: Fields with the id and the model of an answer.
_FRAME = ("id", "created", "model", "system_fingerprint", "service_tier")

_encode = msgspec.json.Encoder(enc_hook=joined).encode


# ---- Reading --------------------------------------------------------------------------------------------------------


class ChatReader(StreamReader):
    """Reads a chat completion, which may have several choices.

    `resent` converts a message to the form in which a client of another wire resends it. Such a client sends results
    for all calls, whatever the finish reason says.
    """

    def __init__(self, resent: Callable[[bytes], bytes] | None = None) -> None:
        super().__init__()
        self._resent = resent
        self._messages: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> str:
        """Add a chunk. Return the text it adds to the first choice."""
        return self._add(event, "delta")

    def add_document(self, document: dict[str, Any]) -> None:
        """Add a complete answer."""
        self._add(document, "message")

    def _add(self, event: dict[str, Any], text: str) -> str:
        answer = self.answer
        if error := event.get("error"):
            answer.error = error_message(error)
        if not answer.frame.get("id"):
            frame = {name: event[name] for name in _FRAME if isinstance(event.get(name), str | int)}
            answer.frame = {name: mended(value) if isinstance(value, str) else value for name, value in frame.items()}
        if isinstance(usage := event.get("usage"), dict):
            answer.usage = read_usage(usage)
        choices = event.get("choices")
        numbered = enumerate(choices if isinstance(choices, list) else ())
        return "".join(
            self._add_choice(choice, number, text) for number, choice in numbered if isinstance(choice, dict)
        )

    def _add_choice(self, choice: dict[str, Any], number: int, text: str) -> str:
        index, reason, delta = choice.get("index", number), choice.get("finish_reason"), choice.get(text)
        index = index if isinstance(index, int) else number
        if isinstance(reason, str) and (index in self._messages or isinstance(delta, dict)):
            self.answer.finish[index] = mended(reason)
            if index == 0 and self._resent is None:
                self.answer.waits = reason != "stop"
        if not isinstance(delta, dict):
            return ""
        self.answer.finish.setdefault(index, "")
        _merge(self._messages.setdefault(index, {}), delta)
        content = delta.get("content")
        return content if index == 0 and isinstance(content, str) else ""

    def message(self, choice: int = 0) -> bytes | None:
        """Return a choice so far as an assistant message, or None if it is empty or invalid."""
        data = self._messages.get(choice)
        if not data:
            return None
        message = {"role": "assistant", "content": None} | {name: data[name] for name in data if name != "role"}
        if isinstance(calls := message.get("tool_calls"), list):
            message["tool_calls"] = [
                {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call
                for call in calls
            ]
        try:
            encoded = _encode(message)
        except UnicodeEncodeError:  # lone surrogate in a field that is not merged
            return None
        return encoded if self._resent is None else self._resent(encoded)


def _merge(contents: dict[str, Any], delta: dict[str, Any]) -> None:
    """Merge a delta into a message: append texts, merge lists by index, replace other fields."""
    for name, value in delta.items():
        old = contents.get(name)
        if isinstance(value, str) and name not in _WHOLE:
            if isinstance(old, StringIO):
                old.write(value)
            elif value or old is None:
                contents[name] = growing_text(value)
        elif isinstance(value, dict):
            if not isinstance(old, dict):
                contents[name] = old = {}
            _merge(old, value)
        elif isinstance(value, list):
            if not isinstance(old, list):
                contents[name] = old = []
            _merge_list(old, value)
        elif (value is not None and value != "") or name not in contents:
            contents[name] = value


def _merge_list(contents: list[Any], delta: list[Any]) -> None:
    places = {item["index"]: item for item in contents if isinstance(item, dict) and isinstance(item.get("index"), int)}
    for item in delta:
        if not isinstance(item, dict):
            contents.append(item)
            continue
        index = item.get("index")
        place = places.get(index) if isinstance(index, int) else None
        if place is None:
            place = {}
            contents.append(place)
            if isinstance(index, int):
                places[index] = place
        _merge(place, item)


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return a provider's token counts with cache reads and writes, or None if they are invalid."""
    details = as_dict(usage.get("prompt_tokens_details"))
    return Usage(
        input=_count(usage.get("prompt_tokens")),
        output=_count(usage.get("completion_tokens")),
        cache_read=_count(details.get("cached_tokens")),
        cache_write=_count(details.get("cache_write_tokens")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


# ---- Writing --------------------------------------------------------------------------------------------------------


def usage_fields(usage: Usage | None) -> dict[str, Any] | None:
    """Return token counts in the format of a chat completion, or None if they are not all known."""
    if usage is None or usage.input is None or usage.output is None:
        return None
    fields: dict[str, Any] = {
        "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output,
    }  # fmt: skip
    return fields | ({} if usage.cache_read is None else {"prompt_tokens_details": {"cached_tokens": usage.cache_read}})


def write_chunk(
    frame: Mapping[str, Any],
    delta: Mapping[str, Any] | None,
    *,
    index: int = 0,
    finish: str | None = None,
    usage: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a chunk of a stream as an event. Without `delta` it has no choice and contains the usage."""
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
    chunk = {**frame, "object": "chat.completion.chunk", "choices": [] if delta is None else [choice]}
    return b"data: " + _encode(chunk | ({"usage": usage} if usage else {})) + b"\n\n"


def write_end(
    frame: Mapping[str, Any], reasons: Sequence[str | None], usage: Mapping[str, Any] | None
) -> Iterator[bytes]:
    """Yield the last events of a stream: each choice's finish reason, the usage if any, and the end marker."""
    for n, reason in enumerate(reasons):
        yield write_chunk(frame, {}, index=n, finish=reason)
    if usage:
        yield write_chunk(frame, None, usage=usage)
    yield b"data: [DONE]\n\n"


def write_stream(
    frame: Mapping[str, Any], messages: Sequence[bytes], reasons: Sequence[str], usage: Mapping[str, Any] | None
) -> Iterator[bytes]:
    """Yield complete messages as the chunks of a stream, each as one delta with numbered calls."""
    for n, message in enumerate(messages):
        delta: dict[str, Any] = msgspec.json.decode(message)
        if isinstance(calls := delta.get("tool_calls"), list):
            numbered = enumerate(calls)
            delta["tool_calls"] = [{"index": at, **call} if isinstance(call, dict) else call for at, call in numbered]
        yield write_chunk(frame, delta, index=n)
    yield from write_end(frame, reasons, usage)


def write_completion(
    frame: Mapping[str, Any], messages: Sequence[bytes], reasons: Sequence[str], usage: Mapping[str, Any] | None
) -> bytes:
    """Return complete messages as the choices of one document."""
    choices = [
        {"index": n, "message": Raw(message), "finish_reason": reason, "logprobs": None}
        for n, (message, reason) in enumerate(zip(messages, reasons, strict=True))
    ]
    counted = {"usage": usage} if usage else {}
    return _encode({**frame, "object": "chat.completion", "choices": choices, **counted})
