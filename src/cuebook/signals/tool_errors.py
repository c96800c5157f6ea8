"""Detect errors in tool results, for the error counter (A).

A part with an error status (TaskWeaver's `code_error`, a failed `execution_status`) is certain. Other results are
texts: a text is an error if it begins like one, or if it is a JSON object with an error field.
"""

import re
from typing import Any, Final

import msgspec

from cuebook.records.conversation import ERROR, Part
from cuebook.records.expression import Expression

#: Characters that are searched: an error message is at the start, a stack trace names it at the end.
_FRONT: Final = 400
_END: Final = 200
#: Longer results are not parsed as JSON.
_WHOLE: Final = 100_000
_STATUS: Final = "execution_status"
_BEGINS: Final = Expression(
    r"\W{0,20}(?:fatal |unhandled |internal |uncaught |runtime |tool |execution )?(?:error|exception"
    r"|failed|failure|"
    r"traceback \(most recent|panic:|command (?:failed|not found)|permission denied|timed? ?out|access denied|"
    r"[\w.]*(?:error|exception)\b\s*[:(])(?!s? (?:handling|handler|codes?|messages?|types?|rate|budget"
    r"|log)\b)(?!\w*s?: ?(?:0\b|none\b|\[\]))",
    re.IGNORECASE,
)
_EXITED: Final = Expression(
    r"\b(?:exit(?:ed with)?(?: code| status)?|return code|returned non-zero exit status)\s*[:=]?\s*[1-9]\d*\b"
    r"|^(?:\w+\.)*\w*(?:Error|Exception): ",
    re.MULTILINE,
)
_NO: Final = frozenset({"", "0", "false", "none", "null", "no", "ok", "success"})
_BAD: Final = frozenset({"error", "failed", "failure", "fail", "timeout"})


def failed(text: str, parts: tuple[Part, ...] = ()) -> bool:
    """Return whether a tool's result, or a role's post with attachments, reports an error."""
    for part in parts:
        if part.type == ERROR:
            return True
        if part.type == _STATUS and part.content.strip().lower() in _BAD:
            return True
    if text.lstrip()[:1] == "{" and len(text) <= _WHOLE:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return False
        return _says_so(value)
    return _BEGINS.match(text[:_FRONT]) is not None or _EXITED.search(text[-_END:]) is not None


def _says_so(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    flags = (value.get(key) is True for key in ("is_error", "isError", "failed"))
    refused = (value.get(key) is False for key in ("success", "ok"))
    named = (_is_said(value.get(key)) for key in ("error", "errors", "exception"))
    codes = (value.get(key) for key in ("exit_code", "exitCode", "returncode", "return_code"))
    status = value.get("status")
    return (
        any(flags)
        or any(refused)
        or any(named)
        or any(type(code) is int and code != 0 for code in codes)
        or (isinstance(status, str) and status.lower() in _BAD)
        or (type(status) is int and 400 <= status < 600)
    )


def _is_said(value: Any) -> bool:
    return value.strip().lower() not in _NO if isinstance(value, str) else bool(value)
