"""Parse and validate JSON request bodies: the routes' types, and no unknown fields."""

import json
from typing import Any, Generic, TypeVar, cast

import msgspec
from litestar.dto import AbstractDTO
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from cuebook.errors import InvalidInput, TooLarge
from cuebook.server.caller import AnyRequest, check_named, own_cue
from cuebook.server.json_checks import check_amount, check_json, fault_of
from cuebook.validate import Fault, validate

T = TypeVar("T")

#: Bytes from which a body is checked outside the event loop (measured: 1 MB takes 10 ms, its transfer 2 ms).
_LARGE = 1_000_000


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
        return value


async def check_body(request: AnyRequest, body: bytes) -> None:
    """Check a body of a provider's wire, a large one in the server's child process. Raises InvalidInput, TooLarge."""
    cue = own_cue(request)
    if len(body) < _LARGE:
        fault = fault_of(body, cue.config.settings.server)
    else:
        fault = await cue.services.offload.compute(fault_of, body, cue.config.settings.server, size=len(body))
    if fault is not None:
        is_too_large, message, where = fault
        raise (TooLarge if is_too_large else InvalidInput)(message, where=where)
