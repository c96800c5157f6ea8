"""Convert edited texts and prompt files to versions and store them in one transaction, and export versions."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cuebook.app.prompts.answers import VersionIdentity
from cuebook.app.prompts.compare import families_of
from cuebook.app.prompts.reading import standing
from cuebook.app.prompts.writing import Prompts, save_writes
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.interfaces.prompts import Family, Write
from cuebook.prompts.difference import next_version
from cuebook.prompts.files import read_file, read_stated, write_file
from cuebook.prompts.inherit import parents_first
from cuebook.prompts.names import check_branch, read_place
from cuebook.records.answer import Wire, as_answer, to_wire
from cuebook.records.memory import Scope
from cuebook.records.prompt import BODY, MAIN, Version


async def save_planned(
    services: Services, planned: Sequence[Write], families: Mapping[str, Family], *, by: str = ""
) -> list[Version]:
    """Store checked versions, numbered from their `base` on, parents first. Raises Conflict if a head has changed.

    A new branch without a start begins at the newest version of `main`.
    """
    heads = {(slug, each.name): each.head for slug, family in families.items() for each in family.branches}
    writes = []
    for each in parents_first(planned, lambda each: each.version):
        slug, branch = each.version.slug, each.version.branch
        is_fork = branch != MAIN and (slug, branch) not in heads and (slug, MAIN) in heads
        writes.append(replace(each, begins=(each.begins or (MAIN, heads[slug, MAIN])) if is_fork else None))
        heads[slug, branch] = each.version.number
    return await save_writes(services, writes, by=by)


#: Placeholder text of a new prompt's file.
EMPTY = "Write the prompt's text here.\n"


async def draft_of(
    services: Services, slug: str, branch: str | None = None, *, new: bool = False
) -> tuple[Version, int]:
    """Return a branch's active version for editing, and the branch's head. Raises NotFound. `slug` may name the branch.

    With `new`, return a placeholder and 0 if no prompt has this id, with or without `default/`.
    """
    prompts = Prompts(services)
    place = read_place(slug, branch=branch)
    own = await standing(services, place.slug)
    if new and own not in await services.prompts.families(Scope(), [own], ancestors=False):
        name = check_branch(place.branch or MAIN)
        return Version(slug=place.slug, branch=name, sections={BODY: EMPTY.strip()}), 0
    family = await prompts.family(place.slug)
    before = await prompts.get(family.slug, branch=place.branch)
    stands = family.branch(before.branch)
    return before, stands.head if stands else before.number


def read_draft(before: Version, base: int, text: str | bytes, *, name: str = "") -> Version:
    """Parse an edited draft and return the new version.

    Without front matter only the text changes. An unchanged semantic version is raised as the change requires.
    Raises InvalidInput naming line and reason.
    """
    path = name or f"{before.slug.rpartition('/')[2]}.md"
    version, keys = read_stated(text, path=path, slug=before.slug)
    named = (version.slug if "name" in keys else before.slug, version.branch if "branch" in keys else before.branch)
    if named != before.place:
        msg = f"{path}: expected prompt {before.slug}@{before.branch}, got {'@'.join(named)}. Keep its name."
        raise InvalidInput(msg, where="name")
    version = replace(version, slug=before.slug, branch=before.branch)
    return next_version(version, before, keys) if base else version


async def save_draft(
    services: Services, version: Version, base: int, *, by: str = "", force: bool = False
) -> VersionIdentity:
    """Store an edited draft. Raises InvalidInput, also for a secret unless `force` is set, and Conflict if the branch's
    head is not `base` anymore.
    """
    version = replace(version, number=base + 1)
    await Prompts(services).check([version], force=force)
    families = await services.prompts.families(Scope(), [version.slug], ancestors=False)
    planned = [Write(version=version, base=base)]
    return as_answer(VersionIdentity, (await save_planned(services, planned, families, by=by))[0])


async def import_files(
    services: Services, files: Sequence[tuple[str, bytes]], *, by: str = "", force: bool = False
) -> list[VersionIdentity]:
    """Store prompt files, all or none. Return the versions that changed.

    Raises InvalidInput naming file and line, also for two files of one prompt, and for a secret unless `force` is set.
    """
    read = [(name, read_file(data, path=name)) for name, data in files]
    owners: dict[tuple[str, str], str] = {}
    for name, version in read:
        if owners.setdefault(version.place, name) != name:
            msg = f"{name}: duplicate of prompt {version.slug}@{version.branch} in {owners[version.place]}. Keep one."
            raise InvalidInput(msg, where=name)
    families = await services.prompts.families(Scope(), [version.slug for _, version in read], ancestors=False)
    planned = []
    for _, version in read:
        family = families.get(version.slug)
        stands = family.branch(version.branch) if family else None
        if stands is None:
            planned.append(Write(version=replace(version, number=1), base=0))
            continue
        before = await Prompts(services).get(version.slug, branch=version.branch, version=stands.head)
        after = next_version(version, before, {"version"})
        if write_file(after) != write_file(before):
            planned.append(Write(version=replace(after, number=stands.head + 1), base=stands.head))
    await Prompts(services).check([each.version for each in planned], force=force)
    saved = await save_planned(services, planned, families, by=by) if planned else []
    return [as_answer(VersionIdentity, each) for each in saved]


async def export_prompts(services: Services, slugs: Sequence[str] = ()) -> Wire:
    """Return all versions of the given prompts (default: all), `main` first, oldest first. Raises NotFound."""
    prompts = Prompts(services)
    names = [(await prompts.family(slug)).slug for slug in slugs] or sorted(await families_of(services, None))
    rows = []
    for name in dict.fromkeys(names):
        versions = await services.prompts.versions(Scope(), name)
        rows += [
            _row(each) for each in sorted(versions, key=lambda each: (each.branch != MAIN, each.branch, each.number))
        ]
    return {"prompts": rows}


def _row(version: Version) -> Wire:
    fields: Wire = to_wire(version)
    for name in ("digest", "created_at", "supersedes", "branched_from"):
        del fields[name]
    return {"version" if name == "number" else name: value for name, value in fields.items()}
