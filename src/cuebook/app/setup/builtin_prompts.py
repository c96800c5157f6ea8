"""The prompts that ship with the library and hold where a book has none of their name.

They are the files below `prompts/system` of the project template, so that a book begins with the same texts and may
change them: one more instruction is one more file there.
"""

from functools import cache
from pathlib import Path

from msgspec.structs import replace

from cuebook.prompts.digest import sealed
from cuebook.prompts.files import read_file
from cuebook.records.prompt import Version

#: How blocks and records name the branch of a shipped prompt; its number is 0.
BRANCH = "built-in"
_PROMPTS = Path(__file__).with_name("project") / "prompts"


def builtin_prompts() -> dict[str, Version]:
    """Return them by id."""
    return dict(_read())


@cache
def _read() -> dict[str, Version]:
    """Read them once: 13 ms, and they do not change while a program runs."""
    files = sorted((_PROMPTS / "system").rglob("*.md"))
    read = [read_file(file.read_bytes(), path=file.relative_to(_PROMPTS).as_posix()) for file in files]
    return {each.slug: sealed(replace(each, branch=BRANCH)) for each in read}
