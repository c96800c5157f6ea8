"""Who asks, and under which key. What the body names weighs more than the query, and that more than a header."""

from typing import Any

from litestar import Request
from litestar.types import Scope

from cuebook import Cuebook
from cuebook.errors import InvalidInput

#: The longest Idempotency-Key: a UUID has 36 characters, a digest 128.
LONGEST_KEY = 255

AnyRequest = Request[Any, Any, Any]


def book_of(request: AnyRequest) -> Cuebook:
    """Give the book this server serves."""
    book: Cuebook = request.app.state.book
    return book


def header(scope: Scope, name: bytes) -> str | None:
    """Give a header's value as UTF-8; None where it is missing or empty. Raises InvalidInput."""
    for given, value in scope["headers"]:
        if given == name and value:
            try:
                return value.decode()
            except UnicodeDecodeError:
                shown = name.decode()
                msg = f"header {shown}: is no UTF-8; send it as UTF-8"
                raise InvalidInput(msg, where=shown) from None
    return None


def user_of(request: AnyRequest, *named: str | None) -> str | None:
    """Give who asks: the first of `named` that is not empty, else header X-User-Id. Naming, not authentication."""
    return next((user for user in named if user), None) or header(request.scope, b"x-user-id")


def idempotency_key(scope: Scope) -> str | None:
    """Give the request's Idempotency-Key. Raises InvalidInput."""
    key = header(scope, b"idempotency-key")
    if key is not None and len(key) > LONGEST_KEY:
        msg = f"Idempotency-Key: {len(key)} characters are over the limit of {LONGEST_KEY}"
        raise InvalidInput(msg, where="Idempotency-Key")
    return key


def fresh_conversation(book: Cuebook, *, user: str | None, key: str | None) -> str:
    """Name a new conversation; under an Idempotency-Key always the same, so that a repeated request is the same."""
    if key is None:
        return book.desk.dice.new_id("conv")
    named = book.desk.request_digest(f"{user}\x00{key}".encode())
    return f"conv-{named.hex()[:20]}"
