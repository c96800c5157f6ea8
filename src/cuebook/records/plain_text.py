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
    return "\n".join(line.rstrip() for line in _blocks(tokens).split("\n")).strip()


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


def _blocks(tokens: Sequence["Token"]) -> str:
    """Return the text of a document's blocks."""
    pieces: list[str] = []
    gap = bullet = ""  # the separator before the next block, and its prefix
    lists: list[str] = []  # the kinds of the open lists
    cell = 0
    for token in tokens:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                gap = gap if lists else _BREAK
                lists.append(token.type)
            case "bullet_list_close" | "ordered_list_close":
                lists.pop()
                gap = gap if lists else _BREAK
            case "list_item_open":
                bullet = f"{token.info}. " if lists[-1] == "ordered_list_open" else "- "
            case "paragraph_open":
                gap = (gap or "\n") if token.hidden else _BREAK
            case "heading_open" | "table_open":
                gap = _BREAK
            case "tr_open" | "table_close":
                gap, cell = gap or "\n", 0
            case "th_open" | "td_open":
                cell += 1
                gap = ", " if cell > 1 else gap
            case _ if token.content or token.type == "inline":
                is_code = token.type != "inline"
                text = token.content.rstrip("\n") if is_code else _inline(token.children or [])
                text = text if cell > 1 else _indented(text, bullet, level=len(lists))
                pieces += (_BREAK if is_code else gap, text)
                gap = bullet = ""
    return "".join(pieces)


def _indented(text: str, bullet: str, *, level: int) -> str:
    """Return a block inside `level` lists: indented, with the bullet of its item if it is the first there."""
    indent = "  " * (level - bool(bullet))
    return indent + bullet + text.replace("\n", "\n" + indent + " " * len(bullet))


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
