"""How text of models and users is shown: as Markdown, without HTML of theirs, images, or links but to the web."""

import functools
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

#: Characters of a text that are read as Markdown; what is longer stands as it was typed.
MOST: Final = 100_000
_MOST_BRACKETS: Final = 5_000
#: Levels of quotes and lists that are read.
_DEEPEST: Final = 50
_SCHEMES: Final = ("http", "https", "mailto")
#: What turns a line's reading direction, or cannot be seen: shown as its code point. A joiner stands where it joins:
#: between two characters of scripts that have joined letters, and of emoji.
_UNSEEN: Final = (
    "\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
)
_JOINED: Final = f"[^\u0000-\u02ff\u200c\u200d{_UNSEEN}]"
_HIDDEN: Final = re.compile(f"[{_UNSEEN}]|[\u200c\u200d](?!{_JOINED})|(?<!{_JOINED})[\u200c\u200d]")


def markup(text: str | None) -> Any:
    """Give a Markdown text as HTML that is safe to stand in a page: markup for a template, escaped already."""
    from jinja2.filters import do_mark_safe

    shown = plain(text)
    if len(shown) > MOST or shown.count("[") > _MOST_BRACKETS:
        return do_mark_safe(f'<pre class="plain">{escape(shown)}</pre>')
    try:
        return do_mark_safe(_parser().render(shown))
    except RecursionError:
        return do_mark_safe(f'<pre class="plain">{escape(shown)}</pre>')


def plain(text: str | None) -> str:
    """Give a text as it was typed, with characters nobody sees as their code points; a template escapes it."""
    return _HIDDEN.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text or "")


@functools.cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    made.validateLink = _is_web  # type: ignore[method-assign]
    made.add_render_rule("image", _image)
    made.add_render_rule("link_open", _link)
    return made


def _is_web(url: str) -> bool:
    try:
        return urlsplit(url).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _image(_self: Any, tokens: Sequence[Any], at: int, _options: Any, _env: Any) -> str:
    """Say that an image was meant, and where it lies: a page that loaded it would tell its server who reads."""
    token = tokens[at]
    return f'<span class="image">image: {escape(token.content or "")} {escape(str(token.attrGet("src") or ""))}</span>'


def _link(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    tokens[at].attrSet("target", "_blank")
    return str(self.renderToken(tokens, at, options, env))
