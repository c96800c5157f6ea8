"""How a view becomes a page: one template engine that escapes everything, and headers that let nothing foreign in."""

import functools
import math
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from litestar import Response

from cuebook.app.forgetting import in_words
from cuebook.records.counted import counted
from cuebook.server.page.markup import markup, plain

if TYPE_CHECKING:
    from jinja2 import Environment, Template

#: A page may load style and scripts of this server, talk to it alone, and be framed by nobody.
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
_ROOM: Final = "cuebook.server.page"
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def show(template: str, /, status: int = 200, **values: Any) -> Response[bytes]:
    """Answer with a page: a template with values, each escaped where it stands."""
    body = _template(template).render(values).encode("utf-8", "replace")
    return Response(body, media_type="text/html", status_code=status, headers=HEADERS)


def asset(name: str) -> Response[bytes] | None:
    """Answer with a file of this room's `static` folder; None where there is none of that name."""
    found = _assets().get(name)
    if found is None:
        return None
    return Response(found, media_type=_TYPES[name.rpartition(".")[2]], headers=HEADERS)


def place(name: str) -> str:
    """Give a name as it stands in a path: a `/` in it as `~`."""
    return quote(name, safe="").replace("~", "%7E").replace("%2F", "~")


@functools.cache
def _assets() -> Mapping[str, bytes]:
    files = resources.files(_ROOM).joinpath("static").iterdir()
    return {file.name: file.read_bytes() for file in files if file.name.rpartition(".")[2] in _TYPES}


@functools.cache
def _template(name: str) -> "Template":
    return _environment().get_template(name)


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(_ROOM), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"markup": markup, "plain": plain, "place": place, "number": number, "figure": _figure}
    made.filters |= {
        "percent": percent,
        "when": _when,
        "money": money,
        "seconds": seconds,
        "counted": counted,
        "counted_what": in_words,
    }
    return made


def number(value: float | None) -> str:
    """Give a number with its thousands apart; from a hundred on, whole."""
    return "" if value is None else f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:,.2f}"


def _figure(value: Any) -> str:
    """Give a number to four digits, anything else as it is said."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def percent(value: float | None) -> str:
    """Give a share in per cent; what is nearly nothing is said so."""
    if value is None:
        return ""
    return "<1%" if 0 < value < 0.01 else f"{value:.0%}"


def money(costs: Mapping[str, float]) -> str:
    """Give amounts by currency, a small one to two digits that count."""
    return " + ".join(_amount(name, value) for name, value in sorted(costs.items()))


def _amount(currency: str, value: float) -> str:
    digits = 2 if abs(value) >= 1 or not value else min(6, 1 - math.floor(math.log10(abs(value))))
    said = f"{value:,.{max(2, digits)}f}"
    return f"${said}" if currency == "USD" else f"{said} {currency}"


def seconds(value: float | None) -> str:
    """Give a span of time as people say it."""
    if value is None:
        return ""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < _MINUTE else f"{value / _MINUTE:.0f} min"


def _when(value: str | None) -> str:
    """Give an ISO time to the second, as people read it."""
    return (value or "")[:19].replace("T", " ")
