"""Render a chat completion as a response or a stream of events of OpenAI's Responses wire."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cuebook.wire.responses_requests import UNSTORED

#: Reason of an incomplete response by a chat completion's finish reason.
_CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
#: Part of a message: key of its delta -> type, key of its text, and events.
_PARTS: Final = {
    "content": ("output_text", "text", "output_text"),
    "refusal": ("refusal", "refusal", "refusal"),
}


class ResponseBuilder:
    """Builds a response from the chunks of a chat completion. Each chunk returns its events."""

    def __init__(self, id_: str, *, conversation: str, created: int, model: str, echo: Mapping[str, Any]) -> None:
        """Start. `created` is in Unix seconds, `echo` repeats fields of the request."""
        self.response: dict[str, Any] = {
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
        self._stem = id_.partition("_")[2].removeprefix(UNSTORED)
        self._number = 0
        self._open: dict[int, dict[str, Any]] = {}  # items by output index
        self._calls: dict[int, int] = {}  # a call's index in the chunks -> its output index
        self._finish = ""

    def begin(self) -> bytes:
        """Return the first events of a stream."""
        return self._tell("response.created") + self._tell("response.in_progress")

    def take(self, chunk: Mapping[str, Any], text: str = "delta") -> bytes:
        """Parse a chunk (`delta`) or a complete answer (`message`)."""
        if isinstance(chunk.get("model"), str) and chunk["model"]:
            self.response["model"] = chunk["model"]
        if isinstance(chunk.get("usage"), dict):
            self.response["usage"] = _usage(chunk["usage"])
        events = b""
        for choice in chunk.get("choices") or ():
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                continue  # a response has one answer
            events += self._hear(choice.get(text) or {})
            self._finish = choice.get("finish_reason") or self._finish
        return events

    def _hear(self, delta: Mapping[str, Any]) -> bytes:
        events = b""
        for name, (kind, text, event) in _PARTS.items():
            if isinstance(delta.get(name), str) and delta[name]:
                events += self._say(delta[name], kind=kind, text=text, event=event)
        for number, call in enumerate(delta.get("tool_calls") or ()):
            if isinstance(call, dict):
                events += self._call(call, call.get("index", number))
        return events

    def _say(self, content: str, *, kind: str, text: str, event: str) -> bytes:
        events = b""
        place = next((at for at, item in self._open.items() if item["type"] == "message"), None)
        if place is None:
            message = {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
            place, events = self._add(message, "msg")
        item = self._open[place]
        if not item["content"] or item["content"][-1]["type"] != kind:
            part: dict[str, Any] = {"type": kind, text: ""} | (
                {"annotations": [], "logprobs": []} if text == "text" else {}
            )
            item["content"].append(part)
            events += self._part("response.content_part.added", place)
        item["content"][-1][text] += content
        logprobs: dict[str, Any] = {"logprobs": []} if text == "text" else {}
        return events + self._at(f"response.{event}.delta", place, delta=content, **self._in(place), **logprobs)

    def _call(self, call: Mapping[str, Any], index: int) -> bytes:
        function, events = call.get("function") or {}, b""
        if index not in self._calls:
            for place, item in list(self._open.items()):
                if item["type"] == "message":
                    events += self._end(place, "completed")
            made = {"type": "function_call", "status": "in_progress", "arguments": ""}
            made |= {"call_id": call.get("id") or "", "name": function.get("name") or ""}
            self._calls[index], added = self._add(made, "fc")
            events += added
        place = self._calls[index]
        if arguments := function.get("arguments"):
            self._open[place]["arguments"] += arguments
            events += self._at("response.function_call_arguments.delta", place, delta=arguments)
        return events

    def _add(self, item: dict[str, Any], prefix: str) -> tuple[int, bytes]:
        place = len(self.response["output"])
        item = {"id": f"{prefix}_{self._stem}_{place}", **item}
        self.response["output"].append(item)
        self._open[place] = item
        return place, self._event("response.output_item.added", output_index=place, item=item)

    def _end(self, place: int, status: str) -> bytes:
        """End an item with its complete text or arguments."""
        item, events = self._open.pop(place), b""
        item["status"] = status
        if item["type"] == "function_call":
            data = {"arguments": item["arguments"], "name": item["name"]}
            events += self._at("response.function_call_arguments.done", place, **data)
        for number, part in enumerate(item.get("content", ())):
            text = "text" if part["type"] == "output_text" else "refusal"
            logprobs: dict[str, Any] = {"logprobs": []} if text == "text" else {}
            where = {"content_index": number, text: part[text], **logprobs}
            events += self._at(f"response.{part['type']}.done", place, **where)
            events += self._part("response.content_part.done", place, number)
        return events + self._event("response.output_item.done", output_index=place, item=item)

    def end(self, broken: str = "") -> bytes:
        """End the response. `broken` is the reason why it is incomplete."""
        cut = _CUT.get(self._finish)
        events = b""
        for place in sorted(self._open):
            events += self._end(place, "incomplete" if cut or broken else "completed")
        if broken:
            self.response["status"] = "failed"
            self.response["error"] = {"code": "server_error", "message": broken}
        else:
            self.response["status"] = "incomplete" if cut else "completed"
            self.response["incomplete_details"] = {"reason": cut} if cut else None
        return events + self._tell(f"response.{self.response['status']}")

    @property
    def whole(self) -> bool:
        """Return whether the answer is complete."""
        return bool(self._finish)

    def _in(self, place: int) -> dict[str, int]:
        return {"content_index": len(self._open_or_ended(place)["content"]) - 1}

    def _open_or_ended(self, place: int) -> dict[str, Any]:
        data: dict[str, Any] = self.response["output"][place]
        return data

    def _part(self, kind: str, place: int, number: int | None = None) -> bytes:
        content = self._open_or_ended(place)["content"]
        number = len(content) - 1 if number is None else number
        return self._at(kind, place, content_index=number, part=content[number])

    def _at(self, kind: str, place: int, **data: Any) -> bytes:
        return self._event(kind, output_index=place, item_id=self._open_or_ended(place)["id"], **data)

    def _tell(self, kind: str) -> bytes:
        return self._event(kind, response=self.response)

    def _event(self, kind: str, **data: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **data}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _usage(data: Mapping[str, Any]) -> dict[str, Any]:
    read, written = data.get("prompt_tokens") or 0, data.get("completion_tokens") or 0
    cached, thought = data.get("prompt_tokens_details") or {}, data.get("completion_tokens_details") or {}
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached.get("cached_tokens") or 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought.get("reasoning_tokens") or 0},
        "total_tokens": data.get("total_tokens") or read + written,
    }
