"""Parse a chat-completions request, and build the request of its turn.

A request may look like a utility call: a one-shot instruction for a title, tags, JSON or a summary.
`utility_templates.toml` has how the templates of some programs begin.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from cuebook.engine.core.drafts import check_name
from cuebook.engine.core.services import Key, Services
from cuebook.engine.turn.request import TurnRequest, UtilitySign
from cuebook.errors import InvalidInput
from cuebook.memory.scopes import read_control
from cuebook.records.conversation import SYSTEM, digest_of
from cuebook.records.key import no_organization
from cuebook.records.turn import Ask
from cuebook.window.window import client_system
from cuebook.wire import chat_messages as openai_messages
from cuebook.wire.chat_messages import ResentMessage, read_message, value_of

#: Request fields besides messages that a provider charges as input.
_CHARGED = ("tools", "functions", "response_format")
#: Fields that control the format of an answer, not its content.
_DELIVERY = frozenset({"stream", "stream_options"})
#: Most choices of a request (OpenAI's limit of `n`).
MOST_CHOICES = 128

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])


class RelayCall(Struct, frozen=True, kw_only=True):
    """A chat-completions request as received."""

    body: bytes
    headers: Mapping[str, str]
    conversation: str | None = None  # from the base URL or a header
    user: str | None = None
    server_history: bool = False  # X-History: server: `messages` are new ones only
    parent: int | None = None  # with it: seq of the post they follow, by default the head
    leading: int | None = None  # number of leading system messages; later ones are posts. By default all leading ones.
    lists: bool = False  # its client may store its messages as items of a conversation it created
    metadata: Mapping[str, Any] = {}  # request fields that the answer repeats, stored with its step
    query: str = ""
    idempotency_key: str | None = None
    project: str | None = None  # project whose prompts shadow others; stored in the conversation
    time_zone: str | None = None  # time zone of the request's dates; stored in the conversation
    authenticated: bool = False  # the user is the API key's
    organization: str | None = None  # organization asserted with each request; not stored
    memory_control: str | None = None  # JSON, like `memoryControl` of /api/chat
    organizations: frozenset[str] | None = None  # personas allowed by the API key; None: all
    may_publish: bool = True  # whether the caller may write to the organization's memory
    key: str = ""  # id of the API key; none if no keys are configured


def turn_request(
    services: Services,
    call: RelayCall,
    fields: Mapping[str, Raw],
    *,
    keyed: Mapping[str, Raw],
    quotes: bool,
) -> TurnRequest:
    """Return the request of a turn from the fields of a chat completion. The upstream validates the other fields.

    An Idempotency-Key is bound to the `keyed` fields. Raises InvalidInput naming the field,
    NotFound for an organization that is not the caller's.
    """
    messages = _read_messages(services, call, fields)
    lead = next((n for n, each in enumerate(messages) if each.role != SYSTEM), len(messages))
    lead = lead if call.leading is None else min(lead, call.leading)
    front, history = messages[:lead], messages[lead:]
    value = value_of(fields, "metadata")
    metadata = value if isinstance(value, dict) else {}
    conversation = call.conversation or _text(metadata.get("conversation_id"))
    user = call.user or _text(value_of(fields, "user")) or _text(value_of(fields, "safety_identifier")) or None
    check_name(conversation, "conversation")
    check_name(user or "", "user")
    organization = call.organization or _text(metadata.get("organization_id")) or None
    if organization and call.organizations is not None and organization not in call.organizations:
        raise no_organization(organization)
    tools, live_tools = _charged(services, fields)
    model, choices = value_of(fields, "model"), value_of(fields, "n")
    newest = next((each for each in reversed(history) if each.role == "user"), None)
    ask = Ask(
        newest.content.message if newest else "",
        conversation,
        user=user,
        persona=model if isinstance(model, str) and model in services.settings.personas else None,
        project=call.project,
        time_zone=call.time_zone,
        organization=organization,
        memory_control=_control(call, metadata),
        may_publish=call.may_publish,
        key=call.key,
        relayed=True,
        authenticated=call.authenticated and user is not None,
    )
    return TurnRequest(
        ask=ask,
        utility_sign=utility_sign(call.headers, keyed, history, front=front, resends=not call.server_history),
        key=_key_of(services, call, ask, keyed, user=user),
        choices=min(max(choices, 1), MOST_CHOICES) if isinstance(choices, int) else 1,
        history=tuple(history),
        only_new=call.server_history,
        parent=call.parent,
        lists=call.lists,
        retried=call.headers.get("x-stainless-retry-count", "0") != "0",  # counted by client libraries
        client=tuple(client_system(services.writer.clean_json(each.raw)) for each in front),
        live_client=tuple(client_system(each.raw) for each in front) if any(each.secret for each in front) else (),
        tools=tools,
        live_tools=live_tools,
        quotes=quotes,
        metadata=call.metadata,
    )


def read_fields(body: bytes) -> dict[str, Raw]:
    """Return the fields of a chat completion. Raises InvalidInput."""
    try:
        return _fields.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"The request body is not a JSON object ({error})."
        raise InvalidInput(msg, where="body") from None


def _read_messages(services: Services, call: RelayCall, fields: Mapping[str, Raw]) -> list[ResentMessage]:
    try:
        raws = _raws.decode(fields["messages"])
    except KeyError:
        msg = "messages: missing. Send a list of messages."
        raise InvalidInput(msg, where="messages") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"messages: expected a list of messages ({error})"
        raise InvalidInput(msg, where="messages") from None
    if not raws and call.parent is None:
        msg = "messages: empty. Send at least one message."
        raise InvalidInput(msg, where="messages")
    return [_read_message(services, bytes(raw), number) for number, raw in enumerate(raws)]


def _key_of(
    services: Services, call: RelayCall, ask: Ask, fields: Mapping[str, Raw], *, user: str | None
) -> Key | None:
    """Return a call's Idempotency-Key with its request's digest, or None without a key.

    A streamed and an unstreamed request have the same digest.
    """
    if call.idempotency_key is None:
        return None
    terms: list[Any] = [ask.organization, ask.memory_control] if ask.organization or ask.memory_control else []
    terms += [call.parent] if call.parent is not None else []
    places = _encode([ask.conversation or None, user, call.server_history, *terms])
    asked = [name.encode() + b":" + bytes(raw) for name, raw in fields.items() if name not in _DELIVERY]
    digest = services.settings.request_digest(b"\x00".join([places, *sorted(asked)]))  # JSON contains no NUL
    return call.idempotency_key, digest


def _control(call: RelayCall, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a request's memory control, from a header or from `metadata`, whose values are strings for OpenAI."""
    where = "X-Memory-Control"
    value: Any = call.memory_control
    if value is None:
        where, value = "metadata.memory_control", metadata.get("memory_control")
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            value = ""
    if value is not None and not isinstance(value, dict):
        msg = f"{where}: expected a JSON object. Use the format of memoryControl of /api/chat."
        raise InvalidInput(msg, where=where)
    if value is not None:
        read_control(value)
    return value


