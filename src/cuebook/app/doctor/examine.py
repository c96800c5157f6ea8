"""Check the configuration and its dependencies without changing anything, and advise how to fix each problem."""

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from cuebook.app.prompts.folder import Contents, PromptFolder
from cuebook.app.setup.builtin_prompts import builtin_prompts
from cuebook.app.setup.compose import (
    check_numpy,
    database_of,
    embedder_of,
    environment_key,
    experience_files,
    experience_model_of,
    key_file_of,
    models_of,
)
from cuebook.app.setup.experience_files import strangers
from cuebook.app.setup.personas import look_at_personas
from cuebook.app.setup.project_files import (
    check_instructions,
    files_of,
    is_project,
    load_compaction,
    load_config,
    load_personas,
    load_presets,
    load_profiles,
    no_project,
    with_own,
)
from cuebook.config import Config, Settings, has_path
from cuebook.engine.core.instructions import render_instruction
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.time_zones import read_zone
from cuebook.engine.jobs.compaction import VALUES
from cuebook.errors import BackendError, CuebookError, InvalidInput
from cuebook.interfaces import RelayRequest
from cuebook.interfaces.prompts import Family
from cuebook.prompts.digest import digest_of
from cuebook.prompts.names import check_project, instructions
from cuebook.providers.clock_and_ids import database_key
from cuebook.providers.llama import LlamaModel
from cuebook.providers.minilm.embedder import missing
from cuebook.providers.openai import HttpUpstream
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Branch, Version
from cuebook.storage.database.sqlite_files import MEMORY, schema_version
from cuebook.storage.database.statements import VERSION
from cuebook.storage.store import Store, sqlite_store

# ---- prompts --------------------------------------------------------------------------------------------------------


class JobPrompts(Struct, frozen=True, kw_only=True):
    """The prompts used by background jobs, and why some of them cannot be rendered.

    `altered` lists versions whose text does not match their digest, `odd` files that block every push.
    """

    slugs: tuple[str, ...]
    unsaid: tuple[str, ...]
    altered: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


async def look_at_prompts(config: Config, database: str) -> JobPrompts:
    """Check a project's prompts, in its database and in its files.

    Raises InvalidInput if the project cannot be opened, BackendError if the store cannot.
    """
    builtin = builtin_prompts()
    contents = await asyncio.to_thread(_contents, config)
    files = {each.slug: each for each in _files(contents)}
    store: Store = await asyncio.to_thread(sqlite_store, database)
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
    return JobPrompts(
        slugs=tuple(sorted(slugs)),
        unsaid=tuple(dict.fromkeys(unsaid)),
        altered=tuple(altered),
        odd=tuple(why for _, why in contents.odd),
    )


async def _stored(store: Store) -> set[str]:
    """Return the ids of the prompts in a store."""
    known: set[str] = set()
    after: str | None = ""
    while after is not None:
        page = await store.prompts.page(Scope(), limit=200, after=after)
        known.update(family.slug for family in page.items)
        after = page.next
    return known


async def _unsaid(store: Store, slug: str, files: Mapping[str, Version]) -> list[str]:
    """Return why an instruction cannot be rendered: the stored one, and the one in its file."""
    families = await store.prompts.families(Scope(), [slug])
    fresh = families | {name: _family(each) for name, each in files.items()}
    stored = families[slug].version(MAIN) if slug in families else None
    reasons: list[str] = []
    for version, parents in ((stored, families), (files.get(slug), fresh)):
        if version is not None:
            try:
                render_instruction(await resolved_of(store, version, parents), VALUES)
            except CuebookError as error:
                reasons.append(f"{slug}: {error}")
    return reasons


async def _altered(store: Store, slug: str) -> list[str]:
    """Return the versions whose text was changed after they were stored."""
    versions = await store.prompts.versions(Scope(), slug)
    return [each.source.removeprefix("prompt:") for each in versions if digest_of(each) != each.digest]


