"""The exceptions that Cuebook raises, in five families that a caller can act on.

CuebookError
├── InvalidInput     the caller's value is wrong; nothing was stored
│   ├── TooLarge     a body, a post or a window over its limit
│   └── SyncRefused  prompts from another project cannot be trusted; `reason` names the check that failed
│       └── UnknownSigner  their key is not trusted yet; `fingerprint` identifies it
├── Denied           the caller's key does not allow it
│   └── Unproven     no valid API key was given
├── NotFound         no such object in the caller's scope (an object of another scope looks the same)
├── Conflict         the state has changed, or the id is in use for other content
│   ├── Busy         a turn is running and the conversation's queue is full; retry after `retry_after` seconds
│   ├── MergeConflict  two branches of a prompt changed the same section or field; `conflicts` has all values
│   └── LeaseLost    another process took over the turn's lease; the late write was refused
└── BackendError     a store, model or upstream failed; `retryable` is true where a retry can help
    ├── StoreFull    the disk or the database's size limit is reached; reads still work
    └── UpstreamError  the upstream model's HTTP answer was not usable
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

__all__ = [
    "BackendError",
    "Busy",
    "Conflict",
    "CuebookError",
    "Denied",
    "InvalidInput",
    "KeyReused",
    "LeaseLost",
    "MergeConflict",
    "NotFound",
    "StoreFull",
    "SyncRefused",
    "TooLarge",
    "UnknownSigner",
    "Unproven",
    "UpstreamError",
]


class CuebookError(Exception):
    """Cuebook failed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class InvalidInput(CuebookError):
    """The input is not valid."""

    def __init__(self, message: str = "", *, where: str | None = None) -> None:
        """`where` names the field or file position at fault, if one can be named."""
        super().__init__(message)
        self.where = where


class TooLarge(InvalidInput):
    """The input is larger than the limit."""


class SyncRefused(InvalidInput):
    """Prompts from another project cannot be trusted."""

    def __init__(self, message: str = "", *, reason: str = "") -> None:
        """`reason` is the check that failed, such as `rollback` or `bad-signature`."""
        super().__init__(message, where="sync")
        self.reason = reason


class UnknownSigner(SyncRefused):
    """The project's key is not trusted yet."""

    def __init__(self, message: str = "", *, project: str = "", fingerprint: str = "") -> None:
        """`fingerprint` is the SHA-256 of the public key of the `project`."""
        super().__init__(message, reason="unknown-signer")
        self.project, self.fingerprint = project, fingerprint


class KeyReused(InvalidInput):
    """The Idempotency-Key was used for another request. Use a new key."""

    #: Between the id of an API key and the key of its client. No header contains it.
    SEPARATOR: ClassVar[str] = "\x1f"

    def __init__(self, key: str = "") -> None:
        """`key` is the Idempotency-Key."""
        shown = key.rpartition(self.SEPARATOR)[2]
        msg = f"Idempotency-Key {shown!r} was used with a different request. Choose a new key."
        super().__init__(msg, where="Idempotency-Key")


class Denied(CuebookError):
    """The caller's key does not allow this."""


class Unproven(Denied):
    """API key missing or invalid."""


class NotFound(CuebookError):
    """The object does not exist."""


class Conflict(CuebookError):
    """The state has changed since it was read. Read it again."""


class MergeConflict(Conflict):
    """Two branches changed the same section or field."""

    def __init__(self, message: str = "", *, conflicts: Sequence[Mapping[str, str | None]] = ()) -> None:
        """`conflicts` contains `section`, `base`, `ours` and `theirs` for each conflict; a missing text is None."""
        super().__init__(message)
        self.conflicts = tuple(conflicts)


class Busy(Conflict):
    """The conversation's queue is full. Retry later."""

    def __init__(self, message: str = "", *, retry_after: float = 1.0) -> None:
        """`retry_after` is in seconds."""
        super().__init__(message)
        self.retry_after = retry_after


class LeaseLost(Conflict):
    """The turn's lease expired and was taken over. This write was refused."""


class BackendError(CuebookError):
    """A backend failed."""

    def __init__(self, message: str = "", *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class StoreFull(BackendError):
    """The store has no space left. Acknowledged writes are kept, and reads still work."""


class UpstreamError(BackendError):
    """The upstream model failed."""

    def __init__(self, message: str = "", *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status
