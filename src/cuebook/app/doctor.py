"""`cuebook doctor`: check the configuration and its dependencies without changing anything, and advise how to fix them.

Each check is a generator of results. An error that it raises is a failure of the check.
"""

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from cuebook.app.prompts.folder import PromptFolder
from cuebook.app.setup.compose import (
    LOCAL_EMBEDDERS,
    check_key_file,
    check_numpy,
    database_of,
    embedder_of,
    experience_files,
    experience_model_of,
    key_file_of,
    key_of,
    models_of,
)
from cuebook.app.setup.database import check_database
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
from cuebook.app.setup.project_templates import builtin_prompts
from cuebook.config import SERVERS, Config, ConfigSections, has_path
from cuebook.engine.core.instructions import render_instruction
from cuebook.engine.core.prompt_reading import resolved_of
from cuebook.engine.core.services import read_zone
from cuebook.engine.jobs.compaction import VALUES
from cuebook.errors import CuebookError, InvalidInput
from cuebook.interfaces import RelayRequest
from cuebook.interfaces.prompts import Family
from cuebook.memory.rolling import RELAY, choose
from cuebook.prompts.digest import digest_of
from cuebook.prompts.names import check_project, instructions
from cuebook.providers.clock_and_ids import database_key
from cuebook.providers.llama import LlamaModel
from cuebook.providers.openai import HttpUpstream
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Version
from cuebook.storage.database.sqlite_files import MEMORY, schema_version
from cuebook.storage.database.statements import VERSION
from cuebook.storage.store import Store, open_store

State = Literal["ok", "warn", "fail"]

#: Maximum number of problems listed.
NAMED: Final = 3
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


class Check(Struct, frozen=True):
    """The result of one check. `advice` tells how to fix a warning or a failure."""

    name: str
    state: State
    found: str
    advice: str = ""


async def examine(
    where: str | Path | None = None, *, arguments: Mapping[str, Any] | None = None
) -> AsyncIterator[Check]:
    """Yield the result of every check, in order of dependency. Creates and migrates nothing."""
    yield Check("python", "ok", ".".join(map(str, sys.version_info[:3])))
    yield _sqlite()
    try:
        config = load_config(where, arguments=arguments)
        read_zone(config.settings.memory.time_zone, "memory.time_zone")
    except InvalidInput as error:
        yield Check("settings", "fail", str(error), "fix this first; the other checks were skipped")
        return
    if not is_project(config):
        advice = "create a project with `cuebook init`, or choose one with -C DIR"
        yield Check("project", "fail", no_project(config), advice)
    origins = {origin for origin in config.origins.values() if not origin.startswith("environment")}
    yield Check("settings", "ok", ", ".join(sorted(origins)) or "defaults; `cuebook init` creates a file")
    states: dict[str, State] = {}
    for name, check, needs, advice in _CHECKS:
        if all(states[each] == "ok" for each in needs):
            try:
                async for result in check(config):
                    states[name] = result.state
                    yield result
            except CuebookError as error:
                states[name] = "fail"
                yield Check(name, "fail", str(error), advice)


# ---- the machine ----------------------------------------------------------------------------------------------------


def _sqlite() -> Check:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE:
        return Check("sqlite", "fail", version, "use a Python built with SQLite 3.35 or newer")
    try:
        with closing(sqlite3.connect(MEMORY)) as connection:
            connection.execute("CREATE VIRTUAL TABLE looked USING fts5(text)")
    except sqlite3.OperationalError as error:
        found = f"{version} without full-text search ({error})"
        return Check("sqlite", "fail", found, "use a Python whose SQLite has FTS5")
    return Check("sqlite", "ok", f"{version} with full-text search")


# ---- the project ----------------------------------------------------------------------------------------------------


async def _budget(config: Config) -> AsyncIterator[Check]:
    budget = config.settings.budget
    room = budget.context - budget.system - budget.reply
    found = f"{budget.context - budget.reply:,} tokens for a prompt"
    if room <= 0:
        found += f", but none left for posts: budget.system is {budget.system:,}, budget.reply {budget.reply:,}"
        yield Check("budget", "warn", found, "raise budget.context, or lower budget.system or budget.reply")
    else:
        yield Check("budget", "ok", f"{found}, {min(room, budget.max_short_term):,} of them for posts")


