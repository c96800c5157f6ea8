"""Parse and validate JSON request bodies: UTF-8, bounded depth, no NUL, no lone surrogates, no unknown fields."""

import json
import re
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

import msgspec
from litestar.dto import AbstractDTO
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition
from msgspec import Raw, Struct, structs

from cuebook.config import ServerConfig
from cuebook.errors import InvalidInput, TooLarge
from cuebook.records.expression import nests_deeper
from cuebook.server.caller import AnyRequest, check_named, own_cue
from cuebook.validate import Fault, validate

T = TypeVar("T")

#: Maximum nesting depth of a body. A chat request with tools needs about 12; deeper ones risk the stack.
DEPTH = 64

#: Matches the escape of a NUL or of a lone surrogate. It is wrong only beside an escaped backslash.
_SUSPECT = re.compile(
    rb"\\u(?:0000|[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|[c-fC-F]..(?<!\\u[dD][89abAB]..\\u[dD]...)))", re.DOTALL
)
_BACKSLASH = rb"\\u"  # an escaped backslash, whose second half may look like the start of an escape


def read_json(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Decode a body. Raises InvalidInput that names the field."""
    check_json(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        try:
            document = json.loads(body)
        except ValueError as long:  # Python's limit for the digits of a number
            msg = "body: a number has too many digits. Use at most 4,300."
            raise InvalidInput(msg, where="body") from long
        _, faults = validate(document, decoder.type, null_is_absent=False)
        fault = faults[0] if faults else Fault("", str(error))
        where = fault.path or "body"
        raise InvalidInput(f"{where}: {fault.reason}", where=where) from None
    except msgspec.DecodeError as error:
        msg = f"body: not valid JSON ({error}). Send a JSON document."
        raise InvalidInput(msg, where="body") from None


def check_json(body: bytes) -> None:
    """Check a body's encoding, depth and characters. Raises InvalidInput."""
    if not body:
        msg = "body: empty. Send a JSON object."
        raise InvalidInput(msg, where="body")
    try:
        _ = body.isascii() or body.decode()
    except UnicodeDecodeError as error:
        msg = f"body: not UTF-8 (byte {error.start}). Send JSON as UTF-8."
        raise InvalidInput(msg, where="body") from None
    if nests_deeper(body, DEPTH):
        msg = f"body: nested deeper than {DEPTH} levels. Flatten it."
        raise InvalidInput(msg, where="body")
    if _SUSPECT.search(body) or _BACKSLASH in body:
        _check_texts(body)


def _check_texts(body: bytes) -> None:
    """Check the characters of each text. Raises InvalidInput that names the field."""
    try:
        document = json.loads(body)
    except ValueError as error:
        msg = f"body: not valid JSON ({error}). Send a JSON document."
        raise InvalidInput(msg, where="body") from None
    for where, text in _texts(document, ""):
        if what := "a NUL character" if "\x00" in text else _surrogate(text):
            msg = f"{where or 'body'}: contains {what}. Send valid Unicode without it."
            raise InvalidInput(msg, where=where or "body")


def _surrogate(text: str) -> str:
    if text.isprintable():
        return ""
    return "a lone surrogate" if any("\ud800" <= character <= "\udfff" for character in text) else ""


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for n, each in enumerate(value):
            yield from _texts(each, f"{where}[{n}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            shown = key.encode("unicode_escape").decode() if not key.isprintable() else key
            below = f"{where}.{shown}" if where else shown
            yield below, key
            yield from _texts(each, below)


class _Parts(Struct):
    """A post or message: the values in it that are counted."""

    attachments: list[Raw] | str | None = None
    parts: list[Raw] | str | None = None
    content: list[Raw] | str | None = None


class _Amount(Struct):
    """A body: the values in it that are counted."""

    posts: list[_Parts] = []
    messages: list[_Parts] = []
    attachments: list[Raw] = []


_amount = msgspec.json.Decoder(_Amount).decode


def check_amount(body: bytes, limits: ServerConfig) -> None:
    """Check how many posts and attachments a body has. Others wait while it is parsed. Raises TooLarge."""
    if body.count(b"{") <= min(limits.max_posts, limits.max_attachments):
        return
    try:
        found = _amount(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the route's own parser names the fault
    posts = [*found.posts, *found.messages]
    parts = sum(len(each) for post in posts for each in structs.astuple(post) if isinstance(each, list))
    for many, most, what, setting in (
        (len(posts), limits.max_posts, "posts", "server.max_posts"),
        (parts + len(found.attachments), limits.max_attachments, "attachments", "server.max_attachments"),
    ):
        if many > most:
            msg = f"Too many {what}: {many:,} exceed the limit of {most:,}. Split the request or raise {setting}."
            raise TooLarge(msg, where=what)


class JsonBody(AbstractDTO[T], Generic[T]):
    """Decodes and validates a route's `data` from bytes, and documents its type."""

    _decoder: "msgspec.json.Decoder[T]"
    _names: dict[str, str]  # of the attributes, by the fields' names in JSON

    @classmethod
    def create_for_field_definition(
        cls, field_definition: FieldDefinition, handler_id: str, backend_cls: Any = None
    ) -> None:
        _ = field_definition, handler_id, backend_cls
        cls._decoder = msgspec.json.Decoder(cls.model_type)
        kind: Any = cls.model_type
        cls._names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))

    def decode_bytes(self, value: bytes) -> T:
        check_amount(value, own_cue(cast("AnyRequest", self.asgi_connection)).config.settings.server)
        data = read_json(value, self._decoder)
        user, organization = (getattr(data, self._names.get(each, ""), None) for each in ("userId", "organizationId"))
        check_named(cast("AnyRequest", self.asgi_connection), user=user, organization=organization)
        return data

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Reference | Schema:
        _ = handler_id
        schema: Reference | Schema = schema_creator.for_field_definition(field_definition)
        return schema

    @classmethod
    def generate_field_definitions(cls, model_type: type[Any]) -> Any:
        _ = model_type
        yield from ()

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        _ = field_definition
        return False


class RawBody(JsonBody[T], Generic[T]):
    """A body that its route gets as bytes and checks itself; its type is only documented."""

    def decode_bytes(self, value: bytes) -> Any:
        check_amount(value, own_cue(cast("AnyRequest", self.asgi_connection)).config.settings.server)
        return value
