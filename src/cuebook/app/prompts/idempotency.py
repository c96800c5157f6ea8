"""Idempotency keys of prompt operations: a repeated request returns the first answer instead of running again.

The key is stored in the same transaction as the effect. A concurrent repeat waits for that transaction and returns
its answer.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from cuebook.engine.core.services import Key, Services
from cuebook.errors import CuebookError, InvalidInput, KeyReused
from cuebook.interfaces.prompts import StoredKey
from cuebook.records.memory import Scope
from cuebook.records.prompt import Version

T = TypeVar("T")

#: Maximum length of a key: a UUID has 36 characters, a digest 128.
LONGEST = 255


async def run_once(
    services: Services,
    key: str | None,
    asked: Any,
    kind: type[T],
    work: Callable[[StoredKey | None], Awaitable[T]],
    *,
    user: str = "",
) -> T:
    """Run an operation, or return its stored answer. `asked` is the request as any JSON value.

    Keys are separate per user. Raises KeyReused if the key was used with a different request.
    """
    if not key:
        return await work(None)
    pair = (check_key(key), services.settings.request_digest(_written(asked)))
    digest = services.settings.keyed_digest_of(pair) or pair
    scope = Scope(user=user or None)
    data = await _told(services, scope, pair)
    if data is None:
        asking = StoredKey(key=digest[0], digest=digest[1], at=services.clock.now(), user=scope.user)
        try:
            return await work(asking)
        except CuebookError:  # an identical concurrent request may have been stored first
            data = await _told(services, scope, pair)
            if data is None:
                raise
    return msgspec.json.decode(data, type=kind)


async def stored_once(
    services: Services,
    key: str | None,
    asked: Any,
    write: Callable[[StoredKey | None], Awaitable[Version]],
    *,
    user: str = "",
) -> Version:
    """Run an operation that stores versions once; the key stores the place of the last one."""

    async def work(asking: StoredKey | None) -> Version:
        return await write(asking.telling(lambda versions: bare(versions[-1])) if asking else None)

    found = await run_once(services, key, asked, Version, work, user=user)
    if found.created_at:
        return found
    [version] = await services.prompts.versions(Scope(), found.slug, branch=found.branch, numbers=[found.number])
    return version


def bare(version: Version) -> Version:
    """Return a version without its texts."""
    place = {"slug": version.slug, "branch": version.branch, "number": version.number}
    return Version(**place, semver=version.semver, digest=version.digest)  # type: ignore[arg-type]


def check_key(key: object) -> str:
    """Return a valid key. Raises InvalidInput."""
    if not isinstance(key, str):
        msg = f"idempotency_key: expected a string, got {type(key).__name__}"
        raise InvalidInput(msg, where="Idempotency-Key")
    if len(key) > LONGEST:
        msg = f"Idempotency-Key: {len(key)} characters exceed the limit of {LONGEST}."
        raise InvalidInput(msg, where="Idempotency-Key")
    return key


async def _told(services: Services, scope: Scope, key: Key) -> bytes | None:
    answered = await services.answered(scope, key)
    if answered is None:
        return None
    if answered.digest != key[1] or answered.turn:
        msg = f"Idempotency-Key {key[0]!r} was used with a different request. Choose a new key."
        raise KeyReused(msg, where="Idempotency-Key")
    return answered.response


def _written(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        msg = f"The request cannot be encoded as JSON ({error})."
        raise InvalidInput(msg) from error
