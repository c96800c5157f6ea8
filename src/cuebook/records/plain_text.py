"""Convert Markdown to plain text for voice and logs, with a real parser.

CommonMark with tables and strikethrough; HTML is text. One rule is stricter than CommonMark: marks inside names and
formulas (`__init__`, `2*3*4`) are not emphasis.
"""

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline.state_inline import StateInline
    from markdown_it.token import Token

#: Most levels of nesting (24 nested lists), and most opening brackets: a text with more is returned unchanged. The
#: parser's time grows with length times levels, fastest with brackets; measured: 150 kB/s at worst within both limits.
_DEEPEST = 50
_MOST_BRACKETS = 5_000
_NAME = re.compile(r"__[a-z][a-z0-9_]{0,64}?__(?![A-Za-z0-9_])")
_ENDING = re.compile(r"(?:e?s|e?d|ing|ly)(?![A-Za-z0-9_])")
_BREAK = "\n\n"


def plain(markdown: str) -> str:
    """Return the plain text of a Markdown document, stripped, with a blank line between blocks. It never raises.

    Headings, quotes and emphasis lose their marks, links and images their targets. Code keeps its text; lists keep
    bullets and numbers, indented by two spaces a level. A table row is a line with ", " between cells.
    Horizontal rules are dropped.
    """
    if markdown.count("[") > _MOST_BRACKETS:
        return markdown.strip()
    try:
        tokens = _parser().parse(markdown)
    except RecursionError:  # the parser does not limit images inside images
        return markdown.strip()
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        return markdown.strip()
    page = _Page()
    for token in tokens:
        page.read(token)
    return "\n".join(line.rstrip() for line in "".join(page.pieces).split("\n")).strip()


@functools.cache
def _parser() -> "MarkdownIt":
    """Build the parser once; it is stateless."""
    from markdown_it import MarkdownIt  # a tenth of a command's start

    class _Parser(MarkdownIt):
        """A parser that ignores link targets: they are dropped, so none is refused or normalized."""

        def validateLink(self, url: str) -> bool:  # noqa: N802  the parser's name
            return isinstance(url, str)

        def normalizeLink(self, url: str) -> str:  # noqa: N802
            return url

        def normalizeLinkText(self, link: str) -> str:  # noqa: N802
            return link

    parser = _Parser("commonmark", {"html": False, "maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    parser.inline.ruler.at("emphasis", _emphasis)
    return parser


def _emphasis(state: "StateInline", silent: bool) -> bool:  # noqa: FBT001  the parser's signature
    """Parse emphasis as CommonMark does, except inside names and formulas; a word ending may follow the marks."""
    from markdown_it.rules_inline.state_inline import Delimiter

    marker = state.src[state.pos]
    if silent or marker not in "_*":
        return False
    results = state.scanDelims(state.pos, marker == "*")
    end = state.pos + results.length
    before, after = state.src[max(0, state.pos - 1) : state.pos], state.src[end : end + 1]
    inside = f"{before}{after}".isascii() and before.isalnum() and after.isalnum()
    named = marker == "_" and results.length == 2 and _NAME.match(state.src, state.pos) is not None
    ended = before.isalpha() and _ENDING.match(state.src, end) is not None
    for _ in range(results.length):
        state.push("text", "", 0).content = marker
        state.delimiters.append(
            Delimiter(
                marker=ord(marker),
                length=results.length,
                token=len(state.tokens) - 1,
                end=-1,
                open=results.can_open and not inside and not named,
                close=results.can_close and (ended or not inside),
            )
        )
    state.pos = end
    return True


class _Page:
    """The state of the conversion of a document's blocks, and the text written so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.gap = ""  # the separator before the next block
        self.bullet = ""  # the prefix of the next block
        self.lists: list[str] = []  # the kinds of the open lists
        self.cell = 0

    def read(self, token: "Token") -> None:
        """Process the next token of a document."""
        step = getattr(self, f"_{token.type}", None)
        if step is not None:
            step(token)
        elif token.type == "inline":
            self._write(_inline(token.children or []))
        elif token.content:
            self.gap = _BREAK
            self._write(token.content.rstrip("\n"))

    def _write(self, text: str) -> None:
        if self.cell <= 1:
            indent = "  " * (len(self.lists) - bool(self.bullet))
            text = indent + self.bullet + text.replace("\n", "\n" + indent + " " * len(self.bullet))
        self.pieces += (self.gap, text)
        self.gap = self.bullet = ""

    def _list_open(self, token: "Token") -> None:
        self.gap = self.gap if self.lists else _BREAK
        self.lists.append(token.type)

    def _list_close(self, _: "Token") -> None:
        self.lists.pop()
        self.gap = self.gap if self.lists else _BREAK

    _bullet_list_open = _ordered_list_open = _list_open
    _bullet_list_close = _ordered_list_close = _list_close

    def _list_item_open(self, token: "Token") -> None:
        self.bullet = f"{token.info}. " if self.lists[-1] == "ordered_list_open" else "- "

    def _paragraph_open(self, token: "Token") -> None:
        self.gap = (self.gap or "\n") if token.hidden else _BREAK

    def _heading_open(self, _: "Token") -> None:
        self.gap = _BREAK

    _table_open = _heading_open

    def _tr_open(self, _: "Token") -> None:
        self.gap = self.gap or "\n"
        self.cell = 0

    def _th_open(self, _: "Token") -> None:
        self.cell += 1
        self.gap = ", " if self.cell > 1 else self.gap

    _td_open = _th_open

    def _table_close(self, _: "Token") -> None:
        self.cell = 0


def _inline(tokens: Sequence["Token"]) -> str:
    """Return the text inside a block; an image becomes its description."""
    pieces: list[str] = []
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            pieces.append("\n")
        elif token.type == "image":
            pieces.append(_inline(token.children or []))
        else:
            pieces.append(token.content)
    return "".join(pieces)
