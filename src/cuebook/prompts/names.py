"""Check the names of prompts, branches and sections, and parse references to versions.

An id is also a path below `prompts/`, a part of a URL and a command line argument, on every system. A name that one of
them would interpret differently is rejected with the reason. No id has `~`, so a URL may use it for `/`.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from cuebook.errors import InvalidInput

#: Maximum characters of an id: with a few parent folders its path stays below the 260 of Windows.
MAX_ID: Final = 160
#: Maximum characters of a part, a branch's or a section's name; file systems end at 255 bytes.
MAX_PART: Final = 80
#: Fallback prefix for an id that does not exist.
DEFAULT: Final = "default/"
#: Prefix of the instructions for background models: compactor, selector, metaprompts.
SYSTEM: Final = "system/"
#: Prefix of the branches for another project's version that could not be merged.
SYNC: Final = "sync/"
#: Prefix of a project's own prompts, each under the id that it overrides.
PROJECTS: Final = "projects/"

_PART = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
#: Windows device names, with any extension: `con.md` is the console too.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)")
#: The id `a` is the file `a.md`; an id `a.md/b` would need a folder of that name.
ENDING: Final = ".md"
_COMMENT_END = "-->"
_HINTS: Final = {
    ".": "a part begins with '.'",
    "-": "a part begins with '-'",
    "%": "it contains '%'; write the character itself, not its escape",
    "\\": "it contains a backslash; separate parts with '/'",
}


class Reference(Struct, frozen=True):
    """A reference to a version: its slug, and the branch and number if they are pinned."""

    slug: str
    branch: str | None = None
    number: int | None = None


def check_slug(slug: object, *, where: str = "slug") -> str:
    """Return a checked prompt id, such as `persona/helper` or `_meta/concise`; raise InvalidInput with the reason."""
    slug = _text(slug, where)
    if not slug:
        raise InvalidInput(f"{where}: an id needs at least one character", where=where)
    if len(slug) > MAX_ID:
        raise InvalidInput(f"{where}: {len(slug)} characters; an id has at most {MAX_ID}", where=where)
    for part in slug.split("/"):
        fault = _fault(part)
        if fault:
            raise InvalidInput(f"{where}: {slug!r} is not a valid id: {fault}", where=where)
        if part.endswith(ENDING):
            raise InvalidInput(f"{where}: {slug!r} is not a valid id: omit the file extension of {part!r}", where=where)
    return slug


def check_branch(branch: object, *, where: str = "branch") -> str:
    """Return a checked branch name; raise InvalidInput with the reason.

    It is one part of an id, and not a number; prompt sync adds branches `sync/PROJECT` and `sync/PROJECT/BRANCH`.
    """
    name = _text(branch, where)
    parts = name.removeprefix(SYNC).split("/", 1) if name.startswith(SYNC) else [name]
    fault = "it reads as a version's number" if name.isdecimal() else next(filter(None, map(_fault, parts)), "")
    return _checked(name, fault, where=where, what="branch name")


def check_section(section: object, *, where: str = "sections") -> str:
    """Return a checked section name; raise InvalidInput with the reason. Any script, one line, no end of a comment.

    It appears in a file's marker `<!-- @section NAME -->` and is a key of digests, hence NFC.
    """
    name = _text(section, where)
    reasons = (
        (not 0 < len(name) <= MAX_PART, f"it has {len(name)} characters; 1 to {MAX_PART} are allowed"),
        (name != name.strip(), "it begins or ends with a space"),
        (not name.isprintable(), "it contains an invisible character"),
        (_COMMENT_END in name, f"{_COMMENT_END!r} would end its marker"),
        (unicodedata.normalize("NFC", name) != name, "write its characters composed (NFC)"),
    )
    return _checked(name, next((why for holds, why in reasons if holds), ""), where=where, what="section name")


def _text(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise InvalidInput(f"{where}: expected a string, got {type(name).__name__}", where=where)
    return name


def _checked(name: str, fault: str, *, where: str, what: str) -> str:
    if fault:
        raise InvalidInput(f"{where}: {name[:MAX_PART]!r} is not a valid {what}: {fault}", where=where)
    return name


def parse_reference(text: object, *, where: str = "reference") -> Reference:
    """Parse `slug`, `slug@branch`, `slug@branch:number` or `slug:number`. Raises InvalidInput with the reason."""
    if not isinstance(text, str):
        raise InvalidInput(f"{where}: expected slug, slug@branch or slug@branch:number", where=where)
    rest, colon, number = text.partition(":")
    slug, at, branch = rest.partition("@")
    if colon and not _NUMBER.fullmatch(number):
        raise InvalidInput(f"{where}: {number[:MAX_PART]!r} is not a valid version number (1, 2, …)", where=where)
    return Reference(
        check_slug(slug, where=where),
        check_branch(branch, where=where) if at else None,
        int(number) if colon else None,
    )


def read_place(text: str, *, branch: str | None = None, version: int | None = None) -> Reference:
    """Parse a prompt reference together with options. Raises InvalidInput, also if they contradict each other."""
    reference = parse_reference(text, where="slug")
    for name, named, also in (("branch", reference.branch, branch), ("version", reference.number, version)):
        if named is not None and also is not None and named != also:
            raise InvalidInput(f"{name}: {text!r} and {name} {also!r} contradict each other. Keep one.", where=name)
    return Reference(reference.slug, reference.branch or branch, reference.number if version is None else version)


def check_project(project: object, *, where: str = "project", what: str = "project name") -> str:
    """Return a checked project name, "" for none; raise InvalidInput with the reason. It is one part of an id."""
    name = _text(project, where)
    return _checked(name, _fault(name) if name else "", where=where, what=what)


def project_of(asked: str | None, kept: object, otherwise: str) -> str:
    """Return the effective project: the requested one, else the conversation's, else the default."""
    if asked is not None:
        return asked
    return kept if isinstance(kept, str) else otherwise


