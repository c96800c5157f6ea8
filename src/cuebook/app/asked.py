"""What stands for a request under its Idempotency-Key."""

import hashlib

import msgspec

from cuebook.errors import InvalidInput
from cuebook.records.turn import Ask


def digest_of_ask(ask: Ask, key: bytes) -> bytes:
    """Give a request's digest, keyed: it is kept, and nobody may try out on it what secret the request held."""
    fields = {name: getattr(ask, name) for name in ask.__struct_fields__ if name != "idempotency_key"}
    try:
        encoded = msgspec.json.encode(fields)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        msg = f"the request cannot be written as JSON ({error})"
        raise InvalidInput(msg, where="attachments") from error
    return hashlib.blake2b(encoded, digest_size=16, key=key).digest()
