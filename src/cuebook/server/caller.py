"""The caller of a request: project, user, headers and Idempotency-Key.

Without keys the caller is the machine's owner and names a user: in the body, else the query, else a header. With keys
the key identifies the caller; a key of one user acts only as that user.
"""

from typing import Any

from litestar import Request
from litestar.types import Scope

from cuebook import Cuebook
from cuebook.app import namespace
from cuebook.errors import InvalidInput, KeyReused
from cuebook.records.key import Caller

#: The longest Idempotency-Key: a UUID has 36 characters, a digest 128.
LONGEST_KEY = 255

#: The role of routes that need no key: health checks, and pages without project data.
OPEN = ""

AnyRequest = Request[Any, Any, Any]


def caller_of(request: AnyRequest) -> Caller:
    """Return the caller."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


def known_caller(request: AnyRequest) -> Caller | None:
    """Return the caller; None on a route without a key."""
    caller: Caller | None = request.scope["state"].get("caller")
    return caller


def cue_of(request: AnyRequest) -> Cuebook:
    """Return the project of this server, for the caller's tenant."""
    cue, caller = own_cue(request), known_caller(request)
    return cue.of(caller.tenant) if caller is not None and caller.key else cue


def own_cue(request: AnyRequest) -> Cuebook:
    """Return the project of this server, for any tenant."""
    cue: Cuebook = request.app.state.cue
    return cue


def header(scope: Scope, name: bytes) -> str | None:
    """Return a header's value as UTF-8; None if it is missing or empty. Raises InvalidInput."""
    for data, value in scope["headers"]:
        if data == name and value:
            try:
                return value.decode()
            except UnicodeDecodeError:
                header = name.decode()
                msg = f"{header}: not UTF-8. Send the header as UTF-8."
                raise InvalidInput(msg, where=header) from None
    return None


def user_of(request: AnyRequest, *named: str | None) -> str | None:
    """Return the acting user: the key's, else the first non-empty of `named`, else header X-User-Id.

    Raises Denied if the key belongs to one user and another is named.
    """
    return caller_of(request).acts_as(*named, header(request.scope, b"x-user-id"))


async def check_first(request: AnyRequest, conversation: str, user: str | None, what: str) -> None:
    """Check that the caller is the conversation's first user or has role agent. Raises Denied."""
    await namespace.check_first(cue_of(request).services, conversation, user, caller_of(request), what)


def actor_of(request: AnyRequest) -> str:
    """Return the actor's name for the audit log."""
    caller = caller_of(request)
    return f"key:{caller.key}" if caller.key else "owner"


def idempotency_key(scope: Scope) -> str | None:
    """Return the request's Idempotency-Key, scoped to the API key. Raises InvalidInput."""
    key, caller = header(scope, b"idempotency-key"), scope["state"]["caller"]
    if key is None:
        return None
    own = f"{caller.key}{KeyReused.SEPARATOR}" if caller.key else ""
    if len(key) > LONGEST_KEY - len(own):
        msg = f"Idempotency-Key: {len(key)} characters exceed the limit of {LONGEST_KEY - len(own)}. Shorten it."
        raise InvalidInput(msg, where="Idempotency-Key")
    return own + key


def fresh_conversation(cue: Cuebook, *, user: str | None, key: str | None) -> str:
    """Return a new conversation ID, derived from the Idempotency-Key if there is one, so that retries match."""
    if key is None:
        return cue.services.dice.new_id("conv")
    named = cue.services.settings.request_digest(f"{user}\x00{key}".encode())
    return f"conv-{named.hex()[:20]}"


def check_named(request: AnyRequest, *, user: str | None = None, organization: str | None = None) -> None:
    """Check that the named user and organization are the key's own.

    Raises Denied, NotFound.
    """
    caller = known_caller(request)
    if caller is not None:
        caller.acts_as(user, header(request.scope, b"x-user-id"))
        caller.check_organization(organization)