def _contents(config: Config) -> Contents:
    """Load the project's prompt files."""
    return PromptFolder(Path(config.folder) / config.settings.prompts.folder).read(lenient=True)


def _files(contents: Contents) -> Iterator[Version]:
    """Yield the versions of `main` in the project's files."""
    for each in contents.prompts:
        if each.version is not None and each.place[1] == MAIN:
            yield each.version


def _family(version: Version) -> Family:
    return Family(slug=version.slug, branches=(Branch(name=MAIN, head=0, active=0),), active=(version,))


# ---- folders --------------------------------------------------------------------------------------------------------


State = Literal["ok", "warn", "fail"]

#: Maximum number of problems listed.
NAMED: Final = 3


class Check(Struct, frozen=True, kw_only=True):
    """The result of one check. `advice` tells how to fix a warning or a failure."""

    name: str
    state: State
    found: str
    advice: str = ""


def experiences(config: Config) -> Check:
    """Check the experience files: which are invalid, and which name no persona or role."""
    if config.settings.experience.selection == "off":
        return Check(name="experiences", state="ok", found="off")
    files, by = experience_files(config), None
    shelf = files.read(quiet=True)
    problems = [*shelf.problems, *files.unread()]
    with suppress(InvalidInput):  # reported by the model's check
        model, work_model, upstream = models_of(config)
        try:
            by = experience_model_of(config, model=model, work_model=work_model, upstream=upstream)
        except InvalidInput as error:
            return Check(name="experiences", state="fail", found=str(error))
    with suppress(InvalidInput):  # reported by the personas' check
        problems += strangers(shelf, [name for one in load_personas(config)[0].values() for name in (one.id, one.role)])
    folder = config.settings.experience.folder
    if folder != Settings().experience.folder and not (Path(config.folder) / folder).is_dir():
        problems.append(f"folder not found: {folder!r}")
    if problems:
        advice = "fix it; `cuebook experience list` shows all problems"
        return Check(name="experiences", state="warn", found="; ".join(problems[:NAMED]), advice=advice)
    chosen = f", selected by {by.name}" if by else ""
    return Check(name="experiences", state="ok", found=f"{len(shelf.kept):,} in {folder}{chosen}")


def prompt_logs(config: Config) -> Iterator[Check]:
    """Check that the folder of the prompt logs is writable, if one is set."""
    name = config.settings.logs.prompts
    if not name:
        return
    folder = Path(config.folder, name).absolute()
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        yield Check(name="logs", state="ok", found=f"each prompt is written to {name}")
    else:
        advice = "prompts are not logged; change its permissions, or logs.prompts"
        yield Check(name="logs", state="fail", found=f"{str(place)!r} is not a writable folder", advice=advice)


PYTHON = (3, 11)
#: Minimum SQLite version: full-text search, and RETURNING (3.35) after ON CONFLICT.
SQLITE = (3, 35)
#: Free disk space in bytes below which we warn, and below which the check fails.
LOW_BYTES, NO_BYTES = 1 << 30, 64 << 20
#: File systems whose locks SQLite's write-ahead log cannot trust ("all processes must be on the same host computer").
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs"}
)
PATIENCE_S = 5.0
NOT_FOUND = 404