def _charged(services: Services, fields: Mapping[str, Raw]) -> tuple[str, str]:
    """Return the charged fields besides messages in their stored form, and the original if it differs.

    They are resent with every call, so the result of the secret scan is cached.
    """
    values = [bytes(fields[name]) for name in _CHARGED if value_of(fields, name)]
    live = b"\n".join(values)
    name = digest_of(b"charged\n" + live)
    known = services.caches.messages.get(name)
    if known is not None and not known[2]:
        return live.decode(), ""
    clean = b"\n".join(map(services.writer.clean_json, values))
    services.caches.messages[name] = ("", b"", clean != live)
    return clean.decode(), live.decode() if clean != live else ""


def _read_message(services: Services, raw: bytes, number: int) -> ResentMessage:
    """Parse a message, or return its cached result by the digest of its bytes."""
    name = digest_of(raw)
    known = services.caches.messages.get(name)
    if known is not None:
        return ResentMessage(raw, *known)
    clean = services.writer.clean_json(raw)
    content = read_message(clean, index=number)
    known = (content.role, openai_messages.digest(content), clean is not raw)
    services.caches.messages[name] = known
    return ResentMessage(raw, *known, None if clean is not raw else content)


def model_in(body: bytes) -> str:
    """Return the model that a request's body names, "" for none and for a body that cannot be parsed."""
    try:
        return msgspec.json.decode(body, type=_ModelField).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


class _ModelField(Struct):
    model: str = ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# ---- Utility calls --------------------------------------------------------------------------------------------------


#: Header by which a client declares a utility call.
HEADER: Final = "x-cuebook-utility"
#: Most requested tokens of a utility call that asks for a few words only.
FEW_TOKENS: Final = 32
#: Letters of a message that may contain the beginning of a template.
BEGINNING: Final = 400
#: Where the three wires request a format and limit the answer.
_FORMATS: Final = (("response_format",), ("text", "format"), ("output_config", "format"), ("output_format",))
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_JSON: Final = ("json_object", "json_schema")


def utility_sign(
    headers: Mapping[str, str],
    fields: Mapping[str, Raw],
    history: Sequence[ResentMessage],
    *,
    front: Sequence[ResentMessage],
    resends: bool,
) -> UtilitySign:
    """Return what a request has of a utility call. `fields` are as received, `front` is its system text.

    A request that leaves its history to the server (not `resends`) is none. Raises InvalidInput.
    """
    declared = headers.get(HEADER, "")
    if declared not in ("", "0", "1"):
        msg = f"X-Cuebook-Utility: unknown value {declared!r}. Available: 0, 1."
        raise InvalidInput(msg, where="X-Cuebook-Utility")
    if declared == "0" or not resends:
        return ""
    if declared:
        return "declared"
    if [each.role for each in history] != ["user"] or any(value_of(fields, name) for name in ("tools", "functions")):
        return ""
    beginnings = (" ".join(each.content.message[:BEGINNING].casefold().split()) for each in (*front, *history))
    if any(each.startswith(_known_beginnings()) for each in beginnings):
        return "template"
    few = any(0 < limit <= FEW_TOKENS for name in _LIMITS if isinstance(limit := value_of(fields, name), int))
    return "format" if few or any(_asks_json(fields, path) for path in _FORMATS) else "shape"


def _asks_json(fields: Mapping[str, Raw], path: Sequence[str]) -> bool:
    value = value_of(fields, path[0])
    for name in (*path[1:], "type"):
        value = value.get(name) if isinstance(value, dict) else None
    return value in _JSON


@cache
def _known_beginnings() -> tuple[str, ...]:
    """Load the beginnings of known templates."""
    data = tomllib.loads(files("cuebook.engine.proxy").joinpath("utility_templates.toml").read_text("utf-8"))
    return tuple(each.casefold() for program in data.values() for each in program)
