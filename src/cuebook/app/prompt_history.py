"""What a folder's registry knows beyond its files: older versions, where branches began, labels, what is active."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.prompt_folder import PromptFolder
from cuebook.errors import BackendError, InvalidInput
from cuebook.ports.prompts import Family
from cuebook.prompts import registry as registries
from cuebook.prompts.files import read_file
from cuebook.prompts.registry import Entry, Registry
from cuebook.records.prompt import MAIN, Version

Place = tuple[str, str]

#: Where a branch began, `main:3`, in the entry of its first version.
ORIGIN = "branched_from"


class Pointers(Struct, frozen=True, kw_only=True):
    """Labels of a branch by version, and the version that is active; 0 for the newest."""

    place: Place
    labels: tuple[tuple[str, int], ...] = ()
    active: int = 0


def history_of(
    shelf: PromptFolder, registry: Registry | None, place: Place
) -> tuple[list[Version], tuple[str, int] | None]:
    """Give the older versions of a branch, oldest first, and where it began. Blocks.

    None of them where the registry does not list all, or one's text is not the one its place is named after.
    """
    entries = _entries(registry, place)
    origin = _origin(entries[0]) if entries else None
    numbers = [entry.number for entry in entries]
    if not numbers or numbers[0] != 1 or any(after != before + 1 for before, after in pairwise(numbers)):
        return [], origin
    versions = []
    for entry in (each for each in entries if not each.head):
        try:
            text = shelf.bytes_of(entry.path)
            version = read_file(text, path=entry.path)
        except (InvalidInput, BackendError):
            return [], origin
        if not registries.is_object(entry.path, text) or (version.slug, version.branch) != place:
            return [], origin
        versions.append(version)
    return versions, origin


def pointers_of(registry: Registry | None, place: Place) -> Pointers:
    """Give what points at a branch's versions."""
    entries = _entries(registry, place)
    labels = tuple((name, entry.number) for entry in entries for name in entry.labels)
    active = next((entry.number for entry in entries if entry.active), 0)
    return Pointers(place=place, labels=labels, active=active)


def _entries(registry: Registry | None, place: Place) -> list[Entry]:
    """Give a branch's entries, oldest first; those of E's forms have no numbers and no history."""
    found = [each for each in registry.entries if (each.id, each.branch) == place] if registry else []
    return sorted((each for each in found if each.number), key=lambda each: each.number)


def _origin(first: Entry) -> tuple[str, int] | None:
    branch, _, number = str(first.extra.get(ORIGIN, "")).partition(":")
    return (branch, int(number)) if branch and number.isdecimal() else None


def registry_of(
    versions: Sequence[Version],
    families: Mapping[str, Family],
    paths: Mapping[Place, str],
    others: Sequence[Entry] = (),
) -> dict[str, str]:
    """Give all files of these versions by their place, the registry among them; `others` stay in it as they are."""
    places = {(slug, branch.name): branch for slug, family in families.items() for branch in family.branches}
    files = registries.layout(
        versions,
        {place: branch.head for place, branch in places.items()},
        {slug: family.labels for slug, family in families.items()},
        active={place: branch.active for place, branch in places.items()},
        paths=paths,
    )
    origins = {(each.slug, each.branch): each.branched_from for each in versions if each.branched_from}
    entries = [
        replace(entry, extra={**entry.extra, ORIGIN: origins[entry.id, entry.branch]})
        if entry.number == 1 and (entry.id, entry.branch) in origins and entry.branch != MAIN
        else entry
        for entry in registries.read(files[registries.FILE]).entries
    ]
    return files | {registries.FILE: registries.render([*entries, *others])}