async def examine(
    where: str | Path | None = None, *, arguments: Mapping[str, Any] | None = None
) -> AsyncIterator[Check]:
    """Yield the result of every check, in order of dependency. Creates and migrates nothing."""
    for check in (_python(), _sqlite()):
        yield check
    try:
        config = load_config(where, arguments=arguments)
        read_zone(config.settings.memory.time_zone, "memory.time_zone")
    except InvalidInput as error:
        yield Check(
            name="settings", state="fail", found=str(error), advice="fix this first; the other checks were skipped"
        )
        return
    if not is_project(config):
        advice = "create a project with `cuebook init`, or choose one with -C DIR"
        yield Check(name="project", state="fail", found=no_project(config), advice=advice)
    origins = {origin for origin in config.origins.values() if not origin.startswith("environment")}
    yield Check(
        name="settings", state="ok", found=", ".join(sorted(origins)) or "defaults; `cuebook init` creates a file"
    )
    for check in (_budget(config), _personas(config), _presets(config), experiences(config), *prompt_logs(config)):
        yield check
    for check in (*_folder(config), _key(config)):
        yield check
    store = await _store(config)
    yield store
    if store.state == "ok" and _presets(config).state == "ok":
        yield await _prompts(config)
    async for check in _models(config):
        yield check
    yield await _embedder(config)


# ---- the machine ----------------------------------------------------------------------------------------------------


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    enough = sys.version_info[:2] >= PYTHON
    advice = "" if enough else "install Python 3.11 or newer"
    return Check(name="python", state="ok" if enough else "fail", found=version, advice=advice)


def _sqlite() -> Check:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE:
        advice = "use a Python built with SQLite 3.35 or newer"
        return Check(name="sqlite", state="fail", found=version, advice=advice)
    try:
        with closing(sqlite3.connect(MEMORY)) as connection:
            connection.execute("CREATE VIRTUAL TABLE looked USING fts5(text)")
    except sqlite3.OperationalError as error:
        advice = "use a Python whose SQLite has FTS5"
        return Check(name="sqlite", state="fail", found=f"{version} without full-text search ({error})", advice=advice)
    return Check(name="sqlite", state="ok", found=f"{version} with full-text search")


# ---- the project ----------------------------------------------------------------------------------------------------


def _personas(config: Config) -> Check:
    try:
        personas, default = load_personas(config)
    except InvalidInput as error:
        advice = "fix the file; running processes keep its previous content"
        return Check(name="personas", state="fail", found=str(error), advice=advice)
    odd = [f"{file.name}: {each}" for file in look_at_personas(config).files for each in file.odd]
    if odd:
        more = f" and {len(odd) - 1} more" * (len(odd) > 1)
        return Check(name="personas", state="warn", found=odd[0] + more, advice="list all with `cuebook persona check`")
    return Check(name="personas", state="ok", found=f"{', '.join(sorted(personas))}; default {default}")


def _presets(config: Config) -> Check:
    try:
        compaction = load_compaction(config)
        load_profiles(config)
    except InvalidInput as error:
        return Check(name="presets", state="fail", found=str(error))
    result = f"profiles {', '.join(sorted(compaction.profiles))}; default {compaction.default}"
    return Check(name="presets", state="ok", found=result)


def _budget(config: Config) -> Check:
    budget = config.settings.budget
    room = budget.context - budget.system - budget.reply
    result = f"{budget.context - budget.reply:,} tokens for a prompt"
    if room <= 0:
        advice = "raise budget.context, or lower budget.system or budget.reply"
        result += f", but none left for posts: budget.system is {budget.system:,}, budget.reply {budget.reply:,}"
        return Check(name="budget", state="warn", found=result, advice=advice)
    return Check(name="budget", state="ok", found=f"{result}, {min(room, budget.max_short_term):,} of them for posts")


def _key(config: Config) -> Check:
    """Check the key file without creating it."""
    file = key_file_of(config)
    if file is None or not file.exists():
        return Check(name="key", state="ok", found="kept in memory" if file is None else f"{file} does not exist yet")
    try:
        database_key(file)
    except BackendError as error:
        return Check(name="key", state="fail", found=str(error))
    return Check(name="key", state="ok", found=f"{file} is valid")


def _database(config: Config) -> Path | None:
    """Return the database file, None for a database in memory."""
    url = database_of(config)
    return None if url == MEMORY else Path(url)


