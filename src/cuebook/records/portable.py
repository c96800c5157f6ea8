"""Import and export: conversations, rounds, posts and attachments to plain dicts and back.

The keys are TaskWeaver's, so that its readers understand the output. Cuebook's own fields are under one more key,
`cuebook`, so that `from_dict(to_dict(x)) == x`. Parts of types that TaskWeaver refuses to load are there too, with
their positions. Dicts contain only str, int, float, bool, None, list and dict, for any YAML or JSON writer.

Without `cuebook` (a file of TaskWeaver, or a handwritten one) posts are numbered in order; each is the child of the
previous one. `User` is the user; any other sender is an assistant unless called tool or system. Missing ids are made
from the numbers. Times, token counts and digests are 0 and empty: the store computes them.

Invalid input raises InvalidInput naming its path, `rounds[3].post_list[0].send_from`.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from cuebook.errors import InvalidInput
from cuebook.records.conversation import (
    ASSISTANT,
    PART_TYPES,
    REMOVED_PART_TYPES,
    RENAMED_PART_TYPES,
    Conversation,
    LoadedConversation,
    Part,
    Post,
    Round,
    RoundState,
    SharedEntry,
)
from cuebook.validate import check, format_value, join

_OURS = "cuebook"
#: Types that TaskWeaver's `Attachment.from_dict` rejects: unknown ones, and the deprecated `text` (measured).
_NOT_IN_D = frozenset({"text", "reasoning", "file", "audio", "refusal", "opaque"})
_KNOWN = PART_TYPES | REMOVED_PART_TYPES | RENAMED_PART_TYPES.keys()
_T = TypeVar("_T")


# ---------------------------------------------------------------- writing
def part_to_dict(part: Part) -> dict[str, Any]:
    """Write an attachment. An opaque part is written under its original type."""
    kind, extra = part.type, part.extra
    if kind == "opaque" and isinstance(extra, dict) and extra.keys() | {"extra"} == {"originalType", "extra"}:
        original, inner = extra["originalType"], extra.get("extra")
        if isinstance(original, str) and original not in _KNOWN and ("extra" not in extra or inner is not None):
            kind, extra = original, inner
    return {"id": part.id, "type": kind, "content": part.content, "extra": _plain(extra, "extra")}


def post_to_dict(post: Post) -> dict[str, Any]:
    """Write a post."""
    parts = [part_to_dict(part) for part in post.parts]
    ours = _rest(post, "id", "message", "sender", "recipient", "parts", "wire")
    if post.wire is not None:
        ours |= _wire_to_dict(post.wire)
    if remaining := [{"at": at, **part} for at, part in enumerate(parts) if part["type"] in _NOT_IN_D]:
        ours["parts"] = remaining
    return {
        "id": post.id,
        "message": post.message,
        "send_from": post.sender,
        "send_to": post.recipient,
        "attachment_list": [part for part in parts if part["type"] not in _NOT_IN_D],
        _OURS: ours,
    }


def round_to_dict(round_: Round) -> dict[str, Any]:
    """Write a round with its posts."""
    return {
        "id": round_.id,
        "user_query": round_.user_query,
        "state": round_.state,
        "post_list": [post_to_dict(post) for post in round_.posts],
        _OURS: _rest(round_, "id", "user_query", "state", "posts"),
    }


def conversation_to_dict(loaded: LoadedConversation) -> dict[str, Any]:
    """Write a conversation with its rounds. Without its head, a reader would assume the last post."""
    conversation = loaded.conversation
    return {
        "id": conversation.id,
        "plugins": [],
        "roles": [],
        "enabled": True,
        "rounds": [round_to_dict(round_) for round_ in loaded.rounds],
        _OURS: {"head": conversation.head, "last_seq": conversation.last_seq} | _rest(conversation, "id"),
    }


# ---------------------------------------------------------------- reading
class _PartDict(Struct, frozen=True, kw_only=True):
    """An attachment in TaskWeaver's format. `at` is the position of one under `cuebook`."""

    type: str
    id: str = ""
    content: Any = None
    extra: Any = None
    at: Annotated[int, Meta(ge=0)] = 0


class _PostDict(Struct, frozen=True, kw_only=True):
    send_from: str
    id: str | None = None
    message: str = ""
    send_to: str = "Unknown"  # TaskWeaver's default
    attachment_list: tuple[Any, ...] = ()
    cuebook: Mapping[str, Any] = {}


