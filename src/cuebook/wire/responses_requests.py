"""Parse a request of OpenAI's Responses API, convert its fields to those of a chat completion, and encode response ids.

Features that a chat completion lacks (tools and files of the provider, background mode) raise an error naming the
field.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from cuebook.errors import InvalidInput
from cuebook.wire.responses_items import CHAT_KINDS, cannot_express, convert_items, wrong

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


class AnswerId(Struct, frozen=True, array_like=True):
    """A parsed id of a response or an item: the answer of a turn's step, or without `step` the post of a seq."""

    conversation: str
    number: Annotated[int, Meta(ge=1)]  # of the turn, or the post's seq
    step: Annotated[int, Meta(ge=0)] = 0  # counted from 1


class ResponseRequest(Struct, frozen=True, kw_only=True):
    """A parsed request: its fields and items, and what it continues."""

    data: dict[str, Any]
    own: dict[str, Raw]  # fields as received
    items: list[Raw]  # of the input
    previous: str | None = None
    conversation: str | None = None

    @property
    def user(self) -> str | None:
        """Return the user from the body."""
        named = self.data.get("user") or self.data.get("safety_identifier")
        return named if isinstance(named, str) else None

    @property
    def instructions(self) -> str:
        """Return the system text that applies to this answer only."""
        return self.data.get("instructions") or ""

    @property
    def is_stored(self) -> bool:
        """Return whether the answer can be continued by its id."""
        return self.data.get("store") is not False

    def chat_fields(self) -> dict[str, Any]:
        """Return the fields of the equivalent chat completion without its messages.

        Raises InvalidInput for what a chat completion lacks.
        """
        data = self.data
        for name in _REFUSED:
            if data.get(name):
                raise cannot_express(name)
        convert_items(self.items, kinds=CHAT_KINDS)
        fields = {name: data[name] for name in _SAME if data.get(name) is not None}
        fields |= _limits(data) | _tools(data) | _format(data)
        if data.get("stream") is True:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return fields

    def echo(self) -> dict[str, Any]:
        """Return the fields that an answer repeats."""
        data = self.data
        effort = data["reasoning"].get("effort") if isinstance(data.get("reasoning"), dict) else None
        return {
            "instructions": data.get("instructions"),
            "max_output_tokens": data.get("max_output_tokens"),
            "metadata": data.get("metadata") or {},
            "parallel_tool_calls": data.get("parallel_tool_calls") is not False,
            "previous_response_id": data.get("previous_response_id"),
            "reasoning": {"effort": effort, "summary": None},
            "store": self.is_stored,
            "temperature": data.get("temperature"),
            "text": data.get("text") or {"format": {"type": "text"}},
            "tool_choice": data.get("tool_choice") or "auto",
            "tools": data.get("tools") or [],
            "top_p": data.get("top_p"),
            "truncation": data.get("truncation") or "disabled",
        }

    def left_out(self) -> tuple[str, ...]:
        """Return the fields that a chat completion lacks, and the types of items that only their provider can use."""
        data = self.data
        names = {name for name, value in data.items() if value and name not in _CONVERTED}
        reasoning = data.get("reasoning")
        if isinstance(reasoning, dict):
            names |= {f"reasoning.{name}" for name, value in reasoning.items() if value and name != "effort"}
        if any(msgspec.json.decode(item).get("type") == "reasoning" for item in self.items):
            names.add("input.reasoning")
        return tuple(sorted(names - ({"truncation"} if data.get("truncation") == "disabled" else set())))


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


def read_response_request(body: bytes, *, compacts: bool = False) -> ResponseRequest:
    """Parse a request. Raises InvalidInput naming the field.

    A request that `compacts` an answer and what precedes it needs no input.
    """
    try:
        own = msgspec.json.decode(body, type=dict[str, Raw])
        data = msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The request body is not a JSON object ({error}).", where="body") from None
    previous, conversation = continued(data)
    instructions, value = data.get("instructions"), data.get("input")
    if instructions is not None and not isinstance(instructions, str):
        raise wrong("instructions", "a string")
    if isinstance(value, str):
        items = [Raw(msgspec.json.encode({"role": "user", "content": value}))]
    elif isinstance(value, list) and value:
        items = msgspec.json.decode(own["input"], type=list[Raw])
    elif compacts and previous and not value:
        items = []
    else:
        raise wrong("input", "a string or a non-empty list of items")
    return ResponseRequest(data=data, own=own, items=items, previous=previous, conversation=conversation)


# ---- Equivalent fields ----------------------------------------------------------------------------------------------


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
            raise cannot_express(f"tool_choice.type {choice.get('type')!r}", where="tool_choice")
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    return fields | ({"tool_choice": choice} if choice is not None and tools else {})


def _tool(tool: Any, where: str) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise cannot_express(f"{where}.type {kind!r}", where=where)
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
