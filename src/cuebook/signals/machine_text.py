"""Distinguish what a user writes from what programs print: a message's own words, and tool results that report errors.

Machine output and quoted people do not show the user's mood, however many errors they name.
"""

import re
from functools import partial
from typing import Any, Final

import msgspec

from cuebook.languages import english_expression
from cuebook.records.conversation import ERROR, Part
from cuebook.records.expression import Expression

_pattern = partial(english_expression, "machine")

# ---- the user's own words -------------------------------------------------------------------------------------------

#: Characters of a message that are read, at its beginning and at its end.
READ: Final = 2_000
_LOOKED_AT: Final = 20_000  # likewise, when whole lines are dropped

_FENCE: Final = ("```", "~~~")
_INLINE: Final = Expression(r"`[^`\n]{1,400}`")
_ADDRESS, _QUOTED, _PATH = _pattern("address"), _pattern("quoted"), _pattern("path")
_NAME, _PRINTED = _pattern("name"), _pattern("printed")


def spoken(text: str) -> str:
    """Return the user's own words of a message, in order, without the middle of a very long one."""
    text = _ends("\n".join(_lines(_ends(text, _LOOKED_AT))), READ)  # removes pasted text first: the rest may be short
    if "`" in text:
        text = _INLINE.sub(" it ", text)
    if '"' in text or "\u201c" in text or "\u201e" in text or "\u00ab" in text:
        text = _QUOTED.sub(lambda result: " it " if " " in result[0][1:-1].strip() else result[0], text)
    if "://" in text or "@" in text or "www." in text:
        text = _ADDRESS.sub(" ", text)
    if "/" in text or "\\" in text or "." in text:
        text = _PATH.sub(" it ", text)
    return _NAME.sub(" it ", text)


def _ends(text: str, each: int) -> str:
    return text if len(text) <= 2 * each else f"{text[:each]}\n{text[-each:]}"


def _lines(text: str) -> list[str]:
    """Return the lines without code blocks, quoted lines, and machine-printed lines."""
    remaining: list[str] = []
    fence = ""
    indented = False  # inside the frames of a stack trace
    for line in text.split("\n"):
        bare = line.strip()
        if fence:
            fence = "" if bare.startswith(fence) else fence
        elif bare.startswith(_FENCE):
            fence = bare[:3]
        elif bare.startswith(">") and not bare.startswith((">:", ">.<", ">_<", ">>>")):
            indented = False
        elif _PRINTED.match(bare) or (indented and line.startswith(("  ", "\t"))):
            indented = True
        else:
            indented = False
            remaining.append(line)
    return remaining


# ---- errors of tools (A) --------------------------------------------------------------------------------------------

#: Characters that are searched: an error message is at the start, a stack trace names it at the end.
_FRONT: Final = 400
_END: Final = 200
#: Longer results are not parsed as JSON.
_WHOLE: Final = 100_000
_STATUS: Final = "execution_status"
_BEGINS, _EXITED = _pattern("error", re.IGNORECASE), _pattern("exited", re.MULTILINE)
_NO: Final = frozenset({"", "0", "false", "none", "null", "no", "ok", "success"})
_BAD: Final = frozenset({"error", "failed", "failure", "fail", "timeout"})


def failed(text: str, parts: tuple[Part, ...] = ()) -> bool:
    """Return whether a tool's result, or a role's post with attachments, reports an error.

    A part with an error status (TaskWeaver's `code_error`, a failed `execution_status`) is certain. A text is an error
    if it begins like one, or if it is a JSON object with an error field.
    """
    for part in parts:
        if part.type == ERROR:
            return True
        if part.type == _STATUS and part.content.strip().lower() in _BAD:
            return True
    if text.lstrip()[:1] == "{" and len(text) <= _WHOLE:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
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
