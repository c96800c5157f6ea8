"""Convert a request of OpenAI's Responses wire to a chat completion, and encode response ids.

Features that a chat completion lacks (tools and files of the provider, background mode) raise an error naming the
field.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from cuebook.errors import InvalidInput

PREFIX: Final = "resp_"
#: Suffix of response ids with `store: false`, which cannot be looked up.
UNSTORED: Final = "unstored_"
#: Fields copied unchanged.
_SAME: Final = (
    "model", "temperature", "top_p", "parallel_tool_calls", "user", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "service_tier", "metadata", "store",
)  # fmt: skip
#: Fields without an equivalent in chat completions.
_REFUSED: Final = ("background", "prompt", "max_tool_calls", "moderation")
#: Fields that have an equivalent, or no effect on the answer.
_CONVERTED: Final = frozenset(
    {*_SAME, *_REFUSED, "input", "instructions", "stream", "stream_options", "previous_response_id", "conversation",
     "max_output_tokens", "reasoning", "tools", "tool_choice", "text"}
)  # fmt: skip
#: Tuples, because values to look up come from JSON and may be lists.
_ROLES: Final = ("user", "assistant", "system", "developer")
_TEXTS: Final = ("input_text", "output_text", "text")


class AnswerId(Struct, frozen=True, array_like=True):
    """A parsed id of a response or an item: the answer of a turn's step, or without `step` the post of a seq."""

    conversation: str
    number: Annotated[int, Meta(ge=1)]  # of the turn, or the post's seq
    step: Annotated[int, Meta(ge=0)] = 0  # counted from 1


class ResponseRequest(Struct, frozen=True, kw_only=True):
    """A parsed request: chat completion fields, what it continues, and fields that its answer repeats."""

    fields: dict[str, Any]
    echo: dict[str, Any]
    previous: str | None = None
    conversation: str | None = None
    left_out: tuple[str, ...] = ()  # fields and items that a chat completion lacks and that only tune the answer

    @property
    def user(self) -> str | None:
        """Return the user from the body."""
        named = self.fields.get("user") or self.fields.get("safety_identifier")
        return named if isinstance(named, str) else None


def write_id(answer: AnswerId, *, stored: bool = True) -> str:
    """Return a response id."""
    return PREFIX + ("" if stored else UNSTORED) + id_stem(answer)


def read_id(id_: str) -> AnswerId | None:
    """Parse a response id. Return None for foreign ids."""
    answer = read_stem(id_.removeprefix(PREFIX).removeprefix(UNSTORED))
    return answer if answer and answer.step else None


def id_stem(answer: AnswerId) -> str:
    """Return the part of an id that encodes a location."""
    fields = [answer.conversation, answer.number] + ([answer.step] if answer.step else [])
    return base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode().rstrip("=")


def read_stem(stem: str) -> AnswerId | None:
    """Parse the part of an id that encodes a location. Return None for foreign ids."""
    try:
        return msgspec.json.decode(base64.b64decode(stem + "=" * (-len(stem) % 4), b"-_", validate=True), type=AnswerId)
    except (binascii.Error, ValueError):  # DecodeError and ValidationError are ValueErrors
        return None


def is_stored(id_: str) -> bool:
    """Return whether an answer can be looked up by its id."""
    return not id_.startswith(PREFIX + UNSTORED)


