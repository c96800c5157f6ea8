"""Restore the history in a folder's registry: older versions, branch origins, labels, active versions."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cuebook.app.prompts.folder import PromptFolder
from cuebook.errors import BackendError, InvalidInput
from cuebook.interfaces.prompts import Family, Write
from cuebook.prompts import registry as registries
from cuebook.prompts.digest import digest_of
from cuebook.prompts.files import read_file
from cuebook.prompts.registry import Registry, RegistryEntry
from cuebook.records.prompt import MAIN, BranchPlace, Version


def history_of(
    shelf: PromptFolder, registry: Registry | None, file: Version, active: Version | None, newest: int
) -> list[Write]:
    """Return the versions of a registry after the database's `newest` (0: no branch), the file's among them. Blocks.

    Returns only the file's if the registry is incomplete, an object's text does not match its name, or the registry's
    history differs from the database's. Then the file is simply one more version after the newest.
    """
    entries = _entries(registry, file.place)
    own = _own(entries)
    same = own is not None and own.digest == digest_of(file)
    origin = _origin(entries[0]) if entries else None
    versions = _past(shelf, entries, file, active, newest, same=same) or [(file, _time(own) if own and same else 0.0)]
    return [
        Write(version=replace(version, number=base + 1), base=base, begins=origin, at=at)
        for base, (version, at) in enumerate(versions, newest)
    ]


def _past(
    shelf: PromptFolder,
    entries: Sequence[RegistryEntry],
    file: Version,
    active: Version | None,
    newest: int,
    *,
    same: bool,
) -> list[tuple[Version, float]]:
    """Return the versions after the newest with their times (0: unknown), oldest first; none if they are unusable."""
    own = _own(entries)
    if not entries or [entry.number for entry in entries] != list(range(1, len(entries) + 1)):
        return []
    if active is not None:
        known = len(entries) > newest and entries[active.number - 1].digest == active.digest
        if not (same and known):
            return []
        entries = entries[newest:]
    elif not same and own is not entries[-1]:  # an edited file that replaced a restored version
        return []
    versions = []
    for entry in entries:
        version = file if entry is own else _object(shelf, entry, file.place)
        if version is None:
            return []
        versions.append((version, 0.0 if entry is own and not same else _time(entry)))
    return versions


def _own(entries: Sequence[RegistryEntry]) -> RegistryEntry | None:
    """Return the entry of a branch's working file: its active version."""
    return next((each for each in reversed(entries) if not each.path.startswith(registries.OBJECTS)), None)


def _object(shelf: PromptFolder, entry: RegistryEntry, place: BranchPlace) -> Version | None:
    """Return an older version; None if its object is missing or does not match its name."""
    try:
        text = shelf.bytes_of(entry.path)
        version = read_file(text, path=entry.path)
    except (InvalidInput, BackendError):
        return None
    return version if registries.is_object(entry.path, text) and version.place == place else None


def _time(entry: RegistryEntry) -> float:
    return registries.time_of(entry.last_updated)


def pointers_of(registry: Registry | None, file: Version, *, new: bool) -> tuple[list[tuple[str, int]], int]:
    """Return the labels of the versions that a file adds, and the active version of its branch, 0 for the newest.

    A `new` branch gets all its labels and versions, another the labels of the new text.
    """
    entries = _entries(registry, file.place)
    labels = [(name, entry.number) for entry in entries for name in entry.labels]
    active = next((entry.number for entry in entries if entry.active), 0)
    own = _own(entries)
    if new:
        return labels, active
    if own is None or own.digest != digest_of(file):
        return [], 0
    return [each for each in labels if each[1] == own.number], active


def astray(registry: Registry, family: Family) -> list[str]:
    """Return the labels and active versions of a prompt that differ between registry and database.

    They differ after someone else moved a label or rolled back. Empty for a prompt that the registry does not list.
    """
    entries = [each for each in registry.entries if each.id == family.slug and each.number]
    return [*_labels_astray(entries, family), *_active_astray(entries, family)] if entries else []


def _active_astray(entries: Sequence[RegistryEntry], family: Family) -> Iterator[str]:
    for branch in family.branches:
        registry_entries = [each for each in entries if each.branch == branch.name]
        head = max((each.number for each in registry_entries), default=0)
        active = next((each.number for each in registry_entries if each.active), head)
        if head == branch.head and active != branch.active:
            place = family.slug if branch.name == MAIN else f"{family.slug}@{branch.name}"
            taken = f", `cuebook prompt rollback {place} --to {active}` applies the registry's"
            yield (
                f"{family.slug}@{branch.name}: active is {active} in the registry, {branch.active} in the database;"
                f" `cuebook prompt pull` writes the database's{taken if active < branch.active else ''}"
            )


def _labels_astray(entries: Sequence[RegistryEntry], family: Family) -> list[str]:
    theirs = {name: f"{each.branch}:{each.number}" for each in entries for name in each.labels}
    ours = {each.name: f"{each.branch}:{each.number}" for each in family.labels}
    return [
        f"{family.slug}: label {name}: {theirs.get(name, 'none')} in the registry, {ours.get(name, 'none')} in the"
        " database. `cuebook prompt pull` writes the database's, `cuebook prompt label` moves it"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]


def _entries(registry: Registry | None, place: BranchPlace) -> list[RegistryEntry]:
    """Return a branch's entries, oldest first; kAI's formats have no numbers and no history."""
    registry_entries = [each for each in registry.entries if (each.id, each.branch) == place] if registry else []
    return sorted((each for each in registry_entries if each.number), key=lambda each: each.number)


def _origin(first: RegistryEntry) -> tuple[str, int] | None:
    branch, _, number = str(first.extra.get(registries.ORIGIN, "")).partition(":")
    return (branch, int(number)) if branch and number.isdecimal() else None
