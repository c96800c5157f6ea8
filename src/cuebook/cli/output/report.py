"""Render long reports as text from the templates of this package."""

from functools import cache
from typing import TYPE_CHECKING, Any

from cuebook.cli.output import screen
from cuebook.records.expression import counted

if TYPE_CHECKING:
    from jinja2 import Environment


def report(template: str, /, **values: Any) -> str:
    """Return a rendered template without the final line break."""
    return _environment().get_template(template).render(values).removesuffix("\n")


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701  # plain text
        loader=PackageLoader("cuebook.cli.output"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters = {"counted": counted, "quote": screen.quote, "line": screen.line_of, "percent": _percent}
    environment.filters |= filters | {"number": "{:,}".format, "left": _left, "right": _right}
    environment.globals |= {"share": _share}
    return environment


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def _share(part: float, whole: float) -> str:
    return _percent(part / whole if whole else None)


def _left(value: object, width: int) -> str:
    return str(value).ljust(width)


def _right(value: object, width: int) -> str:
    return str(value).rjust(width)
