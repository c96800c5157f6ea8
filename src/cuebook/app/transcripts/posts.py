"""Parse the posts of transcripts: OpenAI chat messages, Cuebook posts, and TaskWeaver posts."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from cuebook.app.transcripts.transcript import FilePlace
from cuebook.engine.core.drafts import Posted
from cuebook.errors import InvalidInput
from cuebook.records.answer import as_answer
from cuebook.records.conversation import Part, Post, PostState, Role
from cuebook.records.portable import part_from_dict
from cuebook.wire.chat_messages import read_message

Given = Posted | Mapping[str, Any]

#: The fields of a post; the last line has those added by our export.
_KNOWN = frozenset({
    "id", "sendFrom", "sendTo", "message", "parts", "parent", "timestamp", "attachments",
    "role", "seq", "tokens", "state", "wire",
})  # fmt: skip
_ROLES: tuple[Role, ...] = get_args(Role)
_STATES: tuple[PostState, ...] = get_args(PostState)


def read_messages(values: Sequence[Any], places: Sequence[FilePlace]) -> list[Given]:
    """Parse OpenAI chat messages. A message without an id gets its number as id."""
    return [_message(value, number, place) for number, (value, place) in enumerate(zip(values, places, strict=True), 1)]


def _message(value: object, number: int, place: FilePlace) -> Given:
    fields = dict(place.mapping(value))
    id_ = place.at("id").name(fields.pop("id", None)) or f"import-{number}"
    when = place.at("timestamp").time(fields.pop("timestamp", None))
    _check_message(fields, place)
    return fields | {"id": id_} | ({} if when is None else {"timestamp": when})


def read_posts(values: Sequence[Any], places: Sequence[FilePlace]) -> list[Given]:
    """Parse posts in Cuebook's format. A post without an id gets its number as id."""
    return [_post(value, number, place) for number, (value, place) in enumerate(zip(values, places, strict=True), 1)]


def _post(value: object, number: int, place: FilePlace) -> Given:
    fields = place.mapping(value)
    for key in fields:
        if key not in _KNOWN:
            place.at(key).refuse(f"unknown field. Available: {', '.join(sorted(_KNOWN))}")
    id_ = place.at("id").name(fields.get("id")) or f"import-{number}"
    when = place.at("timestamp").time(fields.get("timestamp"))
    wire = _wire(fields.get("wire"), place.at("wire"))
    sender = place.at("sendFrom").text(fields.get("sendFrom"))
    if not sender:
        place.at("sendFrom").refuse("empty. Provide the sender.")
    parts = _parts(fields, "parts", place) + _parts(fields, "attachments", place)
    texts = [part.content for part in parts if part.type == "text"]
    message = place.at("message").text(fields.get("message"), "\n".join(texts))
    if not message and not parts and wire is None:
        place.refuse("empty. Provide a message or attachments.")
    return Posted(
        sender=sender,
        recipient=place.at("sendTo").text(fields.get("sendTo"), ""),
        message=message,
        parts=tuple(parts),
        id=id_,
        created_at=when,
        role=place.at("role").choice(fields.get("role"), _ROLES, None),
        state=place.at("state").choice(fields.get("state"), _STATES, "complete") or "complete",
        wire=wire,
    )


def _wire(value: object, place: FilePlace) -> bytes | None:
    """Return the bytes of a provider's message, given as an object or as a string."""
    if value is None:
        return None
    raw = place.text(value).encode() if isinstance(value, str) else msgspec.json.encode(place.mapping(value))
    _check_message(raw, place)
    return raw


def _check_message(raw: bytes | Mapping[str, Any], place: FilePlace) -> None:
    try:
        message_content = read_message(raw)
    except InvalidInput as error:
        inside = (error.where or "").removeprefix("messages[0]")
        problem = str(error).removeprefix(f"{error.where}: ")
        FilePlace(place.file, place.path + inside).refuse(problem)
    place.at("content").check(message_content.message)


def _parts(fields: Mapping[str, Any], key: str, place: FilePlace) -> list[Part]:
    parts: list[Part] = []
    for n, value in enumerate(place.at(key).sequence(fields.get(key) or [])):
        here = place.at(key).at(n)
        try:
            part = part_from_dict(here.mapping(value))
        except InvalidInput as error:
            here.refuse(str(error))
        if part is not None:
            here.at("content").check(part.content)
            parts.append(part)
    return parts


def post_of(post: Post, place: FilePlace) -> Posted:
    """Convert a post of another store, with its verbatim message if it has one."""
    if post.wire is not None:
        _check_message(post.wire, place)
    return as_answer(Posted, post, created_at=post.created_at or None)


def id_of(post: Given) -> str:
    """Return a post's id."""
    return post.id if isinstance(post, Posted) else str(post["id"])


def time_of(post: Given) -> float | None:
    """Return a post's time in Unix seconds, None if it has none."""
    return post.created_at if isinstance(post, Posted) else post.get("timestamp")
