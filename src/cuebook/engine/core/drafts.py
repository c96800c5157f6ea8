"""Build drafts of posts before they are stored: redact secrets, count tokens, compress, and compute the search key.

Errors name the field.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import InvalidInput, TooLarge
from cuebook.memory.compress import compress
from cuebook.memory.recall import unlearned
from cuebook.memory.tokenizer import key_text, redated
from cuebook.records.conversation import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    Draft,
    Part,
    PathPost,
    PostState,
    Role,
    text_with_calls,
)
from cuebook.records.redaction import Redactor, begun
from cuebook.validate import Argument
from cuebook.window.post_forms import decode, short, weigh, whole
from cuebook.window.tokens import MESSAGE_OVERHEAD, Counter
from cuebook.wire import chat_messages as openai_messages
from cuebook.wire.chat_messages import MessageContent, read_message

_STATES: tuple[PostState, ...] = get_args(PostState)
#: Most characters of an id or a sender's name.
LONGEST_NAME = 1_000
#: Part types whose content is binary data, in which secrets are not searched.
_DATA = frozenset({"image_url", "file", "audio", "input_audio"})
#: Range of post times: years 1000 to 9998, so that all computed days are valid (`datetime` ends at 9999).
_EARLIEST, _LATEST = -30_610_224_000.0, 253_370_764_800.0
#: Most parts of a post that its compressed text can represent.
_COMPRESSIBLE = frozenset({"execution_result", "code_error", "execution_status", "text"})


class Posted(Struct, frozen=True, kw_only=True, metaclass=Argument):
    """A post as given by a caller."""

    sender: str
    recipient: str = ""
    message: str = ""
    parts: tuple[Part, ...] = ()
    id: str = ""
    created_at: float | None = None
    role: Role | None = None
    state: PostState = "complete"
    wire: bytes | None = None  # the original message, if there is one; it determines text and role


class PostFactory(Struct, frozen=True):
    """Builds drafts with the project's token counter, secret redactor and size limit."""

    count: Counter
    redactor: Redactor | None
    max_post: int

    def clean(self, text: str) -> str:
        """Return a text with its secrets redacted."""
        return self.redactor.text(text) if self.redactor and text else text

    def clean_json(self, raw: bytes) -> bytes:
        """Return a JSON document with its secrets redacted, or the same object if it has none."""
        return self.redactor.json(raw) if self.redactor else raw

    def settled(self, text: str) -> str:
        """Return an interrupted text without a key cut off at its end, which no pattern would match."""
        if self.redactor is None:
            return text
        clean = self.clean(text)
        return text[: len(text) - (len(clean) - begun(clean))]

    def posted(self, posted: Posted, *, id: str, now: float, persona: str | None, user: str | None) -> Draft:  # noqa: A002
        """Return the draft of a caller's post. Raises TooLarge, InvalidInput."""
        if posted.state not in _STATES:
            msg = f"state: unknown value {posted.state!r}. Available: {', '.join(_STATES)}."
            raise InvalidInput(msg, where="state")
        sender = posted.sender if posted.sender == user else self.clean(posted.sender)
        wire = None if posted.wire is None else bytes(self.clean_json(posted.wire))
        try:
            content = content_of(replace(posted, wire=wire), sender=sender, persona=persona, user=user)
        except InvalidInput as error:
            where = (error.where or "").replace("messages[0]", "wire")
            raise InvalidInput(str(error).replace(error.where or "", where, 1), where=where) from error
        for part in posted.parts if wire is None else ():
            check_text(part.content, "attachments")
        return self.draft(
            content,
            id=posted.id or id,
            sender=sender,
            recipient=self.clean(posted.recipient) or recipient_of(content.role),
            now=now if posted.created_at is None else posted.created_at,
            state=posted.state,
            wire=wire,
        )

    def message(
        self,
        raw: bytes,
        content: MessageContent,
        *,
        id: str,  # noqa: A002
        user: str | None,
        now: float,
        owner: str | None = None,
        clean: bool = False,
    ) -> Draft:
        """Return the draft of an OpenAI message. Its original bytes are stored if re-encoding it would lose something.

        Its tokens are those of the live message if that is larger. `user` is the sender of messages without a name.
        `owner` is the sender whose posts are stored without a name. `clean`: the message has no secrets.
        """
        kept = raw if clean else self.clean_json(raw)
        clean = kept is raw
        if not clean:
            content = read_message(kept)
        sender = sender_of(content, user)
        plain = not content.parts and content.name is None and sender in (owner, "user", ASSISTANT)
        if plain:
            fields: Mapping[str, Any] = msgspec.json.decode(kept)
            plain = set(fields) == {"role", "content"} and isinstance(fields["content"], str)
            plain = plain and fields["role"] in ("user", ASSISTANT)
        draft = self.draft(
            content,
            id=id,
            sender=sender,
            recipient=recipient_of(content.role),
            now=now,
            wire=None if plain else bytes(kept),
            clean=clean,
        )
        if clean:
            return draft
        return msgspec.structs.replace(draft, tokens=max(draft.tokens, weigh(decode(raw), self.count)))

    def draft(
        self,
        content: MessageContent,
        *,
        id: str,  # noqa: A002
        sender: str,
        recipient: str,
        now: float,
        state: PostState = "complete",
        wire: bytes | None = None,
        limited: bool = True,
        clean: bool = False,
    ) -> Draft:
        """Return the draft of a content. Raises TooLarge for too much text if `limited`.

        `clean`: `wire` has the same content and no secrets. A single text is one string of its JSON; several texts or
        calls are derived from it.
        """
        check_text(content.message, "message")
        check_name(id, "id")
        check_name(sender, "sendFrom")
        check_name(recipient, "sendTo")
        check_time(now)
        texts = [content.message, *(part.content for part in content.parts if part.type not in _DATA)]
        if limited and (size := sum(len(text.encode()) for text in texts)) > self.max_post:
            limit = f"{self.max_post:,}. Split the post or raise server.max_post."
            msg = f"Post too large: {size:,} bytes of text exceed the limit of {limit}"
            raise TooLarge(msg, where="message")
        message = content.message if clean and not content.parts else self.clean(content.message)
        parts, encoded = self._clean_parts(content.parts)
        wire = self.clean_json(wire) if wire and not clean else wire
        post = PathPost(
            0, id, 0, content.role, sender, message, 0, None, 0, 0, now,
            encoded, wire, state,
        )  # fmt: skip
        tokens = self.tokens(post)
        small, small_tokens = self._compressed(post, tokens, parts)
        text = text_with_calls(message, parts)
        return Draft(
            id=id,
            sender=sender,
            recipient=recipient,
            role=content.role,
            message=message,
            created_at=now,
            tokens=tokens,
            digest=openai_messages.digest(MessageContent(content.role, content.name, message, parts)),
            parts=parts,
            wire=wire,
            small=small,
            small_tokens=small_tokens,
            key="" if not text or unlearned(content.role, message) else key_text(sender, now, text),
            state=state,
        )

    def tokens(self, post: PathPost) -> int:
        """Return the tokens of a whole post on the wire, including its speaker's name."""
        if post.wire is None and _is_bare(post):
            return MESSAGE_OVERHEAD + self.count(post.message or "")
        return weigh(decode(whole(post, None)), self.count)

    def _compressed(self, post: PathPost, tokens: int, parts: Sequence[Part]) -> tuple[str | None, int]:
        """Return the compressed form and its tokens, or none if it would not be smaller or would lose a part."""
        if any(part.type not in _COMPRESSIBLE or part.content not in ("", post.message) for part in parts):
            return None, tokens
        small = compress(post.message or "", role=post.role)
        if small is None:
            return None, tokens
        if _is_bare(post):
            small_tokens = MESSAGE_OVERHEAD + self.count(small)
        else:
            small_tokens = weigh(decode(short(post, small, None)), self.count)
        return (small, small_tokens) if small_tokens < tokens else (None, tokens)

    def _clean_parts(self, parts: Sequence[Part]) -> tuple[tuple[Part, ...], bytes | None]:
        """Return parts with secrets redacted, and their JSON. Raises InvalidInput if JSON cannot encode them."""
        try:
            clean = tuple(self._clean_part(part) for part in parts)
            return clean, msgspec.json.encode(clean) if clean else None
        except (TypeError, UnicodeEncodeError, RecursionError) as error:
            msg = f"attachments: cannot be encoded as JSON ({error})."
            raise InvalidInput(msg, where="attachments") from error

    def _clean_part(self, part: Part) -> Part:
        if self.redactor is None:
            return part
        data = part.type in _DATA and "://" not in part.content[:16]  # a URL may contain a password
        content = part.content if data else self.clean(part.content)
        extra = part.extra
        if extra is not None:
            raw = msgspec.json.encode(extra)
            clean = self.clean_json(raw)
            extra = extra if clean is raw else msgspec.json.decode(clean)
        if content is part.content and extra is part.extra:
            return part
        return Part(part.type, content, extra, part.id)


