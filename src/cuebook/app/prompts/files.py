"""Synchronize the project's `prompts/` folder with the prompt database: push, pull, and show drift.

The table in `compare` shows what each does with a branch. A refused operation writes nothing. A file with equal
content stays unchanged, byte for byte.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from cuebook.app.prompts.compare import (
    Agreed,
    BranchState,
    State,
    compare,
    families_of,
    read_base,
    text_hash,
    write_base,
)
from cuebook.app.prompts.draft import save_planned
from cuebook.app.prompts.folder import Contents, PromptFolder
from cuebook.app.prompts.history import astray, history_of, pointers_of
from cuebook.app.prompts.writing import Prompts
from cuebook.app.setup.compose import file_beside_database
from cuebook.app.setup.project_files import FILE as PROJECT
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.errors import BackendError, Conflict, CuebookError, InvalidInput
from cuebook.prompts import registry as registries
from cuebook.prompts.difference import Bump, bump, difference
from cuebook.prompts.digest import digest_of
from cuebook.prompts.files import with_semver
from cuebook.prompts.names import read_place
from cuebook.prompts.registry import FILE, path_of
from cuebook.records.answer import Answer
from cuebook.records.memory import Scope
from cuebook.records.prompt import BranchPlace, Version

_log = logging.getLogger("cuebook.prompts")


class SyncChange(Answer, frozen=True, kw_only=True):
    """A change of push or pull to a branch, made or planned, or the difference of its file and head.

    `version` and `semver` are those afterwards. `bump` is the semantic version change required.
    """

    path: str
    slug: str
    branch: str
    version: int = 0
    semver: str = ""
    state: State
    bump: Bump = "none"
    message: str | UnsetType = UNSET


class ProjectPrompts(Prompts):
    """The managed prompts of a project, with its prompt files: push, pull and drift."""

    def __init__(self, services: Services, config: Config) -> None:
        super().__init__(services)
        self._root = Path(config.folder) / config.settings.prompts.folder
        self._base = file_beside_database(config, ".prompts")

    @property
    def root(self) -> Path:
        """The folder of the prompt files."""
        return self._root

    async def push(self, folder: Path | None = None, *, dry_run: bool = False, force: bool = False) -> list[SyncChange]:
        """Store the files that were edited or added, all or nothing, and return the changes.

        A file without a `version`, or with that of another text, gets its own. Raises InvalidInput or BackendError
        naming the invalid file or a secret, and Conflict if the database changed too. With `force`, secrets
        are stored, and the file's text becomes the newest version.
        """
        shelf, base, contents, agreed = await self._read(folder)
        families = await families_of(self._services, [each.version.slug for each in contents.prompts])
        standings = await compare(self._services, contents, families, agreed)
        if not force:
            _refuse_clash(shelf, standings, "`push --force` keeps the file, `pull --force` keeps the stored version")
        over = ("new", "changed", *(("both", "behind") if force else ()))
        due = [each for each in standings if each.state in over]
        registry = contents.registry
        if registry is None and due:
            registry = await asyncio.to_thread(shelf.rebuilt, contents.prompts)
        planned = [
            write
            for each in due
            if each.file and not each.restores
            for write in await asyncio.to_thread(history_of, shelf, registry, each.file, each.active, each.newest)
        ]
        await self.check([each.version for each in planned], force=force)
        numbers = {each.version.place: each.version.number for each in planned}
        pushed = [_pushed(each, numbers.get(each.place, 1)) for each in due]
        if dry_run:
            return pushed
        stored: dict[tuple[str, str, str], Version] = {}
        if planned:
            saved = await save_planned(self._services, planned, families)
            stored = {(*each.place, each.digest): each for each in saved}
            for each in due:
                if each.file:
                    labels, active = pointers_of(registry, each.file, new=each.state == "new")
                    await self._point(each.place, labels, active)
        for each in due:
            if each.restores:
                await self._point(each.place, (), each.restores)
        semvers = {each.place: _semver_of(each, stored) for each in due}
        fine = [each for each in standings if each.state == "same"]
        agreed |= await asyncio.to_thread(lambda: {each.place: _stated(shelf, each, semvers) for each in (*fine, *due)})
        await asyncio.to_thread(write_base, base, agreed)
        pushed = [replace(each, semver=semvers[each.slug, each.branch]) for each in pushed]
        if due or (contents.registry is None and os.access(shelf.root, os.W_OK)):
            await self._list_anew(shelf, contents, {each.place[0] for each in due})
        return pushed

    async def pull(
        self,
        folder: Path | None = None,
        *,
        slugs: Collection[str] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> list[SyncChange]:
        """Write the files of the active versions, the others to `.objects`, and the registry. Return the changes.

        `slugs` limits it to these prompts. An edited file is kept; if the database changed too, this raises Conflict,
        unless `force` overwrites both.
        """
        shelf, base, contents, agreed = await self._read(folder)
        families = await families_of(self._services, slugs)
        compared = await compare(self._services, contents, families, agreed)
        standings = [each for each in compared if slugs is None or each.place[0] in families]
        if not force:
            _refuse_clash(shelf, standings, "`pull --force` overwrites the file, `push --force` stores it")
        over = ("behind", "missing", *(("both", "changed") if force else ()))
        due = [each for each in standings if each.state in over]
        _check_free(shelf, contents, due)
        changes = [_change(each) for each in due]
        if dry_run:
            return changes
        fresh = {each.place for each in due}
        await self._lay_out(shelf, contents, None if slugs is None else set(families), fresh)
        for each in standings:
            if each.place in fresh and each.active is not None:
                agreed[each.place] = (text_hash(each.active), each.path)
            elif each.state == "same":
                agreed[each.place] = await asyncio.to_thread(_stated, shelf, each, {})
        await asyncio.to_thread(write_base, base, agreed)
        return changes

    async def drift(self, folder: Path | None = None) -> list[SyncChange]:
        """Return the differences between files, registry and database, without writing anything.

        A database without prompts, as after a fresh checkout, is not compared if there is a registry.
        """
        shelf, _, contents, agreed = await self._read(folder)
        families = await families_of(self._services, None)
        standings = await compare(self._services, contents, families, agreed)
        fine = ("same",) if families or contents.registry is None else ("same", "new")
        sync_changes = [_change(each) for each in standings if each.state not in fine]
        if contents.fault is not None:
            broken = SyncChange(path=FILE, slug="", branch="", state="registry", message=str(contents.fault))
            return [*sync_changes, broken]
        if contents.registry is None:
            return sync_changes
        values = {each.slug for each in sync_changes} | {each.path for each in sync_changes}
        files = {each.path: each.data for each in contents.prompts} | await asyncio.to_thread(shelf.objects)
        faults = registries.check(contents.registry, files)
        faults += [(FILE, slug, why) for slug, family in families.items() for why in astray(contents.registry, family)]
        return sync_changes + [
            SyncChange(path=path, slug=slug, branch="", state="registry", message=shelf.located(why, path))
            for path, slug, why in faults
            if not values & {slug, path}
        ]

    async def restore(self, slug: str) -> None:
        """Write a prompt's active versions to their files after a rollback. Log a failure: the rollback stands."""
        try:
            await self.pull(slugs=[slug])
        except CuebookError as error:
            _log.warning("%s (version restored in the database only)", error)

    async def edited(self, prompt: str, active: Version) -> tuple[str, Version] | None:
        """Return the path and the content of the file of a branch, which `prompt` names, if it has unpushed edits.

        A reference to a version or a label names no file: None.

        Raises InvalidInput, BackendError for an invalid file.
        """
        reference, place = read_place(prompt), active.place
        if reference.number is not None or reference.branch not in (None, active.branch):
            return None
        shelf, _, contents, agreed = await self._read(None, lenient=True)
        ours = {shelf.display_name(path) for path in (path_of(*place), agreed.get(place, ("", ""))[1])}
        for path, why in contents.invalid:
            if path in ours:
                raise InvalidInput(why, where=path)
        own = replace(contents, prompts=tuple(each for each in contents.prompts if each.version.place == place))
        families = await families_of(self._services, [active.slug])
        for each in await compare(self._services, own, families, agreed):
            if each.place == place and each.state in ("changed", "both") and each.file is not None:
                return shelf.display_name(each.path), replace(each.file, number=0, digest="")
        return None

    # ---- inside

    async def _read(
        self, folder: Path | None, *, lenient: bool = False
    ) -> tuple[PromptFolder, Path | None, Contents, Agreed]:
        """Return a folder and the file of its synchronized state, with the contents of both.

        The state is stored for the project's own folder only.
        """

        def read() -> tuple[PromptFolder, Path | None, Contents, Agreed]:
            shelf, base = PromptFolder(self._root), self._base
            if folder is not None and folder.resolve() != self._root.resolve():
                shelf, base = PromptFolder(folder), None
            agreed = read_base(base)  # before the files: another push writes its state after them
            return shelf, base, shelf.read(lenient=lenient), agreed

        return await asyncio.to_thread(read)

    async def _point(self, place: BranchPlace, labels: Sequence[tuple[str, int]], active: int) -> None:
        """Restore the labels and the active version that file and registry have for a branch."""
        slug, branch = place
        known = {one.number for one in await self._services.prompts.versions(Scope(), slug, branch=branch)}
        for name, number in labels:
            if number in known:
                await self.label(slug, name, branch=branch, version=number)
        if active in known and active != max(known):
            await self.roll_back(slug, branch=branch, to=active, reason="its file has this version")

    async def _list_anew(self, shelf: PromptFolder, contents: Contents, slugs: Collection[str]) -> None:
        """Write the derived files: registry and older versions. A read-only folder is not an error."""
        try:
            await self._lay_out(shelf, contents, slugs)
        except BackendError as error:
            _log.warning("%s (the push itself succeeded)", error)

    async def _lay_out(
        self,
        shelf: PromptFolder,
        contents: Contents,
        slugs: Collection[str] | None,
        fresh: Collection[BranchPlace] = (),
    ) -> None:
        """Write the files of the `fresh` branches, other versions' objects and the registry, of all or some prompts."""
        paths = {each.version.place: each.path for each in contents.prompts}
        old = contents.registry
        registry_entries = () if slugs is None or old is None or not old.text else old.entries
        families = await families_of(self._services, slugs if registry_entries else None)
        versions = [each for slug in families for each in await self._services.prompts.versions(Scope(), slug)]
        branches = {(slug, branch.name): branch for slug, family in families.items() for branch in family.branches}
        files = registries.layout(
            versions,
            branches,
            {slug: family.labels for slug, family in families.items()},
            paths=paths,
            others=[each for each in registry_entries if each.id not in families],
        )
        places = {paths.get(place) or path_of(*place): place for place in branches}
        due = {path: text for path, text in files.items() if path not in places or places[path] in fresh}
        await asyncio.to_thread(lambda: [shelf.write(path, text) for path, text in due.items()])