def _folder(config: Config) -> Iterator[Check]:
    file = _database(config)
    if file is None:
        return
    folder = next(each for each in (file.parent, *file.parent.absolute().parents) if each.exists())
    path = str(folder.absolute())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        yield Check(
            name="folder",
            state="fail",
            found=f"{path} is not writable",
            advice="change its permissions, or store.url",
        )
        return
    system = _file_system(folder.resolve())
    if system in NETWORK:
        advice = "SQLite is not safe on a network file system with several machines; put store.url on a local disk"
        yield Check(name="folder", state="warn", found=f"{path} is on {system}", advice=advice)
    else:
        yield Check(name="folder", state="ok", found=f"{path} is writable")
    free = shutil.disk_usage(folder).free
    state: State = "fail" if free < NO_BYTES else "warn" if free < LOW_BYTES else "ok"
    yield Check(
        name="disk",
        state=state,
        found=f"{free / (1 << 30):,.1f} GB free",
        advice="" if state == "ok" else "free disk space",
    )


def _file_system(folder: Path) -> str:
    """Return the type of a folder's file system; empty if unknown (no /proc)."""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    results = ("", "")
    for line in mounts:
        fields = line.split(" ")
        if len(fields) > 2:
            point = fields[1].replace("\\040", " ")
            if folder.is_relative_to(point) and len(point) >= len(results[0]):
                results = (point, fields[2])
    return results[1]


async def _store(config: Config) -> Check:
    file = _database(config)
    if file is not None and not (file.exists() and file.stat().st_size):
        return Check(name="store", state="ok", found=f"{file} does not exist yet; the first conversation creates it")
    try:
        schema = _schema(file) if file is not None else VERSION
        if schema is not None and 1 <= schema < VERSION:
            return Check(
                name="store",
                state="warn",
                found=f"{file} has schema {schema}",
                advice=f"back it up; the next command migrates it to {VERSION}",
            )
        store = await asyncio.to_thread(sqlite_store, str(file) if file is not None else MEMORY)
        try:
            faults = await store.check(whole=True)
        finally:
            await store.aclose()
    except CuebookError as error:
        return Check(name="store", state="fail", found=str(error))
    if faults["integrity"] != "ok":
        advice = "stop all processes that use it, and restore a backup"
        return Check(
            name="store", state="fail", found=f"{file or MEMORY} is damaged: {faults['integrity']}", advice=advice
        )
    counts = f"{faults['conversations']:,} conversations, {faults['posts']:,} posts, schema {schema or VERSION}, intact"
    return Check(name="store", state="ok", found=counts)


async def _prompts(config: Config) -> Check:
    file = _database(config)
    made = file is not None and file.exists() and file.stat().st_size
    try:
        prompted = await look_at_prompts(config, str(file) if made else MEMORY)
    except CuebookError as error:
        return Check(name="prompts", state="fail", found=str(error))
    if prompted.altered:
        more = f" and {len(prompted.altered) - NAMED:,} more" if len(prompted.altered) > NAMED else ""
        text = (
            f"{', '.join(prompted.altered[:NAMED])}{more}: the text does not match its digest; the database was altered"
        )
        advice = "restore it from its file, an export or a database backup"
        return Check(name="prompts", state="fail", found=text, advice=advice)
    if prompted.odd:
        advice = "fix it, then run `cuebook prompt push`; until then no edited prompt file is loaded"
        return Check(name="prompts", state="warn", found="; ".join(prompted.odd[:NAMED]), advice=advice)
    if prompted.unsaid:
        advice = "fix it; until then the built-in text is used"
        return Check(name="prompts", state="warn", found="; ".join(prompted.unsaid), advice=advice)
    return Check(name="prompts", state="ok", found=f"background jobs use {', '.join(prompted.slugs)}")


