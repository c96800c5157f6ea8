"""Base of the namespaces of the public API, with Idempotency-Keys: a repeated request returns the first answer."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import tzinfo
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import Batch
from cuebook.memory.scopes import Participants, personal_places
from cuebook.records.answer import from_json, to_json
from cuebook.records.conversation import Appended
from cuebook.records.key import Caller
from cuebook.records.memory import Scope
from cuebook.storage.database.transaction import AnsweredError

T = TypeVar("T")

#: Maximum length of a key: a UUID has 36 characters, a digest 128.
LONGEST_KEY = 255


class Namespace:
    """A part of `Cuebook`, such as `cue.memory`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def _run_once(
        self, key: str | None, asked: Any, kind: Any, work: Callable[[], Awaitable[T]], *, user: str | None = None
    ) -> T:
        """Run an operation, or return its stored answer, parsed as `kind`. `asked` identifies the request.

        Without a key, run it. Keys are separate per user. Raises KeyReused if the key was used with a different
        request, InvalidInput.
        """
        if not key:
            return await work()
        settings, store = self._services.settings, self._services.store
        digest = settings.request_digest(encode_request(asked))
        stored_key = settings.keyed_digest_of((check_key(key), digest)) or (key, digest)
        scope, now = Scope(user=user or None), self._services.clock.now()
        request = store.keyed_request(scope, stored_key[0], digest, name=key, at=now)
        stored = await store.answer_of(request)
        if stored is None:
            try:
                with request.running():
                    answer = to_json(await work())
            except AnsweredError:  # a concurrent run was faster; its answer counts, unless a forget deleted it
                stored = await store.answer_of(request)
                if stored is None:
                    raise
            else:
                stored = await store.finish(request, answer)
        first: T = from_json(stored, kind)
        return first


async def append(services: Services, scope: Scope, batch: Batch) -> Appended:
    """Store a batch of the caller's posts."""
    places = personal_places(services.settings.memory_policy, Participants(user=scope.user, persona="-"))
    batch = structs.replace(batch, user=scope.user, delivers=bool(batch.drafts and places))
    appended = await services.store.append(scope, batch)
    services.notify_jobs()
    return appended


async def zone_of(services: Services, conversation: str | None, *, user: str | None, time_zone: str | None) -> tzinfo:
    """Return a named time zone, else the one of the conversation if the user can see it, else the project's."""
    known = None
    if time_zone is None and conversation is not None:
        with suppress(NotFound):
            known = await services.store.conversation(Scope(user=user), conversation)
    return services.settings.zone_of(time_zone, known)


async def check_first(services: Services, conversation: str, user: str | None, caller: Caller, what: str) -> None:
    """Check that the caller is the conversation's first user or has role agent. Raises Denied."""
    if caller.may("agent"):
        return
    with suppress(NotFound):
        found = await services.store.conversation(Scope(user=user), conversation)
        if found.user != user:
            caller.need("agent", what)


def check_key(key: object) -> str:
    """Return a valid Idempotency-Key. Raises InvalidInput."""
    if not isinstance(key, str):
        msg = f"idempotency_key: expected a string, got {type(key).__name__}"
        raise InvalidInput(msg, where="Idempotency-Key")
    if len(key) > LONGEST_KEY:
        msg = f"Idempotency-Key: {len(key)} characters exceed the limit of {LONGEST_KEY}."
        raise InvalidInput(msg, where="Idempotency-Key")
    return key


def encode_request(value: Any, where: str | None = None) -> bytes:
    """Return a request as JSON, whose digest identifies it. Raises InvalidInput."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        msg = f"The request cannot be encoded as JSON ({error})."
        raise InvalidInput(msg, where=where) from error
