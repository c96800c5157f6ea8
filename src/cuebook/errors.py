"""The errors Cuebook raises, in five families a caller can act on.

CuebookError
├── InvalidInput     the caller's value is wrong; nothing was stored
│   └── TooLarge     a body, a post or a window over its limit
├── Denied           the caller's key does not allow it
│   └── Unproven     no valid key says who asks
├── NotFound         no such object in the caller's scope (another scope's object reads the same)
├── Conflict         the state moved on, or the id is taken by other content
│   ├── Busy         a turn is running and its waiting line is full; `retry_after` says when to try
│   ├── MergeConflict  two branches of a prompt changed the same section; `conflicts` has all texts
│   └── LeaseLost    the turn's lease went to another; its late write was refused
└── BackendError     a store, model or upstream failed; `retryable` says whether trying again can help
    ├── StoreFull    the disk or the database's size limit is reached; reading goes on
    └── UpstreamError  the upstream model's HTTP answer was not usable
"""

from collections.abc import Mapping, Sequence

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
    "TooLarge",
    "Unproven",
    "UpstreamError",
]


class CuebookError(Exception):
    """Something went wrong in Cuebook."""

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


class KeyReused(InvalidInput):
    """The Idempotency-Key was used for another request; choose a new one."""


class Denied(CuebookError):
    """The caller's key does not allow this."""


class Unproven(Denied):
    """No valid key says who asks."""


class NotFound(CuebookError):
    """There is no such object."""


class Conflict(CuebookError):
    """The state has moved on since it was read."""


class MergeConflict(Conflict):
    """Two branches changed the same section."""

    def __init__(self, message: str = "", *, conflicts: Sequence[Mapping[str, str | None]] = ()) -> None:
        """`conflicts` has for each `section` its `base` and both texts, `ours` and `theirs`, None for none."""
        super().__init__(message)
        self.conflicts = tuple(conflicts)


class Busy(Conflict):
    """Too many turns wait for this conversation."""

    def __init__(self, message: str = "", *, retry_after: float = 1.0) -> None:
        """`retry_after` is in seconds."""
        super().__init__(message)
        self.retry_after = retry_after


class LeaseLost(Conflict):
    """The turn's lease has expired and was taken over; this write was refused."""


class BackendError(CuebookError):
    """A backend failed."""

    def __init__(self, message: str = "", *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class StoreFull(BackendError):
    """The store has no space left; what was acknowledged is kept, and reading goes on."""


class UpstreamError(BackendError):
    """The upstream model could not be used."""

    def __init__(self, message: str = "", *, status: int | None = None, retryable: bool = False) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status