def content_of(posted: Posted, *, sender: str, persona: str | None, user: str | None) -> MessageContent:
    """Return the content of a caller's post. Raises InvalidInput for an invalid `wire`."""
    if posted.wire is not None:
        return read_message(posted.wire)
    role = posted.role or role_of(posted.sender, persona)
    return MessageContent(role, sender if role == "user" and sender != user else None, posted.message, posted.parts)


def dated(drafts: Sequence[Draft], zone: tzinfo) -> tuple[Draft, ...]:
    """Return drafts with a search key for their day in a time zone."""
    if zone is UTC:
        return tuple(drafts)
    return tuple(
        msgspec.structs.replace(each, key=redated(each.key, each.created_at, zone)) if each.key else each
        for each in drafts
    )


def sender_of(content: MessageContent, user: str | None) -> str:
    """Return the sender of a wire message: `user` if it has no name."""
    if content.role == "user":
        return content.name or user or "user"
    return {TOOL: TOOL, SYSTEM: SYSTEM}.get(content.role, ASSISTANT)


def recipient_of(role: Role) -> str:
    """Return the default recipient of a post: the assistant for users and tools, the user for the assistant."""
    return {ASSISTANT: "user", "user": ASSISTANT, TOOL: ASSISTANT}.get(role, "")


