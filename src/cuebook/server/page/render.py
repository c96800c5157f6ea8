"""Render templates to HTML pages, with escaping, a content security policy, Markdown and number formats."""

import functools
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from litestar import Request, Response

from cuebook.app.forgetting import in_words
from cuebook.app.reports.prices import money
from cuebook.records.answer import Time
from cuebook.records.expression import counted

# ---- markdown -------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    from markdown_it import MarkdownIt

#: Characters up to which a text is parsed as Markdown; longer texts are shown verbatim.
MAX_MARKUP: Final = 100_000
_MAX_BRACKETS: Final = 5_000
#: Maximum nesting of quotes and lists that is parsed.
_MAX_NESTING: Final = 50
_SCHEMES: Final = ("http", "https", "mailto")
#: Characters that are invisible or change the reading direction. They are shown as code points, except a joiner between
#: two emoji or two characters of a script with joined letters.
_INVISIBLE: Final = (
    "\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
)
_JOINING: Final = f"[^\u0000-\u02ff\u200c\u200d{_INVISIBLE}]"
_HIDDEN: Final = re.compile(f"[{_INVISIBLE}]|[\u200c\u200d](?!{_JOINING})|(?<!{_JOINING})[\u200c\u200d]")


def markup(text: str | None) -> Any:
    """Return a Markdown text as escaped HTML that is safe to include in a template."""
    from jinja2.filters import do_mark_safe

    content = plain(text)
    if len(content) > MAX_MARKUP or content.count("[") > _MAX_BRACKETS:
        return do_mark_safe(f'<pre class="plain">{escape(content)}</pre>')
    try:
        return do_mark_safe(_parser().render(content))
    except RecursionError:
        return do_mark_safe(f'<pre class="plain">{escape(content)}</pre>')


def plain(text: str | None) -> str:
    """Return a text with invisible characters as code points; the template escapes it."""
    return _HIDDEN.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text or "")


@functools.cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING}).enable(["table", "strikethrough"])
    parser.validateLink = _is_web  # type: ignore[method-assign]
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link)
    return parser


def _is_web(url: str) -> bool:
    try:
        return urlsplit(url).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def _image(_self: Any, tokens: Sequence[Any], at: int, _options: Any, _env: Any) -> str:
    """Return an image's text and address. The page does not load it, because its server would see the reader."""
    token = tokens[at]
    return f'<span class="image">image: {escape(token.content or "")} {escape(str(token.attrGet("src") or ""))}</span>'


def _link(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    tokens[at].attrSet("target", "_blank")
    return str(self.renderToken(tokens, at, options, env))


if TYPE_CHECKING:
    from jinja2 import Environment, Template

#: A page may load styles and scripts only from this server, connect only to it, and not be framed.
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
#: Seconds.
_MINUTE: Final = 60
_PACKAGE: Final = "cuebook.server.page"
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def show(template: str, /, status: int = 200, **values: Any) -> Response[bytes]:
    """Return a response with a rendered template; each value is escaped."""
    return Response(page(template, **values), media_type="text/html", status_code=status, headers=HEADERS)


def page(template: str, /, **values: Any) -> bytes:
    """Return a rendered template; each value is escaped."""
    return _TABLE.sub(_labelled, _template(template).render(values)).encode("utf-8", "replace")


_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_HEAD: Final = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_ROW: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<td\b(?! colspan)")
_TAG: Final = re.compile(r"<[^>]*>")


def _labelled(table: re.Match[str]) -> str:
    """Add its column's name to each cell but the first of a row: a narrow screen shows it instead of the head."""
    head, end, body = table[0].partition("</thead>")
    names = [_TAG.sub("", each) for each in _HEAD.findall(head)]

    def label(row: re.Match[str]) -> str:
        columns = iter(names)
        next(columns, None)
        cells = _CELL.split(row[0])
        first = "<td".join(cells[:2])
        return first + "".join(f'<td data-name="{next(columns, "")}"{cell}' for cell in cells[2:])

    return head + end + _ROW.sub(label, body) if names else table[0]


def asset(name: str) -> Response[bytes] | None:
    """Return a file of this package's `static` folder, None if it does not exist."""
    asset = _assets().get(name)
    if asset is None:
        return None
    return Response(asset, media_type=_TYPES[name.rpartition(".")[2]], headers=HEADERS)


def place(name: str) -> str:
    """Return a name encoded for a URL path, with `/` as `~`."""
    return quote(name, safe="").replace("~", "%7E").replace("%2F", "~")


#: Characters that browsers ignore or read as a slash, so that an address could name another server.
_ODD = re.compile(r"[\x00-\x20\\\x7f]")


def local_address(address: str) -> str:
    """Return an address of this server unchanged, and `/` for any other."""
    return address if address.startswith("/") and not address.startswith("//") and not _ODD.search(address) else "/"


def base_url(request: Request[Any, Any, Any]) -> str:
    """Return the address of this server as the browser knows it."""
    return f"http://{request.headers.get('host', '127.0.0.1:8760')}"


@functools.cache
def _assets() -> Mapping[str, bytes]:
    files = resources.files(_PACKAGE).joinpath("static").iterdir()
    return {file.name: file.read_bytes() for file in files if file.name.rpartition(".")[2] in _TYPES}


@functools.cache
def _template(name: str) -> "Template":
    return _environment().get_template(name)


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(_PACKAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"markup": markup, "plain": plain, "place": place, "number": number, "figure": _figure}
    environment.filters |= {
        "percent": percent,
        "when": _when,
        "money": money,
        "seconds": seconds,
        "counted": counted,
        "counted_what": in_words,
    }
    return environment


def number(value: float | None) -> str:
    """Return a number with thousands separators, rounded to an integer from 100 on."""
    return "" if value is None else f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:,.2f}"


def _figure(value: Any) -> str:
    """Return a float with four digits, or as an integer from 1,000 on, anything else as text."""
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """Return a share in percent, `<1%` for a small positive one."""
    if value is None:
        return ""
    return "<1%" if 0 < value < 0.01 else f"{value:.0%}"


def seconds(value: float | None) -> str:
    """Return a duration with a readable unit."""
    if value is None:
        return ""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < _MINUTE else f"{value / _MINUTE:.0f} min"


def _when(value: str | float | None) -> str:
    """Return a time (ISO, or Unix seconds) to the second, with a space before the time."""
    moment = Time(value) if isinstance(value, float) else value
    return str(moment or "")[:19].replace("T", " ")
