"""Convert edited texts and prompt files to versions and store them in one transaction, and export versions."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.json_shapes import Wire
from cuebook.app.prompts import Prompts
from cuebook.app.prompts.answers import VersionIdentity
from cuebook.app.prompts.compare import families_of
from cuebook.app.prompts.reading import standing
from cuebook.app.prompts.writing import save_writes
from cuebook.engine.core.services import Services
from cuebook.errors import InvalidInput
from cuebook.interfaces.prompts import Family, Write
from cuebook.prompts.difference import raised
from cuebook.prompts.files import read_file, read_stated, write_file
from cuebook.prompts.inherit import parents_first
from cuebook.prompts.names import check_branch, read_place
from cuebook.records.answer import as_answer, to_wire
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


class PromptDraft(Struct, frozen=True, kw_only=True):
    """A text to edit: the file of a version, and its branch's head at that time."""

    slug: str
    branch: str
    base: int
    text: str
    before: Version | None = None


async def draft_of(services: Services, slug: str, branch: str | None = None, *, new: bool = False) -> PromptDraft:
    """Return the text of a branch's active version for editing. Raises NotFound. `slug` may name the branch.

    With `new`, return a placeholder if no prompt has this id, with or without `default/`.
    """
    prompts = Prompts(services)
    place = read_place(slug, branch=branch)
    slug, branch = place.slug, place.branch
    own = await standing(services, slug)
    if new and own not in await services.prompts.families(Scope(), [own], ancestors=False):
        version = Version(slug=slug, branch=check_branch(branch or MAIN), sections={BODY: EMPTY.strip()})
        return PromptDraft(slug=slug, branch=version.branch, base=0, text=write_file(version))
    family = await prompts.family(slug)
    before = await prompts.get(family.slug, branch=branch)
    stands = family.branch(before.branch)
    base = stands.head if stands else before.number
    return PromptDraft(slug=before.slug, branch=before.branch, base=base, text=write_file(before), before=before)


def read_draft(draft: PromptDraft, text: str | bytes, *, name: str = "") -> Version:
    """Parse an edited draft and return the new version.

    Without front matter only the text changes. An unchanged semantic version is raised as the change requires.
    Raises InvalidInput naming line and reason.
    """
    path = name or f"{draft.slug.rpartition('/')[2]}.md"
    version, keys = read_stated(text, path=path, slug=draft.slug)
    if not keys:
        was = draft.before or Version(slug=draft.slug, branch=draft.branch)
        version = replace(was, sections=version.sections, override_sections=version.override_sections)
    named = (version.slug if "name" in keys else draft.slug, version.branch if "branch" in keys else draft.branch)
    if named != (draft.slug, draft.branch):
        msg = f"{path}: expected prompt {draft.slug}@{draft.branch}, got {'@'.join(named)}. Keep its name."
        raise InvalidInput(msg, where="name")
    version = replace(version, slug=draft.slug, branch=draft.branch)
    if draft.before is None:
        return version
    return raised(version, draft.before, stated="version" in keys)


def changes(draft: PromptDraft, version: Version) -> bool:
    """Return whether a version differs from its draft."""
    return draft.before is None or write_file(version) != write_file(draft.before)


async def save_draft(services: Services, draft: PromptDraft, version: Version, *, by: str = "") -> VersionIdentity:
    """Store an edited draft. Raises InvalidInput, and Conflict if the branch's head changed meanwhile."""
    family = await services.prompts.families(Scope(), [draft.slug], ancestors=False)
    version = replace(version, number=draft.base + 1)
    await Prompts(services).check([version])
    planned = [Write(version=version, base=draft.base)]
    return as_answer(VersionIdentity, (await save_planned(services, planned, family, by=by))[0])


async def import_files(
    services: Services, files: Sequence[tuple[str, bytes]], *, by: str = ""
) -> list[VersionIdentity]:
    """Store prompt files, all or none. Return the versions that changed.

    Raises InvalidInput naming file and line, also for two files of one prompt.
    """
    read = [(name, read_file(data, path=name)) for name, data in files]
    owners: dict[tuple[str, str], str] = {}
    for name, version in read:
        place = (version.slug, version.branch)
        if owners.setdefault(place, name) != name:
            msg = f"{name}: duplicate of prompt {version.slug}@{version.branch} in {owners[place]}. Keep one."
            raise InvalidInput(msg, where=name)
    families = await services.prompts.families(Scope(), [version.slug for _, version in read], ancestors=False)
    planned = []
    for _, version in read:
        family = families.get(version.slug)
        stands = family.branch(version.branch) if family else None
        if family is None or stands is None:
            planned.append(Write(version=replace(version, number=1), base=0))
            continue
        before = await Prompts(services).get(version.slug, branch=version.branch, version=stands.head)
        edited = raised(version, before, stated=True)
        if write_file(edited) != write_file(before):
            planned.append(Write(version=replace(edited, number=stands.head + 1), base=stands.head))
    await Prompts(services).check([each.version for each in planned])
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
