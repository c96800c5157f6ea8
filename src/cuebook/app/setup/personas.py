"""List, show and check personas, and create one from the gallery of built-in personas."""

import json
import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.files import write_whole
from cuebook.app.setup.persona_files import (
    ENDINGS,
    PersonaFile,
    folder_of,
    keys_of,
    means_persona,
    read_file,
    read_folder,
    settle_ids,
)
from cuebook.app.setup.project_files import PLAIN, files_of, load_profiles, with_own
from cuebook.app.setup.project_templates import builtin_prompts
from cuebook.config import Config
from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.prompts.names import DEFAULT, candidates, instructions
from cuebook.records.answer import Answer, as_answer
from cuebook.records.persona import Metaprompt, Persona, render_tracking
from cuebook.signals.metaprompts import metaprompts_of
from cuebook.signals.profiles import SHIPPED, Profiles, profile_of, tracking_of

S = TypeVar("S", bound="PersonaShown")

_GALLERY: Final = Path(__file__).with_name("project") / "personas"
#: Pattern of a persona's file name.
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")


class TriggerShown(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The trigger of a metaprompt."""

    type: str
    interval_turns: int = 0
    event_name: str = ""


class MetapromptShown(Struct, frozen=True, kw_only=True, rename="camel"):
    """A metaprompt of a persona, its own or from its tracking's presets. `promptKey` is "" for an inline text."""

    id: str
    own: bool
    description: str
    trigger: TriggerShown
    prompt_key: str


class PersonaShown(Answer, frozen=True, kw_only=True):
    """A persona. `sentimentTracking` is the one of the given mode, `profile` the preset it comes from, if any."""

    id: str
    name: str
    version: str
    role: str
    description: str
    default: bool
    prompts: dict[str, str]
    sentiment_tracking: dict[str, Any]
    profile: str
    meta_prompts: list[MetapromptShown]


class PersonaWhole(PersonaShown, frozen=True, kw_only=True):
    """A persona with its own system text, used if there is no managed prompt for it."""

    base_system_prompt: str


def describe_persona(
    kind: type[S], persona: Persona, *, default: str, profiles: Profiles, mode: str | None = None
) -> S:
    """Return a persona for display, as a PersonaWhole or without its text."""
    tracking = tracking_of(persona, mode, profiles)
    own = {each.id for each in persona.metaprompts}
    return as_answer(
        kind,
        persona,
        default=persona.id == default,
        prompts=dict(persona.chain),
        sentiment_tracking=render_tracking(tracking),
        profile=profile_of(persona, mode, profiles),
        meta_prompts=[_metaprompt(each, own=each.id in own) for each in metaprompts_of(persona.metaprompts, tracking)],
    )


def _metaprompt(metaprompt: Metaprompt, *, own: bool) -> MetapromptShown:
    when = metaprompt.trigger
    trigger = TriggerShown(type=when.type, interval_turns=when.interval_turns or 0, event_name=when.event or "")
    return as_answer(MetapromptShown, metaprompt, own=own, trigger=trigger, prompt_key=metaprompt.key)


# ---- of a project's files -------------------------------------------------------------------------------------------


class CheckedPersonas(Struct, frozen=True, kw_only=True):
    """The checked persona files of a project, and the settings that they depend on."""

    files: Sequence[PersonaFile]
    profiles: Profiles
    default: str

    def describe(self, persona: Persona, mode: str | None) -> PersonaWhole:
        """Return a persona with all fields for display."""
        return describe_persona(PersonaWhole, persona, default=self.default, profiles=self.profiles, mode=mode)

    def find(self, name: str) -> tuple[Persona, str]:
        """Return a persona and its file ("" for none). Raises NotFound, and InvalidInput if its file has errors."""
        for file in self.files:
            if file.persona is not None and file.persona.id == name:
                if file.whole is None:
                    msg = f"{file.name}: {file.faults[0]}"
                    raise InvalidInput(msg, where=file.name)
                return file.persona, file.name
        if name == PLAIN.id:
            return PLAIN, ""
        known = ", ".join(sorted({PLAIN.id, *(each.whole.id for each in self.files if each.whole)}))
        msg = f"Unknown persona {name!r}. Available: {known}."
        raise NotFound(msg)


def look_at_personas(config: Config, files: Sequence[Path] = ()) -> CheckedPersonas:
    """Check a project's persona files, or the given ones, and collect all errors. Raises InvalidInput."""
    profiles, default = load_profiles(config), config.settings.persona.default or PLAIN.id
    if not files:
        known, project = with_own(config, files_of(config)) | builtin_prompts().keys(), config.settings.prompts.project
        found = [_with_prompts(each, known, project) for each in read_folder(config, profiles)]
        return CheckedPersonas(files=found, profiles=profiles, default=default)
    for file in files:
        if not file.exists():
            msg = f"File not found: {str(file)!r}. Pass a file such as {config.settings.persona.folder}/helper.json."
            raise InvalidInput(msg, where=str(file))
        if not means_persona(file.name):
            msg = f"Not a persona file: {str(file)!r}. Its name must end with {', '.join(ENDINGS)}."
            raise InvalidInput(msg, where=str(file))
    persona_files = settle_ids([read_file(file, name=str(file), profiles=profiles) for file in files])
    return CheckedPersonas(files=persona_files, profiles=profiles, default=default)


def _with_prompts(file: PersonaFile, known: Collection[str], project: str) -> PersonaFile:
    """Return a file with warnings for unknown prompt ids; `known` are the project's and the built-in ones."""
    if file.whole is None:
        return file
    odd = list(file.odd)
    for path, slug in keys_of(file.whole).items():
        names = candidates(slug, project) if path.startswith("prompts.") else instructions(slug, project)
        if not any(name in known for name in names):
            near = get_close_matches(slug, [name.removeprefix(DEFAULT) for name in sorted(known)], n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"write it as prompts/{DEFAULT}{slug}.md"
            odd.append(f"{path}: unknown prompt {slug!r}; {meant}")
    return replace(file, odd=tuple(odd))


# ---- the gallery ----------------------------------------------------------------------------------------------------


def gallery() -> dict[str, PersonaFile]:
    """Return the built-in personas by id."""
    files = sorted(file for file in _GALLERY.iterdir() if means_persona(file.name))
    persona_files = [read_file(file, name=file.name, profiles=SHIPPED) for file in files]
    return {each.persona.id: each for each in persona_files if each.persona is not None}


def new_persona(config: Config, name: str, *, like: str) -> Path:
    """Write the file of a new persona as a copy of a built-in one, and return its path.

    Raises InvalidInput for an invalid name, NotFound for an unknown `like`, Conflict if the id is in use.
    """
    if not _FILE_NAME.fullmatch(name):
        msg = f"Invalid persona id {name!r}. Use at most 80 letters, digits, '-', '_' and '.'."
        raise InvalidInput(msg, where="id")
    models = gallery()
    if like not in models:
        msg = f"Unknown built-in persona {like!r}. Available: {', '.join(models)}."
        raise NotFound(msg)
    model = _GALLERY / models[like].name
    folder, ending = folder_of(config), model.suffix
    for each in look_at_personas(config).files:
        if (each.persona and each.persona.id == name) or Path(each.name).stem.lower() == name.lower():
            msg = f"Persona {name!r} already exists in {each.name}. Choose another id."
            raise Conflict(msg)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}{ending}"
    write_whole(file, [_renamed(model.read_text("utf-8"), name)], private=False)
    return file


def _renamed(text: str, name: str) -> str:
    """Return a definition with a new id and name; everything else, comments included, stays byte for byte."""
    title = json.dumps(re.sub(r"[-_.]+", " ", name).strip().title() or name)
    for field, value in (("id", json.dumps(name)), ("name", title)):
        line = re.compile(rf'(?m)^( *"?{field}"?: )[^,\n]*')
        text = line.sub(rf"\g<1>{value}", text, count=1)
    return text