async def _personas(config: Config) -> AsyncIterator[Check]:
    personas, default = load_personas(config)
    odd = [f"{file.name}: {each}" for file in look_at_personas(config).files for each in file.odd]
    if odd:
        more = f" and {len(odd) - 1} more" * (len(odd) > 1)
        yield Check("personas", "warn", odd[0] + more, "list all with `cuebook persona check`")
    else:
        yield Check("personas", "ok", f"{', '.join(sorted(personas))}; default {default}")


async def _presets(config: Config) -> AsyncIterator[Check]:
    compaction = load_compaction(config)
    load_profiles(config)
    found = f"profiles {', '.join(sorted(compaction.profiles))}; default {compaction.default}"
    if (proxied := choose(compaction, RELAY).id) != compaction.default:
        found += f", {proxied} for clients of the proxy that resend their history"
    yield Check("presets", "ok", found)


async def _experiences(config: Config) -> AsyncIterator[Check]:
    """Check the experience files: which are invalid, and which name no persona or role."""
    settings, by = config.settings.experience, None
    if settings.selection == "off":
        yield Check("experiences", "ok", "off")
        return
    files = experience_files(config)
    shelf = files.read(quiet=True)
    problems = [*shelf.problems, *files.unread()]
    models = None
    with suppress(InvalidInput):  # reported by the model's check
        models = models_of(config)
    if models is not None:
        model, work_model, upstream = models
        by = experience_model_of(config, model=model, work_model=work_model, upstream=upstream)
    with suppress(InvalidInput):  # reported by the personas' check
        problems += strangers(shelf, [name for one in load_personas(config)[0].values() for name in (one.id, one.role)])
    if settings.folder != ConfigSections().experience.folder and not (Path(config.folder) / settings.folder).is_dir():
        problems.append(f"folder not found: {settings.folder!r}")
    if problems:
        advice = "fix it; `cuebook experience list` shows all problems"
        yield Check("experiences", "warn", "; ".join(problems[:NAMED]), advice)
    else:
        chosen = f", selected by {by.name}" if by else ""
        yield Check("experiences", "ok", f"{len(shelf.kept):,} in {settings.folder}{chosen}")


async def _logs(config: Config) -> AsyncIterator[Check]:
    """Check that the folder of the prompt logs is writable, if one is set."""
    name = config.settings.logs.prompts
    if name:
        place = _existing(Path(config.folder, name))
        if _is_writable(place):
            yield Check("logs", "ok", f"each prompt is written to {name}")
        else:
            advice = "prompts are not logged; change its permissions, or logs.prompts"
            yield Check("logs", "fail", f"{str(place)!r} is not a writable folder", advice)


# ---- the database ---------------------------------------------------------------------------------------------------


def _database(config: Config) -> Path | None:
    """Return the database file, None for a database in memory or on a server."""
    url = database_of(config)
    return None if url == MEMORY or url.startswith(SERVERS) else Path(url)


def _stored_at(config: Config) -> str:
    """Return the database to read: a database in memory if the file does not exist yet."""
    file = _database(config)
    if file is None:
        return database_of(config)
    return str(file) if file.exists() and file.stat().st_size else MEMORY


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


def _is_writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


async def _folder(config: Config) -> AsyncIterator[Check]:
    file = _database(config)
    if file is None:
        return
    folder = _existing(file.parent)
    if not _is_writable(folder):
        yield Check("folder", "fail", f"{folder} is not writable", "change its permissions, or store.url")
        return
    system = _file_system(folder.resolve())
    if system in NETWORK:
        advice = "SQLite is not safe on a network file system with several machines; put store.url on a local disk"
        yield Check("folder", "warn", f"{folder} is on {system}", advice)
    else:
        yield Check("folder", "ok", f"{folder} is writable")
    free = shutil.disk_usage(folder).free
    state: State = "fail" if free < NO_BYTES else "warn" if free < LOW_BYTES else "ok"
    yield Check("disk", state, f"{free / (1 << 30):,.1f} GB free", "" if state == "ok" else "free disk space")


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


async def _key(config: Config) -> AsyncIterator[Check]:
    """Check the key file without creating it."""
    file = key_file_of(config)
    if database_of(config).startswith(SERVERS):
        await asyncio.to_thread(key_of, config)
        yield Check("key", "ok", f"{file} is valid" if file else "in the database, encrypted with CUEBOOK_KEY_SECRET")
    elif file is None or not file.exists():
        await asyncio.to_thread(check_key_file, config)
        yield Check("key", "ok", "kept in memory" if file is None else f"{file} does not exist yet")
    else:
        database_key(file)
        yield Check("key", "ok", f"{file} is valid")