def pushes_by_itself(config: Config) -> bool:
    """Return whether changed files are pushed on open: only in a project, and if the setting allows it."""
    settings, folder = config.settings.prompts, Path(config.folder)
    named = any(origin.partition(" ")[0] not in ("argument", "environment") for origin in config.origins.values())
    project = named or "prompts.folder" in config.origins or (folder / PROJECT).exists()
    return settings.autopush and project and (folder / settings.folder).is_dir()


async def push_by_itself(prompts: ProjectPrompts) -> None:
    """Push the files. Log problems, so that the project opens with the stored prompts."""
    try:
        try:
            await prompts.push()
        except Conflict:
            await prompts.push()  # another process may have pushed the same files
    except CuebookError as error:
        _log.warning("%s (using the stored prompts; retry with `cuebook prompt push`)", error)


def _refuse_clash(shelf: PromptFolder, standings: Sequence[BranchState], way_out: str) -> None:
    """Raise Conflict if file and database both changed."""
    for each in standings:
        if each.state == "both" and each.active is not None:
            where = each.active.source.removeprefix("prompt:")
            raise Conflict(f"{shelf.display_name(each.path)}: changed on disk and in the database ({where}). {way_out}")


def _check_free(shelf: PromptFolder, contents: Contents, due: Sequence[BranchState]) -> None:
    """Raise Conflict instead of overwriting a file of another prompt."""
    owners = {each.path.lower(): each.version.place for each in contents.prompts}
    for each in due:
        owner = owners.get(each.path.lower(), each.place)
        if owner != each.place:
            file_name = shelf.display_name(each.path)
            msg = f"{file_name}: contains prompt {owner[0]!r}, but is the path of {each.place[0]!r}. Rename the file."
            raise Conflict(msg)


