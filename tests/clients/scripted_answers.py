"""The scripted model of the lab: it reads a request of any wire and decides the answer from the request alone.

It calls a tool if the user asks it to look something up, fills JSON Schemas, and otherwise repeats the question with
the number of user messages. So an answer changes if Cuebook changes the messages.
"""

import functools
import json
import operator
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

#: Words that a string of a filled schema gets.
PLACE = "Vlieland"
#: The summary of a conversation.
SUMMARY = (
    "1. Primary request: the user read ferry.txt and asked for the way back. 2. Result: the ferry leaves at 9:45."
    " 3. Files: ferry.txt has one line. 4. Pending: the time of the ferry back is unknown, because no file names it."
)
#: What Cuebook and Claude Code add: a model takes it as data. With it, only the requests differ and not the answers.
ADDED = re.compile(r"\s*<(recalled \d+|system-reminder)>.*?</\1>", re.DOTALL)
#: Tools by which agents end their run.
FINAL = ("final_answer", "final_result")


class Request(NamedTuple):
    """What the model reads in a request."""

    system: str
    texts: Sequence[str]  # of the user
    result: str | None  # of a tool, if it is the last message
    tools: dict[str, Any]  # JSON Schema of each tool by name
    forced: str  # name of a tool, or "*" for any
    schema: Any  # the requested JSON Schema, None for text


class Reply(NamedTuple):
    """An answer: a text, or a call of a tool."""

    text: str = ""
    tool: str = ""
    arguments: Any = None


def answer(request: Request) -> Reply:
    """Return the scripted answer: a call if one is due, else a text."""
    texts = [text for each in request.texts if (text := ADDED.sub("", each))]
    last = texts[-1] if texts else ""
    final = next((name for name in FINAL if name in request.tools), "")
    result = last if last.startswith("Observation:") and final else request.result
    if call := _call(request, last, result, final):
        return call
    if request.schema is not None:
        return Reply(json.dumps(filled(request.schema)))
    if result is not None:
        return Reply(f"The tool says: {' '.join(result.split())[:60]}")
    if "<summary>" in last:  # the prompt of Claude Code's /compact
        return Reply(f"<analysis>\nNone.\n</analysis>\n\n<summary>\n{SUMMARY}\n</summary>")
    if "[[ ## " in request.system:  # DSPy's format
        names = re.findall(r"^\d+\. `(\w+)`", request.system.partition("output fields are:")[2], re.MULTILINE)
        return Reply("\n\n".join(f"[[ ## {name} ## ]]\nAt 9:45." for name in names) + "\n\n[[ ## completed ## ]]")
    return Reply(f"Answer {len(texts)} to: {' '.join(last.split())[:60]}")


def _call(request: Request, last: str, result: str | None, final: str) -> Reply | None:
    if result is not None:
        due = final and request.forced
        return Reply(tool=final, arguments=filled(request.tools[final], result)) if due else None
    if directed := re.search(r"Call (\w+) (\{.*?\})", last):
        return Reply(tool=directed[1], arguments=json.loads(directed[2])) if directed[1] in request.tools else None
    if request.tools and (request.forced or "look up" in last.casefold()):
        name = request.forced if request.forced in request.tools else next(iter(request.tools))
        return Reply(tool=name, arguments=filled(request.tools[name]))
    return None


def filled(schema: Any, text: str = PLACE, *, root: Any = None) -> Any:
    """Return a value that satisfies a JSON Schema, with this text in its strings."""
    root = schema if root is None else root
    if reference := schema.get("$ref"):
        target = functools.reduce(operator.getitem, reference.split("/")[1:], root)
        return filled(target, text, root=root)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return filled(next(each for each in schema[choice] if each.get("type") != "null"), text, root=root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kind == "object":
        needed = schema.get("required") or []
        return {name: filled(schema["properties"][name], text, root=root) for name in needed}
    if kind == "array":
        return [filled(schema["items"], text, root=root)]
    return {"integer": 7, "number": 7.5, "boolean": True}.get(kind, text)


# ---- Reading a request ----------------------------------------------------------------------------------------------


def read(wire: str, body: dict[str, Any], earlier: Sequence[Any] = ()) -> Request:
    """Return what the model reads. `earlier` are the stored items before the input of a request of Responses."""
    if wire == "responses":
        return _read_responses(body, earlier)
    return (_read_chat if wire == "chat" else _read_messages)(body)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text(part.get("text") or part.get("content") or "") for part in content)
    return str(content or "")


def _read_chat(body: dict[str, Any]) -> Request:
    messages = body["messages"]
    wanted = body.get("response_format") or {}
    schema = wanted.get("json_schema", {}).get("schema") if wanted.get("type") == "json_schema" else None
    tools = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in body.get("tools") or ()}
    choice = body.get("tool_choice")
    forced = choice["function"]["name"] if isinstance(choice, dict) else "*" * (choice in ("required", "any"))
    return Request(
        "\n".join(_text(each["content"]) for each in messages if each["role"] in ("system", "developer")),
        [_text(each["content"]) for each in messages if each["role"] == "user"],
        _text(messages[-1]["content"]) if messages[-1]["role"] == "tool" else None,
        tools,
        forced,
        {"type": "object"} if schema is None and wanted.get("type") == "json_object" else schema,
    )


def _read_responses(body: dict[str, Any], earlier: Sequence[Any]) -> Request:
    new = body["input"]
    items = [*earlier, *([{"role": "user", "content": new}] if isinstance(new, str) else new)]
    wanted = (body.get("text") or {}).get("format") or {}
    choice = body.get("tool_choice")
    return Request(
        body.get("instructions") or "",
        [_text(each["content"]) for each in items if each.get("role") == "user"],
        _text(items[-1]["output"]) if items[-1].get("type") == "function_call_output" else None,
        {tool["name"]: tool.get("parameters", {}) for tool in body.get("tools") or () if "name" in tool},
        choice.get("name", "*") if isinstance(choice, dict) else "*" * (choice == "required"),
        wanted.get("schema"),
    )


def _read_messages(body: dict[str, Any]) -> Request:
    last = body["messages"][-1]["content"]
    results = [part for part in last if part["type"] == "tool_result"] if isinstance(last, list) else []
    texts = [
        "\n".join(part["text"] for part in each["content"] if part["type"] == "text")
        if isinstance(each["content"], list)
        else each["content"]
        for each in body["messages"]
        if each["role"] == "user"
    ]
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    choice = body.get("tool_choice") or {}
    return Request(
        _text(body.get("system")),
        [text for text in texts if text],
        _text(results[-1].get("content")) if results else None,
        {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools") or ()},
        choice.get("name", "*" * (choice.get("type") == "any")),
        wanted.get("schema"),
    )
