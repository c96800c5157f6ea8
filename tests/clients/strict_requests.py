"""What a strict provider rejects in a request of each wire: unknown fields, calls without results, many cache marks.

The tables name the fields that the providers document for requests. Fields that only answers have are absent.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

#: Most cache marks in a request of Anthropic's wire.
MARKS = 4

CHAT = set(
    "model messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
    "max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty prompt_cache_key "
    "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store "
    "stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options".split()
)
CHAT_MESSAGE = {
    "developer": {"role", "content", "name"},
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
CHAT_PART = {
    "text": {"type", "text"},
    "image_url": {"type", "image_url"},
    "input_audio": {"type", "input_audio"},
    "file": {"type", "file"},
}

RESPONSES = set(
    "model input background context_management conversation include instructions max_output_tokens "
    "max_tool_calls metadata moderation parallel_tool_calls previous_response_id prompt prompt_cache_key "
    "prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature "
    "text tool_choice tools top_logprobs top_p truncation user".split()
)
RESPONSES_ITEM = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status", "namespace"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "item_reference": {"type", "id"},
    "compaction": {"type", "id", "encrypted_content"},
}

MESSAGES = set(
    "model messages max_tokens cache_control container context_management inference_geo mcp_servers metadata "
    "output_config output_format service_tier speed stop_sequences stream system temperature thinking "
    "tool_choice tools top_k top_p".split()
)
MESSAGES_BLOCK = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "cache_control", "citations", "context", "title"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "compaction": {"type", "content", "cache_control"},
}


def problem_of(wire: str, body: dict[str, Any], *, resent: Sequence[str] = ()) -> str:
    """Return why a strict provider answers 400, or "". `wire` is "chat", "responses" or "messages".

    `resent` are fields of answers that this provider accepts in messages of the chat wire.
    """
    if wire == "chat":
        return next(_chat(body, set(resent)), "")
    return next(_responses(body) if wire == "responses" else _messages(body), "")


def _unknown(value: dict[str, Any], allowed: set[str], where: str) -> Iterator[str]:
    if more := sorted(value.keys() - allowed):
        yield f"{where}: unknown fields {', '.join(more)}"


def _chat(body: dict[str, Any], resent: set[str]) -> Iterator[str]:
    yield from _unknown(body, CHAT, "request")
    waiting: list[str] = []
    for n, message in enumerate(body["messages"]):
        where, role = f"messages[{n}]", message.get("role")
        if role not in CHAT_MESSAGE:
            yield f"{where}: unknown role {role!r}"
            return
        yield from _unknown(message, CHAT_MESSAGE[role] | (resent if role == "assistant" else set()), where)
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            yield from _unknown(part, CHAT_PART.get(part.get("type"), set()), f"{where}.content")
        if content is None and not message.get("tool_calls"):
            yield f"{where}: no content"
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"{where}: result without its call"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"{where}: calls without results: {', '.join(waiting)}"
        for call in message.get("tool_calls") or ():
            yield from _unknown(call, {"id", "type", "function"}, f"{where}.tool_calls")
            yield from _unknown(call["function"], {"name", "arguments"}, f"{where}.tool_calls")
            json.loads(call["function"]["arguments"])
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if waiting:
        yield f"messages: calls without results: {', '.join(waiting)}"


def _responses(body: dict[str, Any]) -> Iterator[str]:
    yield from _unknown(body, RESPONSES, "request")
    items = body["input"] if isinstance(body["input"], list) else []
    calls: list[str] = []
    for n, item in enumerate(items):
        where, kind = f"input[{n}]", item.get("type", "message")
        if kind not in RESPONSES_ITEM:
            yield f"{where}: unknown type {kind!r}"
            return
        yield from _unknown(item, RESPONSES_ITEM[kind], where)
        if kind == "function_call":
            calls.append(item["call_id"])
        elif kind == "function_call_output" and item["call_id"] in calls:
            calls.remove(item["call_id"])
        elif kind == "function_call_output" and not body.get("previous_response_id"):
            yield f"{where}: result without its call"
    if calls:
        yield f"input: calls without results: {', '.join(calls)}"


def _messages(body: dict[str, Any]) -> Iterator[str]:
    yield from _unknown(body, MESSAGES, "request")
    if "max_tokens" not in body:
        yield "request: no max_tokens"
    if json.dumps(body).count('"cache_control"') > MARKS:
        yield f"request: more than {MARKS} cache marks"
    calls: list[str] = []
    for n, message in enumerate(body["messages"]):
        where = f"messages[{n}]"
        yield from _unknown(message, {"role", "content"}, where)
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield from _blocks(blocks, where)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if set(results) != set(calls):
            yield f"{where}: calls {calls}, results {results}"
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if calls:
        yield f"messages: calls without results: {', '.join(calls)}"


def _blocks(blocks: Sequence[dict[str, Any]], where: str) -> Iterator[str]:
    if not blocks:
        yield f"{where}: no content"
    for block in blocks:
        yield from _unknown(block, MESSAGES_BLOCK.get(block["type"], set()), f"{where}.{block['type']}")
        if block["type"] == "text" and not block["text"]:
            yield f"{where}: empty text"