class _RoundDict(Struct, frozen=True, kw_only=True):
    id: str | None = None
    user_query: str = ""
    state: RoundState = "created"
    post_list: tuple[_PostDict, ...] = ()
    cuebook: Mapping[str, Any] = {}


class _ConversationDict(Struct, frozen=True, kw_only=True):
    id: str = ""
    rounds: tuple[_RoundDict, ...] = ()
    cuebook: Mapping[str, Any] = {}


def part_from_dict(data: object, *, where: str = "") -> Part | None:
    """Parse an attachment: None for a removed type, an opaque part with `extra.originalType` for an unknown one."""
    part_dict = check(data, _PartDict, where)
    kind, extra = part_dict.type, _plain(part_dict.extra, join(where, "extra"))
    if kind in REMOVED_PART_TYPES:
        return None
    if kind not in _KNOWN:
        extra = {"originalType": kind} if extra is None else {"originalType": kind, "extra": extra}
        kind = "opaque"
    content = _plain(part_dict.content, join(where, "content"))
    if not isinstance(content, str):  # TaskWeaver's artifact_paths may be a list
        content = "" if content is None else msgspec.json.encode(content).decode()
    return Part(RENAMED_PART_TYPES.get(kind, kind), content, extra, part_dict.id)


def conversation_from_dict(data: object, *, where: str = "") -> LoadedConversation:
    """Parse a conversation with its rounds. A missing id becomes "": the caller assigns one.

    TaskWeaver's plugins, roles and whether it is enabled have no counterpart here.
    """
    conversation_dict, last = check(data, _ConversationDict, where), 0
    rounds: list[Round] = []
    for each, path in _placed(conversation_dict.rounds, join(where, "rounds")):
        rounds.append(_round(each, path, last))
        last = rounds[-1].posts[-1].seq if rounds[-1].posts else last
    base = {"head": last, "last_seq": last}
    own = {"id": conversation_dict.id}
    conversation = check({**base, **conversation_dict.cuebook, **own}, Conversation, join(where, _OURS))
    return LoadedConversation(conversation=conversation, rounds=tuple(rounds))


def _placed(items: Iterable[_T], path: str) -> Iterator[tuple[_T, str]]:
    """Yield items with their paths."""
    return ((each, join(path, at)) for at, each in enumerate(items))


def _round(round_dict: _RoundDict, path: str, last: int) -> Round:
    """Parse a round. Posts without a number follow the number `last`."""
    seq = round_dict.cuebook.get("seq", last + 1)
    own = {
        "id": f"round-{seq}" if round_dict.id is None else round_dict.id,
        "user_query": round_dict.user_query,
        "state": round_dict.state,
        "posts": (),
    }
    made = check({"seq": seq, **round_dict.cuebook, **own}, Round, join(path, _OURS))
    posts: list[Post] = []
    for each, place in _placed(round_dict.post_list, join(path, "post_list")):
        posts.append(_post(each, place, made.seq, posts[-1].seq if posts else last))
    return msgspec.structs.replace(made, posts=tuple(posts))


def _post(post_dict: _PostDict, path: str, opened: int, last: int) -> Post:
    ours, sender, seq = post_dict.cuebook, post_dict.send_from, last + 1
    role = sender.lower() if sender.lower() in ("user", "tool", "system") else "assistant"
    base = {"seq": seq, "parent": last, "round": opened or seq, "role": role, "created_at": 0.0, "tokens": 0}
    own = {
        "id": f"post-{ours.get('seq', seq)}" if post_dict.id is None else post_dict.id,
        "message": post_dict.message,
        "sender": sender,
        "recipient": post_dict.send_to,
        "parts": (),
        **_bytes_from_dict(ours, path),
    }
    made = check({**base, **ours, **own}, Post, join(path, _OURS))
    return msgspec.structs.replace(made, parts=_parts(post_dict, path))


def _parts(post_dict: _PostDict, path: str) -> tuple[Part, ...]:
    listed = _placed(post_dict.attachment_list, join(path, "attachment_list"))
    parts = [part for each, place in listed if (part := part_from_dict(each, where=place)) is not None]
    anything: Any = tuple[Any, ...]
    kept = join(join(path, _OURS), "parts")
    for each, place in _placed(check(post_dict.cuebook.get("parts") or (), anything, kept), kept):
        part = part_from_dict(each, where=place)
        if part is not None:
            parts.insert(check(each, _PartDict, place).at, part)
    return tuple(parts)


