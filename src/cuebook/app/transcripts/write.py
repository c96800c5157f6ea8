"""Export transcripts: Cuebook's format with every branch, OpenAI messages, Markdown, and TaskWeaver's formats."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from cuebook.app.transcripts.sniff import FORMAT
from cuebook.records import portable
from cuebook.records.answer import to_wire
from cuebook.records.conversation import Conversation, LoadedConversation, Post
from cuebook.records.conversation_answers import conversation_entry, ids_of, post_entry
from cuebook.records.turn import title_of
from cuebook.wire.chat_messages import write_message
from cuebook.wire.responses_items import without_items

Format = Literal["cuebook", "openai", "markdown", "taskweaver-json", "taskweaver-yaml"]
#: Fields that are always written, even if empty.
_ALWAYS = frozenset({"id", "sendFrom", "message"})


def write_transcript(value: LoadedConversation, *, form: Format = "cuebook", one_line: bool = False) -> str:
    """Return a conversation as text that ends with a line break.

    `cuebook` needs the posts of all branches, the other formats those of the head's path; `one_line` writes a line of
    JSONL.
    """
    conversation = value.conversation
    if form == "cuebook":
        return _own(conversation, value.posts, one_line=one_line)
    if form == "markdown":
        return _markdown(value)
    if form == "openai":
        chats = (without_items(post.wire or write_message(post, user=conversation.user)) for post in value.posts)
        messages = [msgspec.json.decode(chat) for chat in chats if chat]
        about = {"id": conversation.id, "user": conversation.user}
        return _dump({key: value for key, value in about.items() if value} | {"messages": messages}, one_line=one_line)
    document = portable.conversation_to_dict(value)
    return _yaml(document) if form == "taskweaver-yaml" else _dump(document, one_line=one_line)


def _markdown(value: LoadedConversation) -> str:
    """Return a readable page: front matter, then a section for each post with its text and its other parts."""
    conversation, posts = value.conversation, value.posts
    title = title_of(next((post.message for post in posts if post.role == "user"), ""))
    about = {
        "conversation": conversation.id,
        "user": conversation.user,
        "persona": conversation.persona,
        "title": title,
    }
    sections = [f"---\n{_yaml({key: each for key, each in about.items() if each})}---\n"]
    for post in posts:
        heading = f"## {' '.join(post.sender.split())} · {_exact(post.created_at)[:16].replace('T', ' ')}"
        others = [part for part in post.parts if part.content and part.type not in ("text", "image_url")]
        views = [f"**{part.type}**\n\n{_fenced(part.content)}" for part in others if part.content != post.message]
        images = [f"![image]({part.content})" for part in post.parts if part.type == "image_url"]
        sections.append("\n\n".join(filter(None, (heading, post.message, *images, *views))) + "\n")
    return "\n".join(sections)


def _fenced(text: str) -> str:
    """Return a code block with a fence longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _own(conversation: Conversation, posts: Sequence[Post], *, one_line: bool) -> str:
    """Return Cuebook's format: one line per post, so that diffs of exports are readable."""
    ids = ids_of(posts)
    title = title_of(next((post.message for post in posts if post.role == "user"), ""))
    about = to_wire(conversation_entry(conversation, head=ids.get(conversation.head), title=title))
    head = {"format": FORMAT, "conversation": about}
    lines = [_post(post, ids) for post in posts]
    if one_line:
        return _dump(head | {"posts": lines}, one_line=True)
    body = ",\n".join(_dump(line, one_line=True).rstrip("\n") for line in lines)
    return f'{_dump(head, one_line=True).rstrip()[:-1]}, "posts": [\n{body}\n]}}\n'


def _post(post: Post, ids: dict[int, str]) -> dict[str, Any]:
    data: dict[str, Any] = to_wire(post_entry(post, ids))
    empty = {"id": "", "extra": None}
    parts = [portable.part_to_dict(part).items() for part in post.parts]
    data["attachments"] = [{key: value for key, value in part if value != empty.get(key, ...)} for part in parts]
    data["timestamp"] = _exact(post.created_at)
    if post.wire is not None:
        data["wire"] = _verbatim(post.wire)
    if post.state == "complete":
        del data["state"]
    return {key: value for key, value in data.items() if value not in ("", []) or key in _ALWAYS}


def _exact(when: float) -> str:
    """Return a time with microseconds, omitting trailing zeros."""
    read = datetime.fromtimestamp(when, UTC)
    return read.isoformat(timespec="microseconds" if read.microsecond % 1000 else "milliseconds").replace("+00:00", "Z")


def _verbatim(wire: bytes) -> Any:
    """Return a message as JSON, or as a string of its bytes if a JSON round trip would change them."""
    value = msgspec.json.decode(wire)
    return value if msgspec.json.encode(json.loads(json.dumps(value))) == wire else wire.decode()


def _dump(value: object, *, one_line: bool) -> str:
    return json.dumps(value, ensure_ascii=False, indent=None if one_line else 1) + "\n"


def _yaml(document: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(document, allow_unicode=True, sort_keys=False))