def continued(data: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the answer or the conversation that a request continues."""
    conversation, previous = data.get("conversation"), data.get("previous_response_id")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    for name, value in (("conversation", conversation), ("previous_response_id", previous)):
        if value is not None and (not isinstance(value, str) or not value):
            raise wrong(name, "an id")
    if conversation and previous:
        raise wrong("previous_response_id", "missing, but required with conversation")
    return previous, conversation


def read_response_request(body: bytes) -> ResponseRequest:
    """Parse a request. Raises InvalidInput naming the field."""
    try:
        data = msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        msg = f"The request body is not a JSON object ({error})."
        raise InvalidInput(msg, where="body") from None
    for name in _REFUSED:
        if data.get(name):
            raise _cannot(name)
    previous, conversation = continued(data)
    fields = {name: data[name] for name in _SAME if data.get(name) is not None}
    fields["messages"] = _messages(data.get("input"), data.get("instructions"))
    fields |= _limits(data) | _tools(data) | _format(data)
    if data.get("stream") is True:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    return ResponseRequest(
        fields=fields, echo=_echo(data), previous=previous, conversation=conversation, left_out=_left_out(data)
    )


def _left_out(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields that a chat completion lacks, and the types of items that only their provider can use."""
    names = {name for name, value in data.items() if value and name not in _CONVERTED}
    reasoning = data.get("reasoning")
    names |= (
        {f"reasoning.{name}" for name, value in reasoning.items() if value and name != "effort"}
        if isinstance(reasoning, dict)
        else set()
    )
    items = data.get("input")
    if isinstance(items, list) and any(isinstance(item, dict) and item.get("type") == "reasoning" for item in items):
        names.add("input.reasoning")
    return tuple(sorted(names - ({"truncation"} if data.get("truncation") == "disabled" else set())))


def _echo(data: Mapping[str, Any]) -> dict[str, Any]:
    effort = data["reasoning"].get("effort") if isinstance(data.get("reasoning"), dict) else None
    return {
        "instructions": data.get("instructions"),
        "max_output_tokens": data.get("max_output_tokens"),
        "metadata": data.get("metadata") or {},
        "parallel_tool_calls": data.get("parallel_tool_calls") is not False,
        "previous_response_id": data.get("previous_response_id"),
        "reasoning": {"effort": effort, "summary": None},
        "store": data.get("store") is not False,
        "temperature": data.get("temperature"),
        "text": data.get("text") or {"format": {"type": "text"}},
        "tool_choice": data.get("tool_choice") or "auto",
        "tools": data.get("tools") or [],
        "top_p": data.get("top_p"),
        "truncation": data.get("truncation") or "disabled",
    }


# ---- Input ----------------------------------------------------------------------------------------------------------


def _messages(value: Any, instructions: Any) -> list[dict[str, Any]]:
    if instructions is not None and not isinstance(instructions, str):
        raise wrong("instructions", "a string")
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise wrong("input", "a string or a non-empty list of items")
    front: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    return front + read_items(items, "input")


def read_items(items: Iterable[Any], where: str) -> list[dict[str, Any]]:
    """Return items as equivalent chat messages. Function calls and the text before them form one message.

    Raises InvalidInput naming the item.
    """
    messages: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        place = f"{where}[{number}]"
        if not isinstance(item, dict):
            raise wrong(place, "an object")
        _add(messages, item, place)
    return messages


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    kind = item.get("type") or "message"
    if kind == "message" and item.get("role") in _ROLES:
        messages.append({"role": item["role"], "content": _content(item.get("content"), f"{where}.content")})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        if not all(isinstance(value, str) for value in (call["id"], *function.values())):
            raise wrong(where, "a function_call with call_id, name and arguments")
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output" and isinstance(item.get("call_id"), str):
        content = _content(item.get("output"), f"{where}.output")
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind != "reasoning":  # only its provider can use it
        raise _cannot(f"{where}.type {kind!r}", where=f"{where}.type")


def _content(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(where, "a string or a list of parts")
    parts = [_part(part, f"{where}[{number}]") for number, part in enumerate(value)]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(where, "an object")
    kind = value.get("type")
    if kind in _TEXTS and isinstance(value.get("text"), str):
        return {"type": "text", "text": value["text"]}
    if kind == "refusal":
        return {"type": "refusal", "refusal": value.get("refusal")}
    if kind == "input_image" and isinstance(value.get("image_url"), str):
        detail = {"detail": value["detail"]} if value.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": value["image_url"]} | detail}
    if kind == "input_file" and not value.get("file_url"):
        named = ("file_id", "file_data", "filename")
        return {"type": "file", "file": {name: value[name] for name in named if value.get(name)}}
    raise _cannot(f"{where}.type {kind!r}", where=where)


# ---- Output ---------------------------------------------------------------------------------------------------------


def _limits(data: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if data.get("max_output_tokens") is not None:
        fields["max_completion_tokens"] = data["max_output_tokens"]
    reasoning = data.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort"):
        fields["reasoning_effort"] = reasoning["effort"]
    return fields


def _tools(data: Mapping[str, Any]) -> dict[str, Any]:
    tools, choice = data.get("tools") or [], data.get("tool_choice")
    if not isinstance(tools, list):
        raise wrong("tools", "a list")
    fields: dict[str, Any] = {"tools": [_tool(tool, f"tools[{n}]") for n, tool in enumerate(tools)]} if tools else {}
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise _cannot(f"tool_choice.type {choice.get('type')!r}", where="tool_choice")
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    return fields | ({"tool_choice": choice} if choice is not None and tools else {})


def _tool(tool: Any, where: str) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise _cannot(f"{where}.type {kind!r}", where=where)
    return {"type": "function", "function": _without(tool, "type")}


def _format(data: Mapping[str, Any]) -> dict[str, Any]:
    text = data.get("text")
    if not isinstance(text, dict):
        return {}
    fields: dict[str, Any] = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    form = text.get("format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        fields["response_format"] = {"type": "json_schema", "json_schema": _without(form, "type")}
    elif isinstance(form, dict) and form.get("type") != "text":
        fields["response_format"] = form
    return fields


def _without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    left: Iterable[tuple[str, Any]] = data.items()
    return {name: value for name, value in left if name not in names and value is not None}


def wrong(where: str, expected: str) -> InvalidInput:
    """Return the error for a field of another type."""
    return InvalidInput(f"{where}: expected {expected}", where=where)


def _cannot(what: str, *, where: str = "") -> InvalidInput:
    msg = f"{what}: not supported by the chat completion that answers this request. Remove it."
    return InvalidInput(msg, where=where or what)