def _rest(record: Struct, *used: str) -> dict[str, Any]:
    """Return the fields of a record that D has no key for, except defaults."""
    fields = {
        field.encode_name: getattr(record, field.name)
        for field in msgspec.structs.fields(record)
        if field.name not in used and (field.required or getattr(record, field.name) != _default(field))
    }
    plain = _plain(fields, _OURS)
    return plain if isinstance(plain, dict) else {}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _wire_to_dict(wire: bytes) -> dict[str, str]:
    """Write wire bytes as text if possible."""
    try:
        return {"wire": wire.decode()}
    except UnicodeDecodeError:
        return {"wire_base64": b64encode(wire).decode()}


def _bytes_from_dict(ours: Mapping[str, Any], path: str) -> dict[str, bytes]:
    """Return the bytes of a post, stored in YAML and JSON as text or base64."""
    results = {}
    for key, name in (("wire", "wire"), ("wire_base64", "wire"), ("digest", "digest")):
        text = ours.get(key)
        try:
            if text is not None:
                results[name] = text.encode() if key == "wire" else b64decode(text, validate=True)
        except (AttributeError, TypeError, ValueError):
            place = join(join(path, _OURS), key)
            msg = f"{place}: expected {'a string' if key == 'wire' else 'base64'}, got {format_value(text)}"
            raise InvalidInput(msg, where=place) from None
    return results


def _plain(value: object, where: str) -> Any:
    """Copy a value, restricted to YAML and JSON types."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: not a plain JSON value ({error})", where=where) from error


# ---- views ----------------------------------------------------------------------------------------------------------


def rounds_of(posts: Sequence[Post], states: Mapping[int, RoundState]) -> list[Round]:
    """Group a path's posts, oldest first, by round; `states` is keyed by a round's seq.

    Posts before the first round (a client's system prompt) form round 0 with an empty query. The query is also empty if
    the opening post of a round is not among `posts`. A round without a stored state (imported posts) is finished if an
    assistant answered in it, else created; round 0 is finished.
    """
    grouped: dict[int, list[Post]] = {}
    for post in posts:
        grouped.setdefault(post.round, []).append(post)
    return [
        Round(
            id=f"round-{seq}",
            seq=seq,
            user_query=next((post.message for post in members if post.seq == seq), ""),
            state=states.get(seq)
            or ("finished" if not seq or any(post.role == ASSISTANT for post in members) else "created"),
            posts=tuple(members),
        )
        for seq, members in grouped.items()
    ]


def role_rounds(rounds: Iterable[Round], role: str, *, include_failed: bool = False) -> list[Round]:
    """Return each round with only the posts that the role sent or received; empty rounds are kept (D)."""
    return [
        msgspec.structs.replace(
            round_, posts=tuple(post for post in round_.posts if role in (post.sender, post.recipient))
        )
        for round_ in rounds
        if round_.state != "failed" or include_failed
    ]


def shared_entries(
    rounds: Sequence[Round], *, entry_type: str | None = None, include_failed: bool = False
) -> list[SharedEntry]:
    """Return the valid entries, in the order of their last write, each with its sender.

    A sender's later entry of a type replaces its earlier one of the same scope. Scope `conversation` is always valid.
    `round` is valid only in the last round, where it hides the same sender's `conversation` entry of that type. If the
    last round failed, no `round` entry is valid, unless failed rounds are included.
    """
    contents: dict[tuple[str, str, str], SharedEntry] = {}
    last = len(rounds) - 1
    for at, round_ in enumerate(rounds):
        if round_.state == "failed" and not include_failed:
            continue
        for post in round_.posts:
            for entry in _entries(post):
                if entry_type in (None, entry.type) and (at == last or entry.scope == "conversation"):
                    key = (post.sender, entry.type, entry.scope)
                    contents.pop(key, None)
                    contents[key] = entry
    return [
        entry
        for (sender, kind, scope), entry in contents.items()
        if scope == "round" or (sender, kind, "round") not in contents
    ]


def _entries(post: Post) -> Iterable[SharedEntry]:
    for part in post.parts:
        if part.type == "shared_memory_entry" and (entry := _entry(part, post.sender)) is not None:
            yield msgspec.structs.replace(entry, sender=post.sender, id=entry.id or part.id)


def _entry(part: Part, sender: str) -> SharedEntry | None:
    """Parse an entry from `extra` (D keeps it there, a dict after a reload), else from JSON content, else None."""
    if isinstance(part.extra, SharedEntry):
        return part.extra
    for data in (part.extra, _loaded(part.content)):
        if isinstance(data, dict):
            try:
                return check({"content": part.content, **data, "sender": sender}, SharedEntry)
            except InvalidInput:
                continue
    return None


def _loaded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
