"""Export and import a project's prompts, personas and presets as one signed archive."""

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.app.files import decode, read_bytes, write_whole
from cuebook.app.prompts.compare import families_of
from cuebook.app.prompts.draft import export_prompts
from cuebook.app.setup.persona_files import files_in, folder_of, means_persona
from cuebook.app.sync.hub import SyncHub, trusted_keys
from cuebook.app.sync.locations import pack, read_repository_file, unpack
from cuebook.app.sync.repository import (
    MAX_TOTAL,
    Published,
    own_fingerprint,
    read_fingerprints,
    seal,
    signers_of,
    unknown_signer,
    unseal,
    verify,
    write_repository,
)
from cuebook.errors import Conflict, CuebookError, InvalidInput, SyncRefused
from cuebook.prompts.names import SYNC
from cuebook.records.answer import Answer
from cuebook.records.expression import counted
from cuebook.records.prompt import MAIN
from cuebook.records.redaction import spans

#: An archive is no channel that could be frozen: it stays valid for ten years.
_VALID_S: Final = 3_650 * 86_400.0
_ROWS, _FILES = "prompts.json", "files.json"
_PERSONA: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}")


class BundleResult(Answer, frozen=True, kw_only=True):
    """The contents of a bundle: the project and key that signed it, versions of prompts, and files.

    An import has only what was new here. `conflicts` are branches with other versions here, each with a new branch for
    the bundle's: `greet@main` with `sync/ann`.
    """

    file: str
    project: str
    fingerprint: str
    versions: int
    prompts: tuple[str, ...]
    files: tuple[str, ...]
    conflicts: Mapping[str, str] = {}
    dry_run: bool = False

    def __str__(self) -> str:
        *listed, last = counted(self.versions, "version"), *self.files
        contents = f"{', '.join(listed)} and {last}" if listed else last
        return f"{contents}, signed by {self.project} ({self.fingerprint})"


class _Files(Struct, frozen=True, forbid_unknown_fields=True):
    personas: Mapping[str, str]
    presets: str | None = None


class PromptBundles(SyncHub):
    """Bundles of prompts: export and import."""

    async def bundle(self, file: str | Path) -> BundleResult:
        """Write all prompts with their versions, the personas and the presets to a signed archive.

        A replaced version with a secret is left out. Raises SyncRefused for a secret in a branch's newest version,
        InvalidInput.
        """
        folder, file = self._folder(), Path(file)
        rows = list(_rows((await export_prompts(self._services))["prompts"]))
        files = await asyncio.to_thread(self._read_files)
        for path, text in self._targets(files).items():
            if spans(text):
                msg = f"File {path.name!r} contains a secret. Remove it, then bundle again."
                raise SyncRefused(msg, reason="secret")
        payloads = [msgspec.json.encode(each) for each in rows]

        def write() -> str:
            signers = signers_of(folder)
            with tempfile.TemporaryDirectory(prefix="cuebook-bundle-") as name:
                write_repository(
                    Path(name), {_ROWS: seal(payloads, signers), _FILES: msgspec.json.encode(files)}, signers,
                    project=self.project, now=self._services.clock.now(), expires_s=_VALID_S,
                )  # fmt: skip
                try:
                    write_whole(file, [pack(Path(name))])
                except OSError as error:
                    msg = f"{str(file)!r} cannot be written ({error.strerror}). Choose another file."
                    raise InvalidInput(msg, where="file") from error
            return own_fingerprint(folder)

        fingerprint = await asyncio.to_thread(write)
        return BundleResult(
            file=str(file),
            project=self.project,
            fingerprint=fingerprint,
            versions=len(rows),
            prompts=tuple(dict.fromkeys(each["slug"] for each in rows)),
            files=_names(files),
        )

    async def unbundle(self, file: str | Path, *, trust: str = "", dry_run: bool = False, by: str = "") -> BundleResult:
        """Import a bundle, all or nothing. Stored versions and equal files are skipped; no file is overwritten.

        If the newest version of a branch here is not in the bundle, the bundle's become a branch `sync/PROJECT`.
        Raises SyncRefused, UnknownSigner, Conflict, InvalidInput.
        """
        file = Path(file)
        async with self._lock:
            try:
                result = await self._unbundle(file, trust, dry_run=dry_run, by=by)
            except CuebookError as error:
                if not dry_run:
                    await self._refused(error, by, location=file.name)
                raise
            if not dry_run:
                await self._record(by, location=file.name, result="accepted", detail=str(result))
        return result

    async def _unbundle(self, file: Path, trust: str, *, dry_run: bool, by: str) -> BundleResult:
        state = await asyncio.to_thread(self._state)
        confirmed = read_fingerprints(trust, where="trust")
        own = await asyncio.to_thread(own_fingerprint, self._folder())
        published = await asyncio.to_thread(_read_bundle, file)
        if self._accepted(state, {own, *confirmed}, published.project).isdisjoint(published.signers):
            raise unknown_signer("the bundle", published.project, published.fingerprint)
        rows, files = _contents(published)
        files = await asyncio.to_thread(self._new_files, files)
        branches = await self._diverged(rows, published.project)
        rows = [each | {"branch": branches.get((each["slug"], each["branch"]), each["branch"])} for each in rows]
        migrated = await self._prompts.migrate({"prompts": rows}, dry_run=dry_run, by=by)
        if not dry_run:
            await asyncio.to_thread(self._write_files, files)
            signed = () if confirmed.isdisjoint(published.signers) else (published,)
            await asyncio.to_thread(self._write_state, trusted_keys(state, (), signed))
        stored = {(each.slug, each.branch) for each in migrated.written}
        return BundleResult(
            file=str(file), project=published.project, fingerprint=published.fingerprint,
            versions=len(migrated.written), files=_names(files), dry_run=dry_run,
            prompts=tuple(dict.fromkeys(each.slug for each in migrated.written)),
            conflicts={
                f"{slug}@{branch}": new for (slug, branch), new in sorted(branches.items()) if (slug, new) in stored
            },
        )  # fmt: skip

    async def _diverged(self, rows: Sequence[Mapping[str, Any]], project: str) -> dict[tuple[str, str], str]:
        """Return a new branch for each one that would get versions after one that is not in the bundle."""
        planned = await self._prompts.migrate({"prompts": rows}, dry_run=True)
        stored = {(each.slug, each.branch, each.number) for each in planned.skipped}
        written = {(each.slug, each.branch) for each in planned.written}
        families = await families_of(self._services, {slug for slug, _ in written})
        found = {(slug, branch): families[slug].branch(branch) for slug, branch in written if slug in families}
        return {
            (slug, branch): f"{SYNC}{project}" if branch == MAIN else f"{SYNC}{project}/{branch}"
            for (slug, branch), status in found.items()
            if status is not None and (slug, branch, status.head) not in stored
        }

    def _read_files(self) -> _Files:
        personas = {each.name: _read_text(each) for each in files_in(folder_of(self._config))}
        return _Files(personas, _read_text(self._presets) if self._presets.exists() else None)

    @property
    def _presets(self) -> Path:
        return Path(self._config.folder) / self._config.settings.memory.presets

    def _targets(self, files: _Files) -> dict[Path, str]:
        """Return the texts of a bundle's files by their paths here. Raises SyncRefused for a path outside."""
        for name in files.personas:
            if not _PERSONA.fullmatch(name) or not means_persona(name):
                msg = f"The bundle has a persona file {name!r}, which is not a valid name."
                raise SyncRefused(msg, reason="path")
        targets = {folder_of(self._config) / name: text for name, text in files.personas.items()}
        return targets | ({} if files.presets is None else {self._presets: files.presets})

    def _new_files(self, files: _Files) -> _Files:
        """Return the files that do not exist here. Raises SyncRefused for a secret, Conflict for other content."""
        for path, text in self._targets(files).items():
            if spans(text):
                msg = f"The bundle's file {path.name} contains a secret. Ask for a bundle without it."
                raise SyncRefused(msg, reason="secret")
            if path.exists() and _read_text(path) != text:
                msg = f"{path} exists with other content. Move it out of this folder, then import again."
                raise Conflict(msg)
        folder = folder_of(self._config)
        personas = {name: text for name, text in files.personas.items() if not (folder / name).exists()}
        return _Files(personas, None if self._presets.exists() else files.presets)

    def _write_files(self, files: _Files) -> None:
        for path, text in self._targets(files).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, [text], private=False)