@lru_cache(maxsize=1_024)  # a turn asks for the same few names as the turn before
def candidates(slug: str, project: str = "") -> tuple[str, ...]:
    """Return the candidate ids of a name, in order of precedence: a project's own, then itself.

    An id and the same under `default/` are one prompt: each stands for the other if only that exists. Raises
    InvalidInput for an invalid id.
    """
    check_slug(slug)
    bare = slug.removeprefix(DEFAULT)
    plain = (slug, bare if slug.startswith(DEFAULT) else DEFAULT + slug)
    return _short_enough((*overrides(plain, project), *plain))


def instructions(key: str, project: str = "") -> tuple[str, ...]:
    """Return the candidate ids of an instruction's key, in order of precedence.

    A project's own, itself, the one under `system/`, the one under `default/`. Raises InvalidInput for an invalid id.
    """
    check_slug(key)
    places = ("",) if key.startswith((SYSTEM, DEFAULT)) else ("", SYSTEM, DEFAULT)
    plain = [each + key for each in places]
    return _short_enough((*overrides(plain, project), *plain))


def overrides(names: Iterable[str], project: str) -> tuple[str, ...]:
    """Return the ids of a project's own forms of some prompts; `default/` may be omitted."""
    if not project:
        return ()
    bare = {name: name.removeprefix(DEFAULT) for name in names}
    own = [each for name, short in bare.items() if not short.startswith(PROJECTS) for each in (name, short)]
    return _short_enough(dict.fromkeys(f"{PROJECTS}{project}/{each}" for each in own))


def overridden(slug: str) -> tuple[str, ...]:
    """Return the ids that a project's own prompt may override; none for other prompts."""
    name = slug.removeprefix(PROJECTS).partition("/")[2] if slug.startswith(PROJECTS) else ""
    return (name, DEFAULT + name, SYSTEM + name) if name else ()


def _short_enough(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if len(name) <= MAX_ID)


def _fault(part: str) -> str:
    """Return the first reason why a part is invalid, "" if it is valid."""
    reasons = (
        (not part, "it has an empty part (a leading, trailing or double '/')"),
        (len(part) > MAX_PART, f"a part has {len(part)} characters; at most {MAX_PART} are allowed"),
        (".." in part, "it contains '..'"),
        (not _PART.fullmatch(part), _foreign(part)),
        (part.endswith("."), "a part ends with a dot, which Windows drops"),
        (_RESERVED.match(part), f"{part!r} is a Windows device name"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _foreign(part: str) -> str:
    """Return the fault of the first character that is not allowed at its position."""
    good = _PART.match(part)
    rest = part[good.end() :] if good else part
    char = rest[:1]
    if char and not char.isascii():
        return f"{char!a} ({unicodedata.name(char, 'a character without a name')}) is not ASCII"
    if char.isupper():
        return f"write {char!r} in lower case: some file systems ignore case"
    return _HINTS.get(char, f"it contains {char!r}. Allowed are a-z, 0-9, '_', '-' and '.'")


def own_prompt(persona: str) -> str:
    """Return the id of the managed prompt for a persona's own text, if it exists."""
    return f"persona/{persona.lower()}"


def own_names(persona: str, project: str = "") -> tuple[str, ...]:
    """Return the possible prompt ids for a persona's own text, or none if its name cannot be part of an id."""
    try:
        return candidates(own_prompt(persona), project)
    except InvalidInput:
        return ()
