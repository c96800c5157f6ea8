"""Whether every key of the presets file names a prompt, each instruction can be said, each version says what it was
stored as, and each file is a prompt; nothing is changed.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from cuebook.app.builtin import builtin_prompts
from cuebook.app.load import check_instructions, files_of, load_compaction, load_presets, with_own
from cuebook.app.prompts.folder import Contents, PromptFolder
from cuebook.backends.sqlite.store import SqliteStore
from cuebook.config import Config
from cuebook.engine.core.instructions import said
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.jobs.compaction import VALUES
from cuebook.errors import CuebookError
from cuebook.ports.prompts import Family
from cuebook.ports.store import Store
from cuebook.prompts.digest import digest_of
from cuebook.prompts.names import check_project, instructions
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Branch, Version


class Prompted(Struct, frozen=True, kw_only=True):
    """Which prompts are told to models behind the replies, and which of them cannot be said and why.

    `altered` names versions whose text is not the one their digest was made of, `odd` files that hold up every push.
    """

    slugs: tuple[str, ...]
    unsaid: tuple[str, ...]
    altered: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


async def look_at_prompts(config: Config, database: str) -> Prompted:
    """Look at a book's prompts, in its database and among the files it takes over.

    Raises InvalidInput where the book will not open, BackendError where the store does not.
    """
    builtin = builtin_prompts()
    contents = await asyncio.to_thread(_contents, config)
    files = {each.slug: each for each in _files(contents)}
    store: Store = await asyncio.to_thread(SqliteStore, database)
    try:
        project = check_project(config.settings.prompts.project, where="prompts.project")
        stored = await _stored(store)
        known = with_own(config, stored | set(files_of(config)) | files.keys())
        load_presets(config, known)
        compaction = load_compaction(config)
        check_instructions(config, compaction, known | builtin.keys())
        slugs = {
            next(name for name in instructions(profile.prompt_key, project) if name in known or name in builtin)
            for profile in compaction.profiles.values()
        }
        unsaid = [each for slug in sorted(slugs) for each in await _unsaid(store, slug, files)]
        altered = [each for slug in sorted(stored) for each in await _altered(store, slug)]
    finally:
        await store.aclose()
    return Prompted(
        slugs=tuple(sorted(slugs)),
        unsaid=tuple(dict.fromkeys(unsaid)),
        altered=tuple(altered),
        odd=tuple(why for _, why in contents.odd),
    )


async def _stored(store: Store) -> set[str]:
    """Give the ids of the prompts in a store."""
    known: set[str] = set()
    after: str | None = ""
    while after is not None:
        page = await store.prompts.page(Scope(), limit=200, after=after)
        known.update(family.slug for family in page.items)
        after = page.next
    return known


async def _unsaid(store: Store, slug: str, files: Mapping[str, Version]) -> list[str]:
    """Say why an instruction cannot be said: as it is stored, and as its file has it."""
    families = await store.prompts.families(Scope(), [slug])
    fresh = families | {name: _family(each) for name, each in files.items()}
    stored = families[slug].version(MAIN) if slug in families else None
    reasons: list[str] = []
    for version, parents in ((stored, families), (files.get(slug), fresh)):
        if version is not None:
            try:
                said(await resolved_of(store, version, parents), VALUES)
            except CuebookError as error:
                reasons.append(f"{slug}: {error}")
    return reasons


async def _altered(store: Store, slug: str) -> list[str]:
    """Name the versions that say something else than what they were stored as."""
    versions = await store.prompts.versions(Scope(), slug)
    return [each.source.removeprefix("prompt:") for each in versions if digest_of(each) != each.digest]


def _contents(config: Config) -> Contents:
    """Read the project's files."""
    return PromptFolder(Path(config.folder) / config.settings.prompts.folder).read(lenient=True)


def _files(contents: Contents) -> Iterator[Version]:
    """Give what stands in the project's files on `main`."""
    for each in contents.prompts:
        if each.version is not None and each.place[1] == MAIN:
            yield each.version


def _family(version: Version) -> Family:
    return Family(slug=version.slug, branches=(Branch(name=MAIN, head=0, active=0),), active=(version,))
