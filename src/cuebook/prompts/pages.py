"""Split a prompt's file into front matter and sections, and write sections.

| what | rule |
| --- | --- |
| front matter | between two lines `---`, or missing; blank lines and a byte order mark before it are dropped |
| a marker | `<!-- @section NAME -->` at the begin of a line; text before the first one is the section `body` |
| a section's text | without blank lines around it; after `<!-- @verbatim NAME -->` all but one line end |
| a line like a marker | is written with one more `@` and read with one less |
| line ends | LF and CRLF are read, LF is written |
"""

import re
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from msgspec import Struct

from cuebook.errors import InvalidInput, TooLarge
from cuebook.prompts.digest import unix
from cuebook.prompts.names import check_section
from cuebook.prompts.yaml_text import Node, load
from cuebook.records.prompt import BODY

#: Maximum characters of a file, five times the maximum of a rendered text.
MAX_FILE = 1024 * 1024
#: The line before and after the front matter.
FENCE = "---"

_MARKER = re.compile(r"^<!--[ \t]*@(@*)(section|verbatim)(?![\w-])(.*)$", re.MULTILINE)
_MARKER_END = "-->"
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)+")
_R = TypeVar("_R")


class FilePages(Struct, frozen=True):
    """The two parts of a file: the front matter's values, and the text with its first line number."""

    path: str
    front: Mapping[str, Node]
    body: str
    body_line: int = 1

    def refuse(self, line: int, why: str) -> NoReturn:
        """Raise InvalidInput with file, line and reason."""
        raise InvalidInput(f"{self.path}: line {line}: {why}", where=f"{self.path}:{line}")

    def check(self, line: int, check: Callable[[], _R]) -> _R:
        """Return the result of a check, with file and line added to its errors."""
        try:
            return check()
        except InvalidInput as error:
            raise InvalidInput(f"{self.path}: line {line}: {error}", where=f"{self.path}:{line}") from error


def open_page(text: str | bytes, *, path: str) -> FilePages:
    """Return a file divided into front matter and text. Raises InvalidInput naming the line, also for invalid UTF-8."""
    text = decoded(text, path).removeprefix("\ufeff")
    if len(text) > MAX_FILE:
        raise TooLarge(f"{path}: {len(text)} characters; a prompt's file has at most {MAX_FILE}", where=path)
    text = unix(text)
    whole = FilePages(path, {}, text)
    if "\x00" in text:
        whole.refuse(text.count("\n", 0, text.index("\x00")) + 1, "contains a NUL character. Remove it.")
    lines = text.split("\n")
    start = next((place for place, line in enumerate(lines) if line.strip()), 0)
    if lines[start].rstrip() != FENCE:
        return whole
    end = next((place for place in range(start + 1, len(lines)) if lines[place].rstrip() == FENCE), None)
    if end is None:
        whole.refuse(start + 1, f"the front matter that begins here is not closed; end it with a line `{FENCE}`")
    front = load("\n".join([*lines[start + 1 : end], ""]), where=path, first_line=start + 2)
    return FilePages(path, front, "\n".join(lines[end + 1 :]), end + 2)


def decoded(text: str | bytes, path: str) -> str:
    """Return a file's text; bytes are UTF-8."""
    try:
        if isinstance(text, bytes):
            return text.decode()
        text.encode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{path}: line {line}: not UTF-8. Save it as UTF-8.", where=f"{path}:{line}") from error
    except UnicodeEncodeError as error:
        line = error.object.count("\n", 0, error.start) + 1
        raise InvalidInput(f"{path}: line {line}: contains a lone surrogate", where=f"{path}:{line}") from error
    return text


def divide(page: FilePages) -> dict[str, str]:
    """Return a text's sections in their order."""
    markers = [match for match in _MARKER.finditer(page.body) if not match[1]]
    first = trimmed(page.body[: markers[0].start()] if markers else page.body)
    texts = {BODY: _shown(first)} if first else {}
    lines = {BODY: page.body_line}
    line, counted = page.body_line, 0
    ends = [*(marker.start() for marker in markers[1:]), len(page.body)]
    for marker, end in zip(markers, ends, strict=False):  # without markers: one end
        line += page.body.count("\n", counted, marker.start())
        counted = marker.start()
        name = marker[3].rstrip().removesuffix(_MARKER_END).strip()
        if not name or not marker[3].rstrip().endswith(_MARKER_END):
            page.refuse(line, f"write `<!-- @{marker[2]} NAME -->` for a section, `@@{marker[2]}` for a text like that")
        page.check(line, lambda name=name: check_section(name, where="section"))  # type: ignore[misc]
        if name in texts:
            page.refuse(line, f"section {name!r} is a duplicate of line {lines[name]}; keep one")
        text = page.body[marker.end() + 1 : end]
        texts[name] = _shown(text.removesuffix("\n") if marker[2] == "verbatim" else trimmed(text))
        lines[name] = line
    return texts


def join(sections: Mapping[str, str]) -> str:
    """Return sections in order as text that `divide` parses back; line ends are LF."""
    if list(sections) == [BODY] and _is_trimmed(sections[BODY]):
        return f"{_hidden(sections[BODY])}\n"
    pieces: list[str] = []
    gap = ""
    for name, section in sections.items():
        plain = _is_trimmed(section)
        pieces.append(f"{gap}<!-- @{'section' if plain else 'verbatim'} {name} -->\n{_hidden(section)}\n")
        gap = "\n" if plain else ""
    return "".join(pieces)


def trimmed(text: str) -> str:
    """Return a text without leading blank lines and trailing white space."""
    text = text.rstrip(" \t\n")
    blank = _BLANK_LINES.match(text)
    return text[blank.end() :] if blank else text


def _is_trimmed(text: str) -> bool:
    return bool(text) and trimmed(text) == text


def _shown(text: str) -> str:
    """Return the text with one `@` less in lines that look like markers."""
    return _MARKER.sub(lambda match: match.group().replace("@", "", 1), text)


def _hidden(text: str) -> str:
    """Return the text with one `@` more in lines that look like markers."""
    return _MARKER.sub(lambda match: match.group().replace("@", "@@", 1), text)
