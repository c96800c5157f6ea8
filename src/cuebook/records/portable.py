"""Conversations, rounds, posts and attachments as plain dicts, and back (seed 003, `to_dict` and `from_dict`).

The keys are D's, so that its readers understand what we write. What is ours alone stands under one more key, `cuebook`,
under our field names, and makes `from_dict(to_dict(x)) == x`; parts of types D refuses to load stand there too, with
their place. Dicts hold only str, int, float, bool, None, list and dict: any YAML or JSON writer will do.

Read without `cuebook` (a file of D's, or one written by hand): posts are numbered as they stand, each the child of the
one before, `User` is the user and any other speaker an assistant unless called tool or system. Missing ids are made
from those numbers. Times, token counts and digests are 0 and empty: whoever stores the posts computes them.

Anything of the wrong shape raises InvalidInput naming its path, `rounds[3].post_list[0].send_from`.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar, get_args

import msgspec
from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.records.conversation import (
    PART_TYPES,
    REMOVED_PART_TYPES,
    RENAMED_PART_TYPES,
    Conversation,
    Part,
    Post,
    Round,
    RoundState,
    SharedEntry,
)
from cuebook.records.experience import Experience

#: Makes an id from D's prefix: "atta-", "post-", "round-", "conv-" or "sme-".
IdMaker = Callable[[str], str]

_OURS = "cuebook"
#: Types D's `Attachment.from_dict` raises on: those it never had, and `text`, which it calls deprecated (measured).
_NOT_IN_D = frozenset({"text", "reasoning", "file", "audio", "refusal", "opaque"})
_KNOWN = PART_TYPES | REMOVED_PART_TYPES | RENAMED_PART_TYPES.keys()
_STATES: tuple[RoundState, ...] = get_args(RoundState)
_SCOPES = ("round", "conversation")
_R = TypeVar("_R", bound=Struct)


class Transcript(Struct, frozen=True, kw_only=True):
    """A conversation with its rounds, and those fields of D's that ours has no place for."""

    conversation: Conversation
    rounds: tuple[Round, ...] = ()
    plugins: tuple[Any, ...] = ()
    roles: tuple[str, ...] = ()
    enabled: bool = True


# ---------------------------------------------------------------- writing
def part_to_dict(part: Part) -> dict[str, Any]:
    """Write an attachment. An opaque part that was read from an unknown type goes back under that type."""
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
    if kept := [{"at": at, **part} for at, part in enumerate(parts) if part["type"] in _NOT_IN_D]:
        ours["parts"] = kept
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


def conversation_to_dict(transcript: Transcript) -> dict[str, Any]:
    """Write a conversation with its rounds."""
    return {
        "id": transcript.conversation.id,
        "plugins": _plain(list(transcript.plugins), "plugins"),
        "roles": list(transcript.roles),
        "enabled": transcript.enabled,
        "rounds": [round_to_dict(round_) for round_ in transcript.rounds],
        _OURS: _rest(transcript.conversation, "id"),
    }


def shared_entry_to_dict(entry: SharedEntry) -> dict[str, Any]:
    """Write a shared memory entry."""
    wire = {"type": entry.type, "content": entry.content, "scope": entry.scope, "id": entry.id}
    return wire if entry.sender is msgspec.UNSET else {**wire, _OURS: {"sender": entry.sender}}


def experience_to_dict(experience: Experience) -> dict[str, Any]:
    """Write an experience."""
    return {
        "exp_id": experience.exp_id,
        "who": list(experience.who),
        "when": experience.when,
        "what": experience.what,
    }


# ---------------------------------------------------------------- reading
def part_from_dict(data: object, *, fresh_ids: IdMaker | None = None, where: str = "") -> Part | None:
    """Read an attachment: None for a removed type, an opaque part with `extra.originalType` for an unknown one."""
    node = _Node(data, where)
    kind, extra = node.text("type"), _plain(node.get("extra"), node.at("extra"))
    if kind in REMOVED_PART_TYPES:
        return None
    if kind not in _KNOWN:
        extra = {"originalType": kind} if extra is None else {"originalType": kind, "extra": extra}
        kind = "opaque"
    content = _plain(node.get("content"), node.at("content"))
    if not isinstance(content, str):  # D's artifact_paths may hold a list
        content = "" if content is None else msgspec.json.encode(content).decode()
    part_id = fresh_ids("atta-") if fresh_ids else node.text("id", "")
    return Part(RENAMED_PART_TYPES.get(kind, kind), content, extra, part_id)