def _is_bare(post: PathPost) -> bool:
    """Return whether a message is only a role and a text, so that it can be re-encoded."""
    unnamed = post.role in (ASSISTANT, SYSTEM) or (post.role == "user" and post.sender == "user")
    return unnamed and post.parts is None and post.state == "complete"


def role_of(sender: str, persona: str | None) -> Role:
    """Return the prompt role of a post by its sender (INTERFACE, Posts)."""
    if sender in (ASSISTANT, persona):
        return ASSISTANT
    if sender == TOOL:
        return TOOL
    if sender == SYSTEM:
        return SYSTEM
    return "user"


def check_time(when: float) -> None:
    """Check that a time is in range: it fails for milliseconds and for unset times counted from year 1."""
    if not _EARLIEST <= when < _LATEST:
        msg = f"timestamp: {when} is outside the years 1000 to 9998. Use seconds since 1970."
        raise InvalidInput(msg, where="timestamp")


def check_text(text: str, where: str) -> None:
    """Check that a text has no NUL character and no lone surrogate. Raises InvalidInput naming the field."""
    if "\x00" in text:
        msg = f"{where}: NUL character at position {text.index(chr(0))}. Remove it."
        raise InvalidInput(msg, where=where)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        msg = f"{where}: lone surrogate at position {error.start}. Send valid Unicode."
        raise InvalidInput(msg, where=where) from None


def check_name(text: str, where: str) -> None:
    """Check the length and characters of an id or a sender's name. Raises InvalidInput."""
    if len(text) > LONGEST_NAME:
        msg = f"{where}: {len(text):,} characters exceed the limit of {LONGEST_NAME:,}. Use a shorter id or name."
        raise InvalidInput(msg, where=where)
    check_text(text, where)
