"""Posts and messages as transcripts hold them: OpenAI chat messages, our own posts, and posts of TaskWeaver."""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from cuebook.app.transcripts.transcript import Place
from cuebook.engine.drafts import Posted
from cuebook.errors import InvalidInput
from cuebook.records.conversation import Part, Post, Role
from cuebook.records.openai_messages import read_message
from cuebook.records.portable import part_from_dict

Given = Posted | Mapping[str, Any]

#: What a post may hold; the last line is what our export adds.
_KNOWN = frozenset({
    "id", "sendFrom", "sendTo", "message", "parts", "parent", "timestamp", "attachments",
    "role", "seq", "tokens", "state", "wire",
})  # fmt: skip
_ROLES: tuple[Role, ...] = get_args(Role)


def read_messages(values: list[Any], places: list[Place]) -> list[Given]:
    """Read OpenAI chat messages. One without an id is named by its number."""
    return [_message(value, number, place) for number, (value, place) in enumerate(zip(values, places, strict=True), 1)]


def _message(value: object, number: int, place: Place) -> Given:
    fields = dict(place.mapping(value))
    id_ = place.at("id").name(fields.pop("id", None)) or f"import-{number}"
    when = place.at("timestamp").time(fields.pop("timestamp", None))
    try:
        said = read_message(fields)
    except InvalidInput as error:
        inside = (error.where or "").removeprefix("messages[0]")
        problem = str(error).removeprefix(f"{error.where}: ")
        Place(place.file, place.path + inside).refuse(problem)
    place.at("content").check(said.message)
    return fields | {"id": id_} | ({} if when is None else {"timestamp": when})


def read_posts(values: list[Any], place: Place) -> list[Given]:
    """Read posts in our own form. One without an id is named by its number."""
    return [_post(place.at(n).mapping(value), n + 1, place.at(n)) for n, value in enumerate(values)]


def _post(fields: Mapping[str, Any], number: int, place: Place) -> Given:
    for key in fields:
        if key not in _KNOWN:
            place.at(key).refuse(f"no such field; known are {', '.join(sorted(_KNOWN))}")
    id_ = place.at("id").name(fields.get("id")) or f"import-{number}"
    when = place.at("timestamp").time(fields.get("timestamp"))
    if fields.get("wire") is not None:
        wire = place.at("wire").mapping(fields["wire"])
        return _message({**wire, "id": id_, "timestamp": when}, number, place.at("wire"))
    role = place.at("role").text(fields.get("role"), "") or None
    if role is not None and role not in _ROLES:
        place.at("role").refuse(f"expected one of {', '.join(_ROLES)}, got {role!r}")
    sender = place.at("sendFrom").text(fields.get("sendFrom"))
    if not sender:
        place.at("sendFrom").refuse("empty; say who sends it")
    parts = _parts(fields, "parts", place) + _parts(fields, "attachments", place)
    texts = [part.content for part in parts if part.type == "text"]
    message = place.at("message").text(fields.get("message"), "\n".join(texts))
    if not message and not parts:
        place.refuse("says nothing; give it a message or attachments")
    return Posted(
        sender=sender,
        recipient=place.at("sendTo").text(fields.get("sendTo"), ""),
        message=message,
        parts=tuple(parts),
        id=id_,
        created_at=when,
        role=next((each for each in _ROLES if each == role), None),
    )


def _parts(fields: Mapping[str, Any], key: str, place: Place) -> list[Part]:
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


def given(post: Post) -> Given:
    """Give a post of another store to this one: as its verbatim message, if it has one."""
    if post.wire is not None:
        fields = msgspec.json.decode(post.wire, type=dict[str, Any])
        return fields | {"id": post.id} | ({"timestamp": post.created_at} if post.created_at else {})
    return Posted(
        sender=post.sender,
        recipient=post.recipient,
        message=post.message,
        parts=post.parts,
        id=post.id,
        created_at=post.created_at or None,
        role=post.role,
    )


def id_of(post: Given) -> str:
    """Give a post's id."""
    return post.id if isinstance(post, Posted) else str(post["id"])
