"""Render a prompt template: replace declared placeholders by values, in one pass.

| engine | is replaced | doubled marks are literal |
| --- | --- | --- |
| dollar | `$name`, `${name}` | `$$name` is the text `$name`; `$$$name` is `$` and the value |
| braces | `{{name}}`, `{{ name }}` | `{{{{name}}}}` is the text `{{name}}`; `{"a": {{name}}}` is `{"a": ` value `}` |
| none | nothing | |

Each pair of marks stands for one literal mark; an odd one left over is replaced. All this applies to declared names
only: `$5`, `$PATH`, `$$`, JSON's braces and LaTeX stay unchanged. Names are ASCII, so `$name` may directly precede a
letter of another script. Values are never scanned. Linear in text and result: no repetition begins or ends in two
ways.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from cuebook.errors import InvalidInput
from cuebook.records.prompt import Engine

#: Maximum characters of a rendered text: some 50,000 tokens, more than a system text may have.
LIMIT: Final = 200_000

_NAME = r"[A-Za-z_][A-Za-z0-9_]*+"
#: The marks before the name, the name with its inner marks, the marks after it.
_PATTERNS: Final = {
    "dollar": re.compile(rf"(?<!\$)(\$++)({_NAME}|\{{{_NAME}\}})()"),
    "braces": re.compile(rf"(?<!\{{)(\{{{{2,}}+)([ \t]*+{_NAME}[ \t]*+)(\}}{{2,}}+)"),
}
#: The number of marks on each side of a placeholder.
_WIDTH: Final = {"dollar": 1, "braces": 2}
_AROUND: Final = "{} \t"


class _Place(NamedTuple):
    """A name between marks: `before` and `after` are literal, `inner` is literal too, or replaced by the value."""

    start: int
    end: int
    name: str
    before: str
    inner: str | None  # None: the value
    after: str


def render(
    text: str, values: Mapping[str, str], *, engine: Engine, declared: Collection[str], limit: int = LIMIT
) -> str:
    """Return the text with the values of declared names; other values are ignored.

    Raises InvalidInput: `where` is the declared name without a value, or, before it is built, for a result of more than
    `limit` characters.
    """
    pieces: list[str] = []
    size = last = 0
    for place in _places(text, engine, declared):
        inner = values.get(place.name) if place.inner is None else place.inner
        if inner is None:
            raise InvalidInput(f"Missing parameter: {place.name!r}. Give it a value.", where=place.name)
        fresh = (text[last : place.start], place.before, inner, place.after)
        size += sum(map(len, fresh))
        last = place.end
        if size > limit:
            break
        pieces += fresh
    if size + len(text) - last > limit:
        raise InvalidInput(f"The rendered text has more than {limit} characters. Shorten it or its values.")
    pieces.append(text[last:])
    return "".join(pieces)


def used(text: str, engine: Engine, declared: Collection[str]) -> set[str]:
    """Return the declared names whose values would appear in the text."""
    return {place.name for place in _places(text, engine, declared) if place.inner is None}


def touched(text: str, engine: Engine, declared: Collection[str]) -> set[str]:
    """Return the declared names that the engine would change in the text: replace, or remove a doubled mark."""
    return {place.name for place in _places(text, engine, declared)}


def placeholders(text: str, engine: Engine) -> set[str]:
    """Return all names that would be replaced if declared, including `PATH` in `$PATH`."""
    return {place.name for place in _places(text, engine, None) if place.inner is None}


def _places(text: str, engine: Engine, declared: Collection[str] | None) -> Iterator[_Place]:
    """Yield the places of a declared name (any name for None) between marks, in order."""
    pattern = _PATTERNS.get(engine)
    if pattern is None:
        return
    width = _WIDTH[engine]
    names = None if declared is None else frozenset(declared)
    for match in pattern.finditer(text):
        opening, inner, closing = match.groups()
        name = inner.strip(_AROUND)
        if names is not None and name not in names:
            continue
        marks = min(len(opening), len(closing or opening)) // width
        taken = (marks - marks // 2) * width
        yield _Place(
            match.start(),
            match.end(),
            name,
            opening[: len(opening) - taken],
            None if marks % 2 else inner,
            closing[taken:],
        )