async def _store(config: Config) -> AsyncIterator[Check]:
    file, database = _database(config), _stored_at(config)
    if file is not None and database == MEMORY:
        yield Check("store", "ok", f"{file} does not exist yet; the first conversation creates it")
        return
    schema = _schema(file) if file is not None else VERSION
    if schema is not None and 1 <= schema < VERSION:
        advice = f"back it up; the next command migrates it to {VERSION}"
        yield Check("store", "warn", f"{file} has schema {schema}", advice)
        return
    if database.startswith(SERVERS):
        found = await asyncio.to_thread(check_database, config)
        status: State = "fail" if found.faults else "warn" if found.notes else "ok"
        yield Check("server", status, "; ".join(found.faults or found.lines()))
        if found.faults:
            return
    store = await asyncio.to_thread(open_store, database)
    try:
        state = await store.check(whole=True)
    finally:
        await store.aclose()
    if state["integrity"] != "ok":
        advice = "stop all processes that use it, and restore a backup"
        yield Check("store", "fail", f"{file or MEMORY} is damaged: {state['integrity']}", advice)
        return
    if cell := state.get("damaged"):
        what = f"{file or MEMORY} is damaged: {cell} has another type, or is not UTF-8"
        yield Check("store", "fail", what, "restore a backup, or correct the value")
        return
    counts = f"{state['conversations']:,} conversations, {state['posts']:,} posts"
    yield Check("store", "ok", f"{counts}, schema {schema or VERSION}, intact")


def _schema(file: Path) -> int | None:
    """Return a database's schema version without changing the file, None if it cannot be read."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return schema_version(connection)
    except sqlite3.Error:
        return None


# ---- prompts --------------------------------------------------------------------------------------------------------


async def _prompts(config: Config) -> AsyncIterator[Check]:
    """Check a project's prompts, in its database and in its files: those of background jobs must be renderable."""
    builtin, folder = builtin_prompts(), PromptFolder(Path(config.folder) / config.settings.prompts.folder)
    contents = await asyncio.to_thread(folder.read, lenient=True)
    files = {each.version.slug: each.version for each in contents.prompts if each.version.place[1] == MAIN}
    store: Store = await asyncio.to_thread(open_store, _stored_at(config))
    try:
        project = check_project(config.settings.prompts.project, where="prompts.project")
        stored = set(await store.prompts.every(Scope()))
        known = with_own(config, stored | set(files_of(config)) | files.keys())
        load_presets(config, known)
        compaction = load_compaction(config)
        check_instructions(config, compaction, known | builtin.keys())
        slugs = sorted({
            next(name for name in instructions(profile.prompt_key, project) if name in known or name in builtin)
            for profile in compaction.profiles.values()
        })  # fmt: skip
        unsaid = [each for slug in slugs for each in await _unsaid(store, slug, files)]
        versions = [each for slug in sorted(stored) for each in await store.prompts.versions(Scope(), slug)]
        altered = [each.source.removeprefix("prompt:") for each in versions if digest_of(each) != each.digest]
    finally:
        await store.aclose()
    if altered:
        more = f" and {len(altered) - NAMED:,} more" if len(altered) > NAMED else ""
        found = f"{', '.join(altered[:NAMED])}{more}: the text does not match its digest; the database was altered"
        yield Check("prompts", "fail", found, "restore it from its file, an export or a database backup")
    elif contents.invalid:
        advice = "fix it, then run `cuebook prompt push`; until then no edited prompt file is loaded"
        yield Check("prompts", "warn", "; ".join([why for _, why in contents.invalid][:NAMED]), advice)
    elif unsaid:
        found = "; ".join(dict.fromkeys(unsaid))
        yield Check("prompts", "warn", found, "fix it; until then the built-in text is used")
    else:
        yield Check("prompts", "ok", f"background jobs use {', '.join(slugs)}")


