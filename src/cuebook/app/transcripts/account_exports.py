"""Read the data exports of ChatGPT, Claude.ai and mem0. Each reader takes parsed JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.transcripts.history import ImportNotes, TranscriptBuilder, answer_of, text_of
from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.errors import InvalidInput
from cuebook.wire.answer import as_dict, dicts

# ---- ChatGPT --------------------------------------------------------------------------------------------------------


def is_chatgpt(conversation: object) -> bool:
    """Return whether a value is a conversation of ChatGPT's data export."""
    return isinstance(conversation, Mapping) and isinstance(conversation.get("mapping"), Mapping)


def read_chatgpt(conversation: Mapping[str, Any], place: FilePlace, stem: str, notes: ImportNotes) -> list[Transcript]:
    """Return a conversation with its branches. Hidden and empty messages are left out and counted."""
    nodes, builder = conversation["mapping"], TranscriptBuilder(notes)
    posts: dict[str, str | None] = {}  # of each node: its post, or the post before it
    for name, node in _in_order(nodes):
        parent = posts.get(str(node.get("parent")))
        posts[name] = parent
        here = place.at("mapping").at(name)
        if not isinstance(message := node.get("message"), Mapping):
            continue
        chat = _chatgpt_chat(message, notes)
        if chat and builder.add_after(chat, parent, name=name, when=message.get("create_time"), place=here):
            posts[name] = name
    id_ = conversation.get("conversation_id") or conversation.get("id") or stem
    head = posts.get(str(conversation.get("current_node"))) or builder.last
    return [_at_head(each, head) for each in builder.transcript(str(id_), "ChatGPT")]


def _at_head(transcript: Transcript, head: str | None) -> Transcript:
    return replace(transcript, head=head) if transcript.parents else transcript


def _in_order(nodes: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the nodes of a tree, parents first and each branch in one piece."""
    roots = [name for name, node in nodes.items() if isinstance(node, Mapping) and str(node.get("parent")) not in nodes]
    rest, seen = list(reversed(roots)), set[str]()
    while rest:
        name = rest.pop()
        node = nodes.get(name)
        if name in seen or not isinstance(node, Mapping):
            continue
        seen.add(name)
        yield name, node
        children = node.get("children")
        rest += [str(each) for each in reversed(children if isinstance(children, list) else [])]


def _chatgpt_chat(message: Mapping[str, Any], notes: ImportNotes) -> dict[str, Any] | None:
    author = as_dict(message.get("author"))
    about = as_dict(message.get("metadata"))
    content = as_dict(message.get("content"))
    role, kind = str(author.get("role")), str(content.get("content_type"))
    if about.get("is_visually_hidden_from_conversation") or role == "system":
        notes.left_out["hidden messages"] += 1
        return None
    if kind in ("user_editable_context", "model_editable_context"):
        notes.left_out["custom instructions"] += 1
        return None
    if kind in ("thoughts", "reasoning_recap"):
        notes.left_out["reasoning summaries"] += 1
        return None
    parts = list(_chatgpt_parts(content))
    if not parts:
        notes.left_out["empty messages"] += 1
        return None
    plain = len(parts) == 1 and parts[0]["type"] == "text"
    chat: dict[str, Any] = {"role": role, "content": parts[0]["text"] if plain else parts}
    return chat | ({"name": str(author["name"])} if role == "tool" and author.get("name") else {})


def _chatgpt_parts(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a message. Images and files, which are not in the export's JSON, stay as references."""
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else [content.get("text") or content.get("result")]:
        if isinstance(part, str):
            if part:
                yield {"type": "text", "text": part}
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield {"type": "text", "text": part["text"]}
        elif isinstance(part, Mapping):
            yield {"type": str(part.get("content_type") or "file"), **part}


# ---- Claude.ai ------------------------------------------------------------------------------------------------------


def is_claude_ai(conversation: object) -> bool:
    """Return whether a value is a conversation of Claude.ai's data export."""
    return isinstance(conversation, Mapping) and isinstance(conversation.get("chat_messages"), list)


def read_claude_ai(
    conversation: Mapping[str, Any], place: FilePlace, stem: str, notes: ImportNotes
) -> list[Transcript]:
    """Return a conversation with its branches. Texts of attachments are part of the message."""
    builder = TranscriptBuilder(notes)
    posts: dict[str, str | None] = {}
    for n, message in enumerate(conversation["chat_messages"]):
        here = place.at("chat_messages").at(n)
        try:
            fields = here.mapping(message)
            name = here.at("uuid").text(fields.get("uuid"))
            when = here.at("created_at").time(fields.get("created_at"))
        except InvalidInput as error:
            notes.skip(error)
            continue
        before = fields.get("parent_message_uuid")
        parent = builder.last if before is None else posts.get(str(before))
        posts[name] = parent
        chat = _claude_ai_chat(fields)
        if chat is None:
            notes.left_out["empty messages"] += 1
        elif builder.add_after(chat, parent, name=name, when=when, place=here):
            posts[name] = name
    return builder.transcript(str(conversation.get("uuid") or stem), "Claude.ai")


def _claude_ai_chat(message: Mapping[str, Any]) -> dict[str, Any] | None:
    blocks = dicts(message.get("content"))
    texts = [str(each.get("text") or "") for each in blocks if each.get("type") == "text"]
    texts = [each for each in texts or [str(message.get("text") or "")] if each]
    texts += [
        f"[{each.get('file_name') or 'attachment'}]\n{each['extracted_content']}"
        for each in dicts(message.get("attachments"))
        if each.get("extracted_content")
    ]
    texts += [f"[file] {each.get('file_name')}" for each in dicts(message.get("files"))]
    if message.get("sender") == "human":
        return {"role": "user", "content": "\n\n".join(texts)} if texts else None
    thoughts = "\n".join(str(each.get("thinking") or "") for each in blocks if each.get("type") == "thinking")
    tools = [dict(each) for each in blocks if each.get("type") in ("tool_use", "tool_result")]
    if not texts and not thoughts and not tools:
        return None
    chat = answer_of("\n\n".join(texts), thoughts)
    return chat | ({"content": [*({"type": "text", "text": each} for each in texts), *tools]} if tools else {})


# ---- mem0 -----------------------------------------------------------------------------------------------------------


class ForeignMemory(Struct, frozen=True, kw_only=True):
    """A memory of another store."""

    id: str
    text: str
    user: str | None = None
    when: float | None = None  # of its last change


def is_mem0(value: object) -> bool:
    """Return whether a value is a memory of mem0."""
    return isinstance(value, Mapping) and isinstance(value.get("memory"), str) and "id" in value


def read_mem0(value: Mapping[str, Any], place: FilePlace, notes: ImportNotes) -> list[ForeignMemory]:
    """Return a memory, none if it is empty."""
    try:
        when = place.at("updated_at").time(value.get("updated_at") or value.get("created_at"))
        user = place.at("user_id").name(value.get("user_id"))
        text = place.at("memory").text(value["memory"]).strip()
    except InvalidInput as error:
        notes.skip(error)
        return []
    if not text:
        notes.left_out["empty memories"] += 1
        return []
    return [ForeignMemory(id=text_of(value["id"]), text=text, user=user, when=when)]