def _rows(exported: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the versions of a bundle, without replaced ones with a secret. Raises SyncRefused for a newest one."""
    rows = [each for each in exported if not each["branch"].startswith(SYNC)]
    newest = {(each["slug"], each["branch"]): each["version"] for each in rows}
    for each in rows:
        slug, branch, number = each["slug"], each["branch"], each["version"]
        if not spans(_text(each)):
            yield each
        elif number == newest[slug, branch]:
            msg = (
                f"Prompt {slug!r}, branch {branch!r}, version {number} contains a secret. Remove it, then bundle again."
            )
            raise SyncRefused(msg, reason="secret")


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)


def _names(files: _Files) -> tuple[str, ...]:
    personas = [counted(len(files.personas), "persona")] if files.personas else []
    return (*personas, *(["presets"] if files.presets is not None else []))


def _read_bundle(file: Path) -> Published:
    data = read_bytes(file, most=MAX_TOTAL)
    with tempfile.TemporaryDirectory(prefix="cuebook-bundle-") as name:
        unpack(data, Path(name) / "bundle")
        return verify(
            partial(read_repository_file, Path(name) / "bundle", most=MAX_TOTAL),
            Path(name) / "trusted",
            "",
            accepted=None,
        )


def _contents(published: Published) -> tuple[list[Any], _Files]:
    """Return a bundle's rows and files. Raises SyncRefused."""
    payloads = unseal(published.files.get(_ROWS, b""), published.keys, project="", name=_ROWS)
    try:
        rows = [{"branch": MAIN} | json.loads(each) for each in payloads]
        files = msgspec.json.decode(published.files[_FILES], type=_Files)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"Not a bundle of prompts ({error}). Create one with `cuebook prompt bundle FILE`."
        raise SyncRefused(msg, reason="invalid") from error
    for each in rows:
        if spans(_text(each)):
            msg = f"The bundle's prompt {each.get('slug')!r} contains a secret. Ask for a bundle without it."
            raise SyncRefused(msg, reason="secret")
    return rows, files


def _read_text(file: Path) -> str:
    return decode(read_bytes(file, file.name), file.name)