def _schema(file: Path) -> int | None:
    """Return a database's schema version without changing the file, None if it cannot be read."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return schema_version(connection)
    except sqlite3.Error:
        return None


# ---- models ---------------------------------------------------------------------------------------------------------


async def _models(config: Config) -> AsyncIterator[Check]:
    model, upstream = config.settings.model, config.settings.upstream
    try:
        answers, *_ = models_of(config)
        if isinstance(answers, LlamaModel):
            result = f"{answers.name}, here, by llama.cpp: {answers.context:,} tokens with its answer"
            yield Check(name="model", state="ok", found=result)
    except InvalidInput as error:
        yield Check(name=(error.where or "model").partition(".")[0], state="fail", found=str(error))
    if model.provider == "none" and not upstream.url:
        advice = "set [model] in cuebook.toml, or start `cuebook serve --upstream URL`"
        yield Check(name="model", state="warn", found="none: answers quote memory and say so", advice=advice)
    if model.provider == "openai" and model.name:
        yield await _reach("model", model.base_url, model.api_key_env, f"{model.name} at ")
    if upstream.url:
        yield await _reach("upstream", upstream.url, upstream.api_key_env)


async def _embedder(config: Config) -> Check:
    """Check the embedder by embedding a word, which loads the weights or calls the server."""
    settings = config.settings.embedder
    if settings.provider == "none":
        advice = "" if missing() else 'its package is installed: set embedder.provider = "minilm" to improve recall'
        return Check(
            name="embedder", state="ok", found=f"none: recall uses full-text search only{advice and '; '}{advice}"
        )
    try:
        embedder = embedder_of(config)
        check_numpy(embedder)
        if embedder is None:
            return Check(name="embedder", state="ok", found="none")
        try:
            async with asyncio.timeout(PATIENCE_S + settings.timeout_s):
                vectors = await embedder.embed(["hello"])
        finally:
            await embedder.aclose()
    except TimeoutError:
        result = f"{settings.name or settings.provider} did not answer within {PATIENCE_S + settings.timeout_s:g} s"
        return Check(
            name="embedder", state="fail", found=result, advice="until it does, recall uses full-text search only"
        )
    except CuebookError as error:
        return Check(
            name="embedder", state="fail", found=str(error), advice="until it works, recall uses full-text search only"
        )
    knows = ", ".join(sorted(embedder.languages)) or "any"
    return Check(
        name="embedder", state="ok", found=f"{embedder.name}: {len(vectors[0]) // 4} dimensions, languages: {knows}"
    )


async def _reach(name: str, url: str, key: str, what: str = "") -> Check:
    """Check that a server answers, by requesting its list of models."""
    request, text = RelayRequest(method="GET", path="/models", headers={}, body=b""), what
    try:
        server = HttpUpstream(url, api_key_env=key, connect_timeout_s=PATIENCE_S, read_timeout_s=PATIENCE_S)
        text += server.base_url
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await server.send(request)
            await answer.aclose()
        finally:
            await server.aclose()
    except TimeoutError:
        return Check(
            name=name,
            state="fail",
            found=f"{text} did not answer within {PATIENCE_S:g} s",
            advice="check that it is running",
        )
    except CuebookError as error:
        return Check(name=name, state="fail", found=str(error), advice="check the address")
    if answer.status in (401, 403):
        held = f"the key in {key} is refused" if key and environment_key(key) else f"no key in {key or 'api_key_env'}"
        advice = f"set {key or 'api_key_env'}"
        if name == "upstream":
            clients = "requests that bring their own key may still work"
            own = f"set another key in {key}, or upstream.forward_auth = true: then {clients}"
            advice = own if key and environment_key(key) else clients
        return Check(name=name, state="warn", found=f"{text} answers, but {held}", advice=advice)
    if not has_path(url) or answer.status == NOT_FOUND:
        result = f"{text} answers" + (", but has no /models" if answer.status == NOT_FOUND else "")
        advice = "check the path of its URL; most servers expect /v1"
        return Check(name=name, state="warn", found=result, advice=advice)
    return Check(name=name, state="ok", found=f"{text} answers")
