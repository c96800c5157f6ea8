"""Who asks, what that allows, and under which Idempotency-Key: decided here and nowhere else.

Without keys who asks owns the machine, and names a user: the body's weighs more than the query's, and that more than a
header's. With keys a key says who asks; one that is a user's speaks for nobody else, in no place.
"""

from contextlib import suppress
from typing import Any

from litestar import Request
from litestar.types import Scope

from cuebook import Cuebook
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.key import PREFIX, Caller
from cuebook.server.guard import name_in
from cuebook.server.roles import declared, is_hidden, is_open

#: The longest Idempotency-Key: a UUID has 36 characters, a digest 128.
LONGEST_KEY = 255

#: Where a browser keeps the key for the pages of this server; nothing else reads it.
COOKIE = "cuebook_key"

AnyRequest = Request[Any, Any, Any]


async def admit(request: AnyRequest) -> None:
    """Let a request in, and note who asks. Raises Unproven, Denied, NotFound."""
    scope, book = request.scope, _book(request)
    method, path = scope["method"], scope["path_template"]
    if is_open(method, path):
        scope["state"]["caller"] = None
        return
    caller = await book.keys.admit(token_of(scope), closed=request.app.state.exposed)
    needed = declared(method, path) or "owner"
    if not caller.may(needed):
        if is_hidden(method, path):
            msg = "there is no such object; `cuebook key list` says what this key may"
            raise NotFound(msg)
        caller.need(needed, f"{method} {name_in(request.url.path)}")
    scope["state"]["caller"] = caller
    if scope["state"].get("place") is None:  # on the OpenAI wire the query is the upstream's
        query = request.query_params
        check_named(request, user=query.get("userId"), organization=query.get("organizationId"))


def check_named(request: AnyRequest, *, user: str | None = None, organization: str | None = None) -> None:
    """Refuse another user's name than the key's own, and organizations of others, wherever a request names them.

    Raises Denied, NotFound.
    """
    caller = known_caller(request)
    if caller is not None:
        caller.acts_as(user, header(request.scope, b"x-user-id"))
        caller.check_organization(organization)


def token_of(scope: Scope) -> str | None:
    """Return the key a request brings: X-Cuebook-Key, the bearer of Authorization, or one of ours in Anthropic's
    X-Api-Key. Raises InvalidInput.
    """
    own = header(scope, b"x-cuebook-key")
    if own is not None:
        return own
    if is_page(scope["path"]) and (kept := Request[Any, Any, Any](scope).cookies.get(COOKIE)):
        return kept
    scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    given = (header(scope, b"x-api-key") or "").strip()
    return given if given.startswith(PREFIX) else None


def is_page(path: str) -> bool:
    """Whether an address is one of the pages a browser shows."""
    return path == "/" or path.startswith("/page/")


def is_ours(authorization: str) -> bool:
    """Whether an Authorization header holds a key of Cuebook, which goes to nobody else."""
    return authorization.partition(" ")[2].strip().startswith(PREFIX)


def caller_of(request: AnyRequest) -> Caller:
    """Return who asks."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


def known_caller(request: AnyRequest) -> Caller | None:
    """Return who asks; None on an open route."""
    caller: Caller | None = request.scope["state"].get("caller")
    return caller


def book_of(request: AnyRequest) -> Cuebook:
    """Return the book this server serves, as who asks sees it."""
    book, caller = _book(request), known_caller(request)
    return book.of(caller.tenant) if caller is not None and caller.key else book


def _book(request: AnyRequest) -> Cuebook:
    book: Cuebook = request.app.state.book
    return book


def header(scope: Scope, name: bytes) -> str | None:
    """Return a header's value as UTF-8; None where it is missing or empty. Raises InvalidInput."""
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
    """Return who asks: the key's user, else the first of `named` that is not empty, else header X-User-Id.

    Raises Denied where the key is one user's and another is named.
    """
    return caller_of(request).acts_as(*named, header(request.scope, b"x-user-id"))


async def check_first(request: AnyRequest, conversation: str, user: str | None, what: str) -> None:
    """Refuse what a conversation's first user alone may do to who was let into it later. Raises Denied."""
    caller = caller_of(request)
    if caller.may("agent"):
        return
    with suppress(NotFound):
        found = await book_of(request).conversations.get(conversation, user=user)
        if found.user != user:
            caller.need("agent", what)


def actor_of(request: AnyRequest) -> str:
    """Return who did something, for the audit."""
    caller = caller_of(request)
    return f"key:{caller.key}" if caller.key else "owner"


def idempotency_key(scope: Scope) -> str | None:
    """Return the request's Idempotency-Key; each API key has its own. Raises InvalidInput."""
    key, caller = header(scope, b"idempotency-key"), scope["state"]["caller"]
    if key is None:
        return None
    own = f"{caller.key}:" if caller.key else ""
    if len(key) > LONGEST_KEY - len(own):
        msg = f"Idempotency-Key: {len(key)} characters are over the limit of {LONGEST_KEY - len(own)}"
        raise InvalidInput(msg, where="Idempotency-Key")
    return own + key


def fresh_conversation(book: Cuebook, *, user: str | None, key: str | None) -> str:
    """Name a new conversation; under an Idempotency-Key always the same, so that a repeated request is the same."""
    if key is None:
        return book.desk.dice.new_id("conv")
    named = book.desk.request_digest(f"{user}\x00{key}".encode())
    return f"conv-{named.hex()[:20]}"
