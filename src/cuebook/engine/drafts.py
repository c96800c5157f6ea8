"""How what was said becomes a draft: secrets replaced, tokens counted, the compressed form and the search key made, before the first write."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from cuebook.assembly.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, Counter
from cuebook.errors import InvalidInput, TooLarge
from cuebook.memory.compress import compress
from cuebook.memory.recall import key_text
from cuebook.records import openai_messages
from cuebook.records.conversation import ASSISTANT, CALL, SYSTEM, TOOL, Draft, Part, PostState, Role
from cuebook.records.openai_messages import Said, read_message

#: Part types counted as an image, whatever their length in bytes.
_MEDIA = frozenset({"image_url", "file", "audio", "input_audio"})
#: Tokens of a call's frame: id, type and name keys.
_CALL_TOKENS = 8


class Redactor(Protocol):
    """Replaces secrets in text and in JSON."""

    def text(self, value: str) -> tuple[str, tuple[Any, ...]]: ...
    def json(self, document: bytes) -> tuple[bytes, tuple[Any, ...]]: ...


class Posted(Struct, frozen=True, kw_only=True):
    """A post as a caller gives it."""

    sender: str
    recipient: str = ""
    message: str = ""
    parts: tuple[Part, ...] = ()
    id: str = ""
    created_at: float | None = None
    role: Role | None = None


class Writer(Struct, frozen=True):
    """Makes drafts of one book: its counter, its redactor and its limit."""

    count: Counter
    redactor: Redactor | None
    max_post: int

    def clean(self, text: str) -> str:
        """Give a text with its secrets replaced."""
        return self.redactor.text(text)[0] if self.redactor and text else text

    def clean_json(self, raw: bytes) -> bytes:
        """Give a JSON document with its secrets replaced; the same object where there were none."""
        return self.redactor.json(raw)[0] if self.redactor else raw

    def posted(self, posted: Posted, *, id: str, now: float, persona: str | None, user: str | None) -> Draft:  # noqa: A002
        """Give a draft of a post a caller gives. Raises TooLarge, InvalidInput."""
        role = posted.role or role_of(posted.sender, persona)
        return self.draft(
            Said(
                role, posted.sender if role == "user" and posted.sender != user else None, posted.message, posted.parts
            ),
            id=posted.id or id,
            sender=posted.sender,
            recipient=posted.recipient or ("" if role == "user" else "user"),
            now=now if posted.created_at is None else posted.created_at,
        )

    def message(self, raw: bytes, said: Said, *, id: str, sender: str, now: float) -> Draft:  # noqa: A002
        """Give a draft of a message of the OpenAI wire, its verbatim form kept where the plain one would lose something."""
        clean = self.clean_json(raw)
        if clean is not raw:
            said = read_message(clean)
        draft = self.draft(said, id=id, sender=sender, recipient="", now=now, size=len(raw))
        plain = not said.parts and said.name is None and _is_plain(clean)
        return draft if plain else msgspec.structs.replace(draft, wire=bytes(clean))

    def draft(
        self,
        said: Said,
        *,
        id: str,  # noqa: A002
        sender: str,
        recipient: str,
        now: float,
        size: int = 0,
        state: PostState = "complete",
        wire: bytes | None = None,
    ) -> Draft:
        """Give a draft of what was said."""
        check_text(said.message, "message")
        size = size or len(said.message.encode()) + sum(len(part.content.encode()) for part in said.parts)
        if size > self.max_post:
            msg = f"a post of {size:,} bytes is over the limit of {self.max_post:,}; split it or raise server.max_post"
            raise TooLarge(msg, where="message")
        message = self.clean(said.message)
        parts = tuple(self._clean_part(part) for part in said.parts)
        said = Said(said.role, said.name, message, parts)
        tokens = self.tokens(message, parts)
        small = compress(message, role=said.role) if _may_shrink(parts) else None
        small_tokens = self.tokens(small, ()) if small else tokens
        if small_tokens >= tokens:
            small, small_tokens = None, tokens
        return Draft(
            id=id,
            sender=sender,
            recipient=recipient,
            role=said.role,
            message=message,
            created_at=now,
            tokens=tokens,
            digest=openai_messages.digest(said),
            parts=parts,
            wire=self.clean_json(wire) if wire else None,
            small=small,
            small_tokens=small_tokens,
            key=key_text(sender, now, message) if message else "",
            state=state,
        )

    def _clean_part(self, part: Part) -> Part:
        if self.redactor is None:
            return part
        content = part.content if part.type in _MEDIA else self.clean(part.content)
        extra = part.extra
        if extra is not None:
            raw = msgspec.json.encode(extra)
            clean = self.clean_json(raw)
            extra = extra if clean is raw else msgspec.json.decode(clean)
        if content is part.content and extra is part.extra:
            return part
        return Part(part.type, content, extra, part.id)

    def tokens(self, message: str, parts: Sequence[Part]) -> int:
        """Tokens of a whole message: its text, its parts, its frame."""
        total = MESSAGE_OVERHEAD + self.count(message)
        for part in parts:
            if part.type in _MEDIA:
                total += IMAGE_TOKENS
            elif part.type == CALL:
                total += self.count(part.content) + _CALL_TOKENS
            elif part.content != message:
                total += self.count(part.content) + 1
        return total


def _may_shrink(parts: Sequence[Part]) -> bool:
    return all(part.type in ("execution_result", "code_error", "execution_status", "text") for part in parts)


def _is_plain(raw: bytes) -> bool:
    fields: Mapping[str, Any] = msgspec.json.decode(raw)
    return (
        set(fields) == {"role", "content"}
        and isinstance(fields["content"], str)
        and fields["role"] in ("user", ASSISTANT)
    )


def role_of(sender: str, persona: str | None) -> Role:
    """Give the role a post has in the prompt by who sends it (INTERFACE, Posts)."""
    if sender in (ASSISTANT, persona):
        return ASSISTANT
    if sender == TOOL:
        return TOOL
    if sender == SYSTEM:
        return SYSTEM
    return "user"


def check_text(text: str, where: str) -> None:
    """Refuse what no store and no model takes: NUL and lone surrogates, naming the field."""
    if "\x00" in text:
        msg = f"{where}: holds a NUL character at position {text.index(chr(0))}; remove it"
        raise InvalidInput(msg, where=where)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        msg = f"{where}: holds half a surrogate pair at position {error.start}; send valid Unicode"
        raise InvalidInput(msg, where=where) from None