def _pushed(standing: BranchState, number: int) -> SyncChange:
    file, active = standing.file, standing.active
    required: Bump = bump(difference(active, file)) if file and active else "none"
    return replace(_change(standing, file), version=standing.restores or number, bump=required)


def _semver_of(standing: BranchState, stored: Mapping[tuple[str, str, str], Version]) -> str:
    """Return the semantic version that a file's text was stored with."""
    file = standing.file
    found = stored.get((*standing.place, digest_of(file))) if file else None
    return found.semver if found else file.semver if file else ""


def _stated(shelf: PromptFolder, standing: BranchState, semvers: Mapping[BranchPlace, str]) -> tuple[str, str]:
    """Write the stored semantic version into a file with another one or none. Return the state to store. Blocks."""
    source, file = standing.source, standing.file
    if source is None or file is None:
        return standing.text, standing.path
    semver = semvers.get(standing.place, file.semver)
    base = text_hash(replace(file, semver=semver)), standing.path
    if not source.keys or ("version" in source.keys and source.version.semver == semver):
        return base
    data = shelf.bytes_of(source.path)
    if data != source.data:  # edited meanwhile
        return base
    text = with_semver(data, semver, path=source.path)
    try:
        shelf.write(source.path, text)
    except BackendError as error:
        _log.warning("%s (the push itself succeeded)", error)
    return base


def _change(standing: BranchState, version: Version | None = None) -> SyncChange:
    slug, branch = standing.place
    shown = version or standing.active or standing.file
    return SyncChange(
        path=standing.path,
        slug=slug,
        branch=branch,
        state=standing.state,
        version=shown.number if shown else 0,
        semver=shown.semver if shown else "",
    )
