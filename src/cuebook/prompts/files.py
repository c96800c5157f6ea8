"""Parse and write a version's file: front matter, then its sections. A round trip keeps the bytes.

```
---
cuebook: 1
name: persona/kind_helper
version: 1.2.0
description: Helper personality
override_sections: [constraints]
input:
  schema:
    agent_name: string, how the agent calls itself
    user_name?: string
context_weights:
  task_coding: 0.8
---
<!-- @section identity -->
Welcome $user_name, I'm $agent_name.

<!-- @section constraints -->
Be concise.
```

A file without front matter is a prompt too (kAI): one section, `body`; the rest stands in the registry. What the
store alone knows is in no file: number, digest, times, where a branch began.
"""

import re

from cuebook.errors import InvalidInput, TooLarge
from cuebook.prompts.difference import check_semver
from cuebook.prompts.digest import level
from cuebook.prompts.front import FORMAT, FrontMatter, written
from cuebook.prompts.names import ENDING, check_branch, check_slug, parse_reference
from cuebook.prompts.pages import FENCE, MAX_FILE, decoded, divide, join, open_page
from cuebook.prompts.yaml_text import dump
from cuebook.records.prompt import MAIN, Version

#: The line of the key `version` in front matter: up to the colon, and a comment.
_VERSION = re.compile(r"^([\"']?version[\"']?[ \t]*:).*?([ \t]+#[^\r]*)?(?=\r?$)")


def read_file(text: str | bytes, *, path: str) -> Version:
    """Return the version in a prompt's file. `path` is relative to `prompts/`, and the id if the file names none.

    Raises InvalidInput naming file, line and key.
    """
    return read_stated(text, path=path)[0]


def read_stated(text: str | bytes, *, path: str, slug: str = "") -> tuple[Version, frozenset[str]]:
    """Return the version in a prompt's file, and the keys that its front matter sets, by canonical name.

    `slug` is the id if the file names none. Default: `path`. Raises InvalidInput naming file, line and key.
    """
    page = open_page(text, path=path)
    front = FrontMatter(page)
    if front.text("cuebook") not in ("", FORMAT):
        front.refuse("cuebook", f"format {front.text('cuebook')[:40]!r} is unsupported. This Cuebook reads {FORMAT}")
    texts = divide(page)
    overriding = front.names("override_sections")
    for name in overriding:
        if name not in texts:
            front.refuse("override_sections", f"{name!r} is not a section of this file")
    version = Version(
        slug=front.checked("name", check_slug) or slug or check_slug(path.removesuffix(ENDING), where=path),
        branch=front.checked("branch", check_branch) or MAIN,
        semver=front.checked("version", check_semver) or "1.0.0",
        type=front.text("type") or "prompt",
        sections={name: section for name, section in texts.items() if name not in overriding},
        override_sections={name: section for name, section in texts.items() if name in overriding},
        params=front.params(),
        engine=front.engine(),
        inherits=front.checked("inherits", parse_reference) or None,
        metadata=front.metadata(),
        tags=front.names("tags"),
        author=front.text("author"),
        description=front.text("description"),
        sync=front.flag("sync"),
    )
    return version, frozenset(key for key in front.nodes if front.value_of(key) is not None)


def with_semver(text: str | bytes, semver: str, *, path: str) -> str:
    """Return a file with this `version` in its front matter, which is all that changes.

    A file without front matter, or with a `version` that spans lines, stays as it is.
    """
    page, whole = open_page(text, path=path), decoded(text, path)
    if not page.front:
        return whole
    lines = whole.split("\n")
    node, name = page.front.get("version"), page.front.get("name") or page.front.get("id")
    if node is not None:
        lines[node.line - 1] = _VERSION.sub(rf"\g<1> {semver}\g<2>", lines[node.line - 1])
    else:
        at = name.line if name else next(at for at, line in enumerate(lines, 1) if line.rstrip("\r \t") == FENCE)
        lines.insert(at, f"version: {semver}" + "\r" * lines[at - 1].endswith("\r"))
    changed = "\n".join(lines)
    return changed if read_file(changed, path=path).semver == semver else whole


def write_file(version: Version) -> str:
    """Return a version's file: default values omitted, own sections before overriding ones.

    Raises InvalidInput for what no file can represent: a section that also overrides, a NUL, a lone surrogate.
    """
    version = level(version)
    both = version.sections.keys() & version.override_sections.keys()
    if both:
        raise InvalidInput(f"{version.slug}: {min(both)!r} is in both section lists. Keep one.", where=min(both))
    front = dump(written(version), where=version.slug)
    body = join({**version.sections, **version.override_sections})
    text = f"{FENCE}\n{front}{FENCE}\n{body}"
    if "\x00" in text:
        raise InvalidInput(f"{version.slug}: contains a NUL character. Remove it.", where=version.slug)
    if len(text) > MAX_FILE:
        raise TooLarge(f"{version.slug}: {len(text)} characters; a prompt's file has at most {MAX_FILE}")
    return decoded(text, version.slug)