def post_from_dict(data: object, *, fresh_ids: IdMaker | None = None, where: str = "") -> Post:
    """Read a post. `fresh_ids` gives it and its attachments new ids; without it all keep theirs."""
    return _Reader(fresh_ids).post(_Node(data, where), None)


def round_from_dict(data: object, *, fresh_ids: IdMaker | None = None, where: str = "") -> Round:
    """Read a round with its posts."""
    return _Reader(fresh_ids).round(_Node(data, where))


def conversation_from_dict(data: object, *, fresh_ids: IdMaker | None = None, where: str = "") -> Transcript:
    """Read a conversation with its rounds. One without an id has the id "": its caller names it."""
    node, reader = _Node(data, where), _Reader(fresh_ids)
    rounds = tuple(reader.round(item) for item in node.items("rounds"))
    base = {
        "no": 0, "user": None, "persona": None, "participants": (), "head": reader.last, "last_seq": reader.last,
        "turns": 0, "generation": 0, "created_at": 0.0, "updated_at": 0.0,
    }  # fmt: skip
    own = {"id": fresh_ids("conv-") if fresh_ids else node.text("id", "")}
    return Transcript(
        conversation=_record(Conversation, {**base, **node.ours(), **own}, node),
        rounds=rounds,
        plugins=tuple(_plain(item.data, item.path) for item in node.items("plugins")),
        roles=tuple(item.as_text() for item in node.items("roles")),
        enabled=node.flag("enabled", default=True),
    )


def shared_entry_from_dict(data: object, *, fresh_ids: IdMaker | None = None, where: str = "") -> SharedEntry:
    """Read a shared memory entry."""
    node = _Node(data, where)
    own = {"type": node.text("type"), "content": node.text("content"), "scope": node.choice("scope", _SCOPES)}
    own["id"] = fresh_ids("sme-") if fresh_ids else node.text("id", "")
    return _record(SharedEntry, {**node.ours(), **own}, node)


def experience_from_dict(data: object, *, where: str = "") -> Experience:
    """Read an experience. The legacy `experience_text` stands for whichever of `when` and `what` is missing."""
    node = _Node(data, where)
    legacy = node.text("experience_text") if node.get("experience_text") is not None else None
    who = node.get("who")
    roles = (who,) if isinstance(who, str) else tuple(item.as_text() for item in node.items("who"))
    return Experience(
        exp_id=node.text("exp_id"), who=roles, when=node.text("when", legacy), what=node.text("what", legacy)
    )


