"""Load a project's configuration: cuebook.toml, environment, presets and personas. Errors name file and position."""

import ast
import inspect
import io
import os
import sys
import tokenize
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from cuebook.app.files import decode, read_bytes
from cuebook.app.setup.persona_files import folder_of, own_methods, read_folder
from cuebook.config import SERVERS, Config, ConfigSections, StoreConfig, build, without_secret
from cuebook.errors import InvalidInput
from cuebook.memory.rolling import SHIPPED, Compaction, override, read_compaction, with_profile
from cuebook.prompts import strict_json
from cuebook.prompts.names import PROJECTS, instructions
from cuebook.prompts.presets import Presets, read_presets
from cuebook.records.answer import Wire
from cuebook.records.persona import Persona
from cuebook.records.redaction import spans
from cuebook.signals.profiles import SHIPPED as SENTIMENT
from cuebook.signals.profiles import Profiles, read_profiles

#: The persona used if none is defined: it has no system text and leaves a client's prompt unchanged.
PLAIN = Persona(id="assistant", name="Assistant")
FILE = "cuebook.toml"
#: The URL of a database in memory.
MEMORY = ":memory:"


def load_config(
    path: str | Path | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Return the configuration from a project's file (or folder), the environment and arguments.

    Without a path, use cuebook.toml in the working directory, or the defaults if there is none.
    """
    environment = os.environ if environment is None else environment
    file = Path(path) if path is not None else Path(FILE)
    if file.is_dir():
        file /= FILE
    if not file.exists():
        if path is not None and not (file.parent / StoreConfig().url).exists():
            msg = f"File not found: {str(file)!r}. Create a project with `cuebook init`."
            raise InvalidInput(msg, where=str(file))
        return build(environment=environment, arguments=arguments, folder=str(file.parent))
    document = _read(file, "TOML", tomllib.loads)
    return build(
        file=document, file_name=file.name, environment=environment, arguments=arguments, folder=str(file.parent)
    )


def load_server_config(path: Path | None = None, *, arguments: Mapping[str, Any] | None = None) -> Config:
    """Return the configuration of a server, which needs no project: `path` names a folder or a settings file.

    Without a path, a project in the working directory or a named database, use the user's data directory.
    """
    folder = path.parent if path is not None and path.name == FILE and path.parent.is_dir() else None
    if path is not None and (folder is None or path.exists()):
        return load_config(path, arguments=arguments)
    if folder is None:
        config = load_config(arguments=arguments)
        if (Path(FILE)).exists() or Path(StoreConfig().url).exists() or config.sets("store.url"):
            return config
        folder = user_folder()
    if (folder / FILE).exists():
        return load_config(folder, arguments=arguments)
    return build(environment=os.environ, arguments=arguments, folder=str(folder))


def user_folder() -> Path:
    """Return the folder of this user's data, in which a server without a project stores its database."""
    from platformdirs import user_data_path

    return user_data_path("cuebook", appauthor=False)


def data_place(config: Config) -> str:
    """Return where the data is: the database's absolute path, or its URL without the password."""
    url = config.settings.store.url
    return (
        without_secret(url) if url.startswith(SERVERS) or url == MEMORY else str((Path(config.folder) / url).resolve())
    )


def is_project(config: Config) -> bool:
    """Return whether there is a project to open: a settings file, a setting, or a database at its default path."""
    folder = Path(config.folder)
    return bool(config.origins) or (folder / FILE).exists() or (folder / StoreConfig().url).exists()


def no_project(config: Config) -> str:
    """Return the message that there is no project."""
    return f"No {FILE} and no database in {str(Path(config.folder).resolve())!r}"


def load_compaction(config: Config) -> Compaction:
    """Load the compaction profiles of the presets file; the built-in ones if there is no file."""
    document, name, compaction = _presets(config), config.settings.memory.presets, SHIPPED
    if document is not None:
        compaction = read_compaction(document, file=name)
    elif "memory.presets" in config.origins:
        msg = f"memory.presets: file not found: {str(Path(config.folder) / name)!r}."
        raise InvalidInput(msg, where="memory.presets")
    profile = config.settings.memory.profile
    if profile:
        compaction = with_profile(compaction, profile, where="memory.profile")
    return override(compaction, config.compaction_env)


def load_presets(config: Config, prompts: Collection[str]) -> Presets:
    """Load the prompt profiles of the presets file, none without a file. `prompts` are the ids add-ons may use."""
    document = _presets(config)
    return read_presets({} if document is None else document, file=config.settings.memory.presets, prompts=prompts)


def modes_of(config: Config) -> set[str]:
    """Return the modes that the presets file configures, for add-ons or for compaction."""
    modes = set(load_compaction(config).by_mode)
    if (document := _presets(config)) is not None:
        named = {key for each in document.get("presets") or () for key in each.get("addonPromptKeys") or ()}
        presets = load_presets(config, named)
        modes.update(presets.routing.default_preset_by_mode, *(rule.modes for rule in presets.rules))
    return modes


def check_instructions(config: Config, compaction: Compaction, prompts: Collection[str]) -> None:
    """Check that every compaction profile's `promptKey` is in `prompts`. Raises InvalidInput."""
    for profile in compaction.profiles.values():
        if "MEMORY_COMPACTION_PROMPT_KEY" in config.compaction_env:
            place = where = "environment MEMORY_COMPACTION_PROMPT_KEY"
        else:
            where = f"memoryCompaction.profiles.{profile.id}.promptKey"
            place = f"{config.settings.memory.presets}: {where}"
        try:
            names = instructions(profile.prompt_key, config.settings.prompts.project)
        except InvalidInput as error:
            msg = f"{place}: {error}"
            raise InvalidInput(msg, where=where) from error
        if not any(name in prompts for name in names):
            text = names[1] if len(names) > 1 else names[0]
            msg = f"{place}: unknown prompt {profile.prompt_key!r}. Create prompts/{text}.md, or omit the key."
            raise InvalidInput(msg, where=where)


def with_own(config: Config, prompts: Collection[str]) -> set[str]:
    """Return the valid prompt ids: those of prompts, and those that the project's own prompts override."""
    own = f"{PROJECTS}{config.settings.prompts.project}/"
    return {*prompts, *(slug.removeprefix(own) for slug in prompts if slug.startswith(own))}


def files_of(config: Config) -> list[str]:
    """Return the ids of the project's prompt files."""
    folder = Path(config.folder) / config.settings.prompts.folder
    return [file.relative_to(folder).with_suffix("").as_posix() for file in sorted(folder.rglob("*.md"))]


def load_profiles(config: Config, methods: tuple[str, ...] = ()) -> Profiles:
    """Load the sentiment tracking profiles of the presets file; the built-in ones if there is no file."""
    document, name = _presets(config), config.settings.memory.presets
    return SENTIMENT if document is None else read_profiles(document, file=name, methods=methods or own_methods())


def load_personas(config: Config, methods: tuple[str, ...] = ()) -> tuple[dict[str, Persona], str]:
    """Load the personas of a project and the id of the default one. `methods` are the available sentiment methods.

    Raises InvalidInput naming the first invalid file, the path in it, and the fix.
    """
    personas: dict[str, Persona] = {}
    for file in read_folder(config, load_profiles(config, methods), methods):
        if file.faults or file.persona is None:
            more = f" ({len(file.faults) - 1} more; list them with `cuebook persona check`)" * (len(file.faults) > 1)
            msg = f"{file.name}: {file.faults[0]}{more}"
            raise InvalidInput(msg, where=file.faults[0].partition(": ")[0])
        personas[file.persona.id] = file.persona
    default = config.settings.persona.default
    if default and default not in personas:
        known = ", ".join(sorted(personas)) or "none"
        msg = f"persona.default: unknown persona {default!r} in {str(folder_of(config))!r}. Available: {known}."
        raise InvalidInput(msg, where="persona.default")
    personas.setdefault(PLAIN.id, PLAIN)
    return personas, default or PLAIN.id


def _presets(config: Config) -> Any | None:
    """Return the content of the presets file, None without a file."""
    file = Path(config.folder) / config.settings.memory.presets
    return _read(file, "JSON", lambda text: strict_json.parse(text, where=file.name)) if file.exists() else None


def _read(file: Path, kind: str, parse: Any) -> Any:
    text = decode(read_bytes(file), file.name)
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        msg = f"{file.name}: invalid {kind} ({error})"
        raise InvalidInput(msg, where=file.name) from error


# ---- the effective settings ------------------------------------------------------------------------------------------


def setting_rows(config: Config) -> list[Wire]:
    """Return every setting by `section.key` with `value` and `source`, then the environment's compaction settings."""
    rows = [
        _row(f"{section}.{name}", value, config.origins.get(f"{section}.{name}", "default"))
        for section, values in msgspec.to_builtins(config.settings).items()
        for name, value in values.items()
    ]
    return rows + [_row(name, value, f"environment {name}") for name, value in sorted(config.compaction_env.items())]


@cache
def setting_meanings() -> Mapping[str, str]:
    """Return the meaning of each setting by `section.key`: the comment beside its field in config.py, or above it."""
    source = inspect.getsource(sys.modules[ConfigSections.__module__])
    comments = {
        token.start[0]: token.string.removeprefix("#").removeprefix(":").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    sections = {kind.__name__: name for name, kind in get_type_hints(ConfigSections).items()}
    meanings = {}
    classes = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name in sections]
    for kind in classes:
        for field in kind.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                first, last = field.lineno, field.end_lineno or field.lineno
                while first - 1 in comments and source.splitlines()[first - 2].lstrip().startswith("#:"):
                    first -= 1
                said = (comments[number] for number in range(first, last + 1) if number in comments)
                meanings[f"{sections[kind.name]}.{field.target.id}"] = " ".join(said)
    return meanings


def shown_setting(value: Any) -> str:
    """Return a value as text for a table."""
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _row(name: str, value: Any, source: str) -> Wire:
    return {"name": name, "value": _clean(value) if isinstance(value, str) else value, "source": source}


def _clean(text: str) -> str:
    """Return a text without the user part of URLs and without secrets."""
    for start, end, _ in reversed(list(spans(text))):
        text = text[:start] + "***" + text[end:]
    return without_secret(text)
