"""Render a post as text: its messages, and the type and size of images, audio and files."""

import re
from collections.abc import Iterator

from msgspec import DecodeError, json

from cuebook.records.conversation_answers import PartEntry, PostEntry

#: A data URL inside a text: type, format, base64 data.
_DATA = re.compile(r"data:([\w.-]+)/([\w.+-]+)[;\w=.+-]*;base64,([\w+/=%-]*)")
_BASE64 = re.compile(r"[\w+/=-]{256,}")
#: Size units in bytes, the largest first.
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def lines_of(post: PostEntry) -> Iterator[str]:
    """Yield the texts and parts of a post in order; a post with several texts has all of them in its parts."""
    if post.message and not any(part.type == "text" for part in post.parts):
        yield without_data(post.message)
    for part in post.parts:
        if part.content and (part.type == "text" or part.content != post.message):
            yield _shown(part)


def without_data(text: str) -> str:
    """Replace each data URL in a text with its type and size: `[image png, 16 kB]`."""
    return _DATA.sub(lambda result: _named(result[1], result[2], result[3]), text)


def _shown(part: PartEntry) -> str:
    if part.type == "text":
        return without_data(part.content)
    extra = part.extra if isinstance(part.extra, dict) else {}
    name, form = (str(extra.get(key) or "") for key in ("filename", "format"))
    whole = _DATA.fullmatch(part.content)
    if part.type in ("image_url", "file") and whole:
        return _named("file" if part.type == "file" else whole[1], name or whole[2], whole[3])
    if part.type in ("audio", "file") and _BASE64.fullmatch(part.content):
        return _named(part.type, name or form, part.content)
    kind, text = _opaque(part.content) if part.type == "opaque" else (part.type, part.content)
    return f"[{kind}] {without_data(text)}"


def _opaque(content: str) -> tuple[str, str]:
    """Return the type that an unknown part names, and its text if it has no other field."""
    try:
        value = json.decode(content)
    except (DecodeError, RecursionError):
        value = None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        return "opaque", content
    text = value.get("text")
    return kind, text if isinstance(text, str) and len(value) == 2 else content


def _named(kind: str, form: str, base64: str) -> str:
    return f"[{' '.join(filter(None, (kind, form)))}, {size_of(len(base64.rstrip('=')) * 3 // 4)}]"


def size_of(count: int) -> str:
    """Format a number of bytes in its largest unit."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.0f} {name}"
    return f"{count} bytes"
