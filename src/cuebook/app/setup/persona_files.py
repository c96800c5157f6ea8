"""Parse and validate persona files: JSON, or YAML in which the type of the field decides, not YAML's own rules.

YAML parses `no` as false, `1.10` as 1.1 and a day as a date; here a text field gets the source text, and a number field
a number. Anchors, tags, duplicate keys and a second document are refused with their line.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from cuebook.app.files import decode, read_bytes
from cuebook.config import Config
from cuebook.errors import InvalidInput
from cuebook.prompts import strict_json, yaml_text
from cuebook.prompts.names import instructions
from cuebook.records.persona import Persona, read_persona, warnings_of
from cuebook.signals.profiles import Profiles, check_persona, tracking_of
from cuebook.signals.sentiment import analyzers_of, methods_of
from cuebook.validate import Fault

YAML: Final = (".yaml", ".yml")
ENDINGS: Final = (".json", *YAML)
#: Maximum file size in bytes; a persona's own text needs a thousandth of it.
MOST_BYTES: Final = 1 << 20

#: Numeric fields and boolean fields of a definition; every other value is a text.
_NUMBERS: Final = frozenset(
    "historyWindow frustrationThreshold satisfactionThreshold consecutiveTurnsForTrigger cooldownTurns cooldownMs "
    "intervalTurns temperature maxOutputTokens".split()
)
_FLAGS: Final = frozenset({"enabled"})
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,2})?")


class PersonaFile(Struct, frozen=True, kw_only=True):
    """A parsed persona file. `persona` is None if it is invalid."""

    name: str  # with the folder's name, as in errors
    persona: Persona | None = None
    faults: tuple[str, ...] = ()  # errors, each with the path in the file
    odd: tuple[str, ...] = ()  # warnings: values without effect, or likely mistakes

    @property
    def whole(self) -> Persona | None:
        """The persona if its file has no errors, else None."""
        return None if self.faults else self.persona


def own_methods() -> tuple[str, ...]:
    """Return the names of the built-in sentiment methods; `methods` below are these and the custom analyzers."""
    return methods_of(analyzers_of())


def folder_of(config: Config) -> Path:
    """Return the folder of a project's personas."""
    return Path(config.folder) / config.settings.persona.folder


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the persona files of a folder by name; none without a folder. Raises OSError."""
    if folder.exists():
        yield from (file for file in sorted(folder.iterdir()) if means_persona(file.name))


def means_persona(name: str) -> bool:
    """Return whether a file name is that of a persona, and not of an editor's temporary file."""
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def read_file(file: Path, *, name: str, profiles: Profiles, methods: tuple[str, ...] = ()) -> PersonaFile:
    """Parse a persona file and collect all errors; `name` is its name in errors. Raises nothing."""
    try:
        data = read_bytes(file, name, most=MOST_BYTES, advice="Move a long text to prompts/, as persona/ID.md.")
        document = document_of(data, name)
    except InvalidInput as error:
        return PersonaFile(name=name, faults=(str(error).removeprefix(f"{name}: "),))
    persona, faults = read_persona(document)
    if persona is None or not isinstance(document, Mapping):
        return PersonaFile(name=name, faults=tuple(map(str, faults)))
    if not faults:
        faults += [*check_persona(persona, profiles, methods or own_methods()), *_keys(persona)]
    tracking = tracking_of(persona, None, profiles)
    odd = [] if faults else warnings_of(document, persona, tracking)
    return PersonaFile(name=name, persona=persona, faults=tuple(map(str, faults)), odd=tuple(map(str, odd)))


def keys_of(persona: Persona) -> dict[str, str]:
    """Return the prompt ids that a persona refers to, by their paths in its file."""
    named = {f"prompts.{link}": slug for link, slug in persona.chain.items()}
    return named | {f"metaPrompts[{n}].promptKey": each.key for n, each in enumerate(persona.metaprompts) if each.key}


def _keys(persona: Persona) -> list[Fault]:
    """Return an error for each invalid prompt id."""
    faults = []
    for path, slug in keys_of(persona).items():
        try:
            instructions(slug)
        except InvalidInput as error:
            faults.append(Fault(path, str(error).removeprefix("slug: ")))
    return faults


def document_of(data: bytes, name: str) -> Any:
    """Parse a definition into plain values, by its file suffix. Raises InvalidInput naming file and error."""
    text = decode(data, name)
    if name.lower().endswith(YAML):
        nodes = yaml_text.load(text, where=name, what="the file")
        return {key: _value(key, node) for key, node in nodes.items()}
    return strict_json.parse(text, where=name)


def _value(key: str, node: yaml_text.Node) -> Any:
    """Return a YAML value converted to the type of its field."""
    if isinstance(node.value, dict):
        return {name: _value(name, child) for name, child in node.value.items()}
    if isinstance(node.value, list):
        return [_value(key, child) for child in node.value]
    if yaml_text.is_null(node):
        return None
    if node.quoted:
        return node.value
    if key in _NUMBERS and _NUMBER.fullmatch(node.value):
        return int(node.value) if node.value.lstrip("+-").isdecimal() else float(node.value)
    return yaml_text.plain(node) if key in _FLAGS else node.value


# ---- a whole folder -------------------------------------------------------------------------------------------------


def settle_ids(files: list[PersonaFile]) -> list[PersonaFile]:
    """Return the files without duplicate ids: the first file keeps the id, the others get an error."""
    used: dict[str, str] = {}
    persona_files = []
    for each in files:
        name = each.whole.id if each.whole else ""
        if name and name in used:
            fault = f"id: {name!r} is already used by {used[name]}; each persona needs its own"
            persona_files.append(PersonaFile(name=each.name, persona=each.persona, faults=(fault,)))
            continue
        if name:
            used[name] = each.name
        persona_files.append(each)
    return persona_files


def read_folder(config: Config, profiles: Profiles, methods: tuple[str, ...] = ()) -> list[PersonaFile]:
    """Parse all persona files of a project. Raises InvalidInput if the folder cannot be read."""
    folder = folder_of(config)
    try:
        files = list(files_in(folder))
    except OSError as error:
        msg = f"{str(folder)!r} cannot be read ({error.strerror}). Check the path and its permissions."
        raise InvalidInput(msg, where="persona.folder") from error
    return settle_ids([
        read_file(file, name=f"{config.settings.persona.folder}/{file.name}", profiles=profiles, methods=methods)
        for file in files
    ])  # fmt: skip