class _Node:
    """A dict on its way in, and its path from the top."""

    def __init__(self, data: object, path: str) -> None:
        self.data = data
        self.path = path

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def get(self, key: str) -> Any:
        if not isinstance(self.data, Mapping):
            _wrong(self.path, "an object", self.data)
        return self.data.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        """Read a string; missing or null is `default`, if there is one."""
        value = self.get(key)
        return default if value is None and default is not None else _Node(value, self.at(key)).as_text()

    def as_text(self) -> str:
        if not isinstance(self.data, str):
            _wrong(self.path, "a string", self.data)
        return self.data

    def choice(self, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in allowed:
            raise InvalidInput(f"{self.at(key)}: expected {' or '.join(allowed)}, got {value!r}", where=self.at(key))
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            _wrong(self.at(key), "true or false", value)
        return default if value is None else value

    def items(self, key: str) -> list["_Node"]:
        """Read a list; missing or null is an empty one."""
        values = self.get(key)
        if values is not None and not isinstance(values, list | tuple):
            _wrong(self.at(key), "a list", values)
        return [_Node(value, f"{self.at(key)}[{n}]") for n, value in enumerate(values or ())]

    def ours(self) -> dict[str, Any]:
        ours = self.get(_OURS)
        if ours is not None and not isinstance(ours, Mapping):
            _wrong(self.at(_OURS), "an object", ours)
        return dict(ours or {})


class _Reader:
    """Reads posts in order, numbers those that have no number, and gives fresh ids if asked."""

    def __init__(self, fresh_ids: IdMaker | None) -> None:
        self.fresh_ids = fresh_ids
        self.last = 0  # seq of the post read last

    def round(self, node: _Node) -> Round:
        ours = node.ours()
        seq = ours.get("seq", self.last + 1)
        own = {
            "id": self.fresh_ids("round-") if self.fresh_ids else node.text("id", f"round-{seq}"),
            "user_query": node.text("user_query", ""),
            "state": node.choice("state", _STATES, "created"),
            "posts": (),
        }
        read = _record(Round, {"seq": seq, **ours, **own}, node)
        posts = (self.post(item, read.seq) for item in node.items("post_list"))
        return msgspec.structs.replace(read, posts=tuple(posts))

    def post(self, node: _Node, opened: int | None) -> Post:
        ours, sender, seq = node.ours(), node.text("send_from"), self.last + 1
        role = sender.lower() if sender.lower() in ("user", "tool", "system") else "assistant"
        base = {"seq": seq, "parent": self.last, "round": opened or seq, "role": role, "created_at": 0.0, "tokens": 0}
        own = {
            "id": self.fresh_ids("post-") if self.fresh_ids else node.text("id", f"post-{ours.get('seq', seq)}"),
            "message": node.text("message", ""),
            "sender": sender,
            "recipient": node.text("send_to", "Unknown"),  # D's default
            "wire": _wire_from_dict(ours, node),
            "parts": (),
        }
        read = _record(Post, {**base, **ours, **own}, node)
        self.last = read.seq
        return msgspec.structs.replace(read, parts=self.parts(node))

    def parts(self, node: _Node) -> tuple[Part, ...]:
        read = (
            part_from_dict(item.data, fresh_ids=self.fresh_ids, where=item.path)
            for item in node.items("attachment_list")
        )
        parts = [part for part in read if part is not None]
        for item in _Node(node.ours(), node.at(_OURS)).items("parts"):
            part = part_from_dict(item.data, fresh_ids=self.fresh_ids, where=item.path)
            at = item.get("at")
            if not isinstance(at, int) or at < 0:
                _wrong(item.at("at"), "a place, 0 or more", at)
            if part is not None:
                parts.insert(at, part)
        return tuple(parts)


def _record(kind: type[_R], fields: dict[str, Any], node: _Node) -> _R:
    """Make a record. D's own keys were checked before, so what is wrong now stands under `cuebook`."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        where = node.at(_OURS) + place.rstrip("`")
        raise InvalidInput(f"{where}: {problem}", where=where) from error


def _rest(record: Struct, *taken: str) -> dict[str, Any]:
    """Return the fields of a record that D has no key for, without those at their default."""
    fields = {
        field.encode_name: getattr(record, field.name)
        for field in msgspec.structs.fields(record)
        if field.name not in taken and (field.required or getattr(record, field.name) != _default(field))
    }
    plain = _plain(fields, _OURS)
    return plain if isinstance(plain, dict) else {}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _wire_to_dict(wire: bytes) -> dict[str, str]:
    """Write wire bytes as the text they nearly always are."""
    try:
        return {"wire": wire.decode()}
    except UnicodeDecodeError:
        return {"wire_base64": b64encode(wire).decode()}


def _wire_from_dict(ours: dict[str, Any], node: _Node) -> bytes | None:
    text, coded = ours.get("wire"), ours.pop("wire_base64", None)
    try:
        if coded is not None:
            return b64decode(coded, validate=True)
        return None if text is None else text.encode()
    except (AttributeError, TypeError, ValueError):
        _wrong(f"{node.at(_OURS)}.wire", "the text of a message", text or coded)


def _plain(value: object, where: str) -> Any:
    """Copy a value with nothing in it but what YAML and JSON hold."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: no plain value ({error})", where=where) from error


def _wrong(where: str, expected: str, got: object) -> NoReturn:
    place = where or "the top"
    raise InvalidInput(f"{place}: expected {expected}, got {type(got).__name__}", where=place)
