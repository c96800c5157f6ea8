"""Fault injection: named points where a test can kill, fail, stop or delay the process. Off without CUEBOOK_FAILPOINT.

`name:kill|raise|delay|stop@n` acts when the point is passed for the n-th time (default: 1). kill = SIGKILL to this
process, stop = SIGSTOP, raise = a BackendError, delay = half a second.
"""

import os
import signal
import time

from cuebook.errors import BackendError, InvalidInput

#: All failpoints; a test passes through each of them.
NAMES = (
    "append.begin",
    "append.stored",
    "open.begin",
    "open.stored",
    "checkpoint.stored",
    "close.begin",
    "close.stored",
    "commit.before",
    "commit.after",
    "expire.stored",
    "summary.begin",
    "summary.stored",
    "head.stored",
    "delete.stored",
    "forget.begin",
    "forget.stored",
    "forget.mirror",
    "forget.log",
    "forget.signed",
    "outcome.folded",
    "stream.piece",
    "stream.ended",
    "compact.read",
    "compact.made",
    "reflect.read",
    "reflect.made",
    "request.finish",
    "migrate.statement",
)
_ACTIONS = ("kill", "raise", "delay", "stop")


class Failpoints:
    """The armed failpoint of this process, if any."""

    def __init__(self, setting: str = "") -> None:
        self._name = ""
        self._left = 0
        self._action = ""
        if setting:
            place, _, action = setting.partition(":")
            action, _, nth = action.partition("@")
            if place not in NAMES or action not in _ACTIONS or not (nth or "1").isdecimal():
                msg = (
                    f"CUEBOOK_FAILPOINT {setting!r}: expected NAME:kill|raise|delay|stop[@N] with NAME one of"
                    f" {', '.join(NAMES)}"
                )
                raise InvalidInput(msg)
            self._name, self._action, self._left = place, action, int(nth or 1)

    @classmethod
    def from_environment(cls) -> "Failpoints":
        """Return failpoints armed from the environment."""
        return cls(os.environ.get("CUEBOOK_FAILPOINT", ""))

    def __call__(self, name: str) -> None:
        """Act if this failpoint is armed and due."""
        if name != self._name:
            return
        self._left -= 1
        if self._left != 0:
            return
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._action == "delay":
            time.sleep(0.5)
        else:
            msg = f"failpoint {name}"
            raise BackendError(msg, retryable=True)