async def _unsaid(store: Store, slug: str, files: Mapping[str, Version]) -> list[str]:
    """Return why an instruction cannot be rendered: the stored one, and the one in its file."""
    families = await store.prompts.families(Scope(), [slug])
    fresh = families | {name: Family(slug=each.slug, branches=(), active=(each,)) for name, each in files.items()}
    stored = families[slug].version(MAIN) if slug in families else None
    reasons: list[str] = []
    for version, parents in ((stored, families), (files.get(slug), fresh)):
        if version is not None:
            try:
                render_instruction(await resolved_of(store, version, parents), VALUES)
            except CuebookError as error:
                reasons.append(f"{slug}: {error}")
    return reasons


# ---- models ---------------------------------------------------------------------------------------------------------


async def _models(config: Config) -> AsyncIterator[Check]:
    model, upstream = config.settings.model, config.settings.upstream
    try:
        answers, *_ = models_of(config)
        if isinstance(answers, LlamaModel):
            found = f"{answers.name}, here, by llama.cpp: {answers.context:,} tokens with its answer"
            yield Check("model", "ok", found)
    except InvalidInput as error:
        yield Check((error.where or "model").partition(".")[0], "fail", str(error))
    if model.provider == "none" and not upstream.url:
        advice = "set [model] in cuebook.toml, or start `cuebook serve --upstream URL`"
        yield Check("model", "warn", "none: answers quote memory and say so", advice)
    if model.provider == "openai" and model.name:
        yield await _reach("model", model.base_url, model.api_key_env, f"{model.name} at ")
    if upstream.url:
        yield await _reach("upstream", upstream.url, upstream.api_key_env)


async def _embedder(config: Config) -> AsyncIterator[Check]:
    """Check the embedder by embedding a word, which loads the weights or calls the server."""
    settings = config.settings.embedder
    embedder = embedder_of(config)
    if embedder is None:
        names = " or ".join(f'"{each.provider}"' for each in LOCAL_EMBEDDERS if not each.missing())
        advice = f"; to improve recall, set embedder.provider = {names}, whose packages are installed" if names else ""
        yield Check("embedder", "ok", f"none: recall uses full-text search only{advice}")
        return
    try:
        check_numpy(embedder)
        async with asyncio.timeout(PATIENCE_S + settings.timeout_s):
            vectors = await embedder.embed(["hello"])
    except TimeoutError:
        found = f"{settings.name or settings.provider} did not answer within {PATIENCE_S + settings.timeout_s:g} s"
        yield Check("embedder", "fail", found, "until it does, recall uses full-text search only")
        return
    finally:
        await embedder.aclose()
    knows = ", ".join(sorted(embedder.languages)) or "any"
    yield Check("embedder", "ok", f"{embedder.name}: {len(vectors[0]) // 4} dimensions, languages: {knows}")


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
        return Check(name, "fail", f"{text} did not answer within {PATIENCE_S:g} s", "check that it is running")
    except CuebookError as error:
        return Check(name, "fail", str(error), "check the address")
    if answer.status in (401, 403):
        has_key = bool(key and os.environ.get(key))
        refusal = f"the key in {key} is refused" if has_key else f"no key in {key or 'api_key_env'}"
        advice = f"set {key or 'api_key_env'}"
        if name == "upstream":
            clients = "requests that bring their own key may still work"
            advice = (
                f"set another key in {key}, or upstream.forward_auth = true: then {clients}" if has_key else clients
            )
        return Check(name, "warn", f"{text} answers, but {refusal}", advice)
    if not has_path(url) or answer.status == NOT_FOUND:
        found = f"{text} answers" + (", but has no /models" if answer.status == NOT_FOUND else "")
        return Check(name, "warn", found, "check the path of its URL; most servers expect /v1")
    return Check(name, "ok", f"{text} answers")


#: The checks in order: the name, the function, the checks that it needs, and the advice if it raises an error.
_CHECKS: Final[Sequence[tuple[str, Callable[[Config], AsyncIterator[Check]], tuple[str, ...], str]]] = (
    ("budget", _budget, (), ""),
    ("personas", _personas, (), "fix the file; running processes keep its previous content"),
    ("presets", _presets, (), ""),
    ("experiences", _experiences, (), ""),
    ("logs", _logs, (), ""),
    ("folder", _folder, (), ""),
    ("key", _key, (), ""),
    ("store", _store, (), ""),
    ("prompts", _prompts, ("presets", "store"), ""),
    ("models", _models, (), ""),
    ("embedder", _embedder, (), "until it works, recall uses full-text search only"),
)
