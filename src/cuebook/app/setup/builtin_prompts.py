"""Load the built-in prompts, which apply unless the project has a prompt of the same id.

They are the files below `prompts/system` of the project template, so that a project starts with the same texts and can
edit them. To add an instruction, add a file there.
"""

from functools import cache
from pathlib import Path

from msgspec.structs import replace

from cuebook.prompts.digest import sealed
from cuebook.prompts.files import read_file
from cuebook.records.prompt import Version

#: Branch name of built-in prompts in blocks and records; their version number is 0.
BRANCH = "built-in"
_PROMPTS = Path(__file__).with_name("project") / "prompts"


def builtin_prompts() -> dict[str, Version]:
    """Return the built-in prompts by id."""
    return dict(_read())


@cache
def _read() -> dict[str, Version]:
    """Load the files once: it takes 13 ms, and they do not change while a program runs."""
    files = sorted((_PROMPTS / "system").rglob("*.md"))
    versions = [read_file(file.read_bytes(), path=file.relative_to(_PROMPTS).as_posix()) for file in files]
    return {each.slug: sealed(replace(each, branch=BRANCH)) for each in versions}
