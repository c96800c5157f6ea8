"""What stands for a request under its Idempotency-Key."""

import hashlib

import msgspec
from msgspec import Struct

from cuebook.config import Config
from cuebook.engine.core.desk import Desk
from cuebook.engine.proxy.request import Call
from cuebook.errors import InvalidInput
from cuebook.records.turn import Ask


class _Named(Struct):
    model: str = ""


def upstream_model(desk: Desk, config: Config, call: Call) -> str | None:
    """Give the upstream's model for a request that names a persona, None for any other. Raises InvalidInput."""
    try:
        named = msgspec.json.decode(call.body, type=_Named).model
    except (msgspec.DecodeError, RecursionError):
        return None
    if named not in desk.personas:
        return None
    model = desk.personas[named].model or config.settings.model.name
    if not model:
        msg = f"model {named!r} is a persona and names no upstream model; set model.name, or the persona's `model`"
        raise InvalidInput(msg, where="model")
    return model


def digest_of_ask(ask: Ask, key: bytes) -> bytes:
    """Give a request's digest, keyed: it is kept, and nobody may try out on it what secret the request held."""
    fields = {name: getattr(ask, name) for name in ask.__struct_fields__ if name != "idempotency_key"}
    try:
        encoded = msgspec.json.encode(fields)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        msg = f"the request cannot be written as JSON ({error})"
        raise InvalidInput(msg, where="attachments") from error
    return hashlib.blake2b(encoded, digest_size=16, key=key).digest()
