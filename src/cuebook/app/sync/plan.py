"""Decide what a sync does with each prompt: store, merge or branch another project's version, and what to publish."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.interfaces.prompts import Write
from cuebook.prompts.names import SYNC, candidates, parse_reference
from cuebook.prompts.revisions import (
    Revision,
    ancestors,
    common_versions,
    has_secret,
    merge,
    path_to,
    revision_of,
    same_text,
)
from cuebook.records.answer import Answer
from cuebook.records.prompt import MAIN, Version

Change = Literal["new", "updated", "merged", "conflict", "published", "skipped"]


class SyncedPrompt(Answer, frozen=True, kw_only=True):
    """A change of a sync. `sections` are those that both projects changed; `project` is the other project."""

    COLUMNS = ("slug", "change", "project", "semver", "sections")

    slug: str
    change: Change
    project: str = ""
    semver: str = ""
    branch: str = MAIN
    sections: tuple[str, ...] = ()


class OpenConflict(Struct, frozen=True, kw_only=True):
    """A version of another project that could not be merged: its revision, and the sections that both changed."""

    revision: str
    sections: tuple[str, ...]


class SyncedState(Struct, frozen=True, kw_only=True):
    """The state of a prompt after an earlier sync: the local number of each revision, and open conflicts by project."""

    numbers: Mapping[str, int] = {}
    conflicts: Mapping[str, OpenConflict] = {}


class LocalPrompt(Struct, kw_only=True):
    """A prompt of this project during a sync: its versions on `main`, all known revisions, and its head among them."""

    slug: str
    versions: Sequence[Version] = ()
    edited: Mapping[str, Version] = {}  # by project: the active version of its branch
    pool: dict[str, Revision] = field(default_factory=dict)
    head: str | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    conflicts: dict[str, OpenConflict] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Return whether the prompt exists here without `sync: true`."""
        return bool(self.versions) and not self.versions[-1].sync

    @property
    def revisions(self) -> list[Revision]:
        """Return the head and its ancestors, parents first."""
        return list(ancestors(self.head, self.pool).values()) if self.head else []


class Plan(Struct, kw_only=True):
    """The changes that a sync makes to a prompt."""

    prompt: LocalPrompt
    items: list[SyncedPrompt] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)


#: By project: the head of its prompt, and all its revisions.
Remote = Mapping[str, Sequence[Revision]]

_BRANCH: Final = "branch 'main' only"


def local_prompt(
    slug: str, versions: Sequence[Version], edited: Mapping[str, Version], own: Sequence[Revision], state: SyncedState
) -> LocalPrompt:
    """Return a prompt with revisions of its new versions. `own` are the published ones.

    Raises SyncRefused if the newest version contains a secret. An earlier one with a secret is left out.
    """
    pool = {each.id: each for each in own}
    prompt = LocalPrompt(slug=slug, versions=versions, edited=edited, pool=pool)
    last = versions[-1].number if versions else 0  # the state may be newer than a restored database
    prompt.numbers = {each: number for each, number in state.numbers.items() if each in pool and number <= last}
    prompt.conflicts = dict(state.conflicts)
    if not versions or prompt.is_local:
        return prompt
    known = {number: each for each, number in prompt.numbers.items()}
    newest = max(known, default=0)
    prompt.head = known.get(newest)
    first = newest or max((each.number for each in versions if not each.sync), default=0)
    for version in versions:
        if version.number > first and version.sync and (version is versions[-1] or not has_secret(version)):
            revision = revision_of(version, [prompt.head] if prompt.head else [], version.created_at)
            pool[revision.id], prompt.head = revision, revision.id
            prompt.numbers[revision.id] = version.number
    return prompt


def check_parents(prompts: Mapping[str, LocalPrompt], builtin: Mapping[str, Version]) -> None:
    """Check that synced prompts inherit only from synced or built-in ones. Raises InvalidInput naming both."""
    synced = {slug for slug, each in prompts.items() if each.head}
    for slug, each in prompts.items():
        inherits = each.pool[each.head].version.inherits if each.head else None
        if inherits is None:
            continue
        reference = parse_reference(inherits)
        names = candidates(reference.slug)
        if reference.number is not None or reference.branch not in (None, MAIN):
            msg = f"Prompt {slug!r} inherits {inherits!r}. Sync has {_BRANCH}, and other numbers: inherit {names[0]!r}."
            raise InvalidInput(msg, where="inherits")
        if not synced.intersection(names) and not builtin.keys() & set(names):
            msg = (
                f"Prompt {slug!r} inherits {inherits!r}, which is not synced here. Set `sync: true` in {inherits!r}, or"
                " rename it if other projects mean another prompt."
            )
            raise InvalidInput(msg, where="inherits")


def plan_prompt(prompt: LocalPrompt, remote: Remote) -> Plan:
    """Plan the sync of a prompt with each project that publishes it, by name."""
    plan = Plan(prompt=prompt)
    if prompt.is_local:
        plan.items = [SyncedPrompt(slug=prompt.slug, change="skipped", project=each) for each in sorted(remote)]
        return plan
    for revisions in remote.values():
        prompt.pool |= {each.id: each for each in revisions}
    heads = {project: revisions[-1] for project, revisions in remote.items()}
    sizes = {project: len(ancestors(head.id, prompt.pool)) for project, head in heads.items()}
    for project in sorted(heads, key=lambda each: (-sizes[each], each)):  # a head before those from which it descends
        _plan_peer(plan, project, heads[project])
    for project in prompt.conflicts.keys() - remote.keys():
        del prompt.conflicts[project]
    return plan


def _plan_peer(plan: Plan, project: str, theirs: Revision) -> None:
    """Plan the sync with one project's head."""
    prompt, pool = plan.prompt, plan.prompt.pool
    known = prompt.conflicts.pop(project, None)
    ours = pool[prompt.head] if prompt.head else None
    if ours is not None and theirs.id in ancestors(ours.id, pool):
        return
    if ours is None or ours.id in ancestors(theirs.id, pool):
        _store(plan, path_to(theirs.id, pool, after=prompt.head), "updated" if ours else "new", project)
        return
    merged, sections = merge(ours, theirs, pool)
    edited = prompt.edited.get(project)
    if merged is None and edited is not None and known is not None and known.revision == theirs.id:
        text = replace(theirs, version=replace(edited, branch=MAIN, sync=True))
        merged, sections = merge(ours, text, pool)
    if merged is not None:
        pool[merged.id] = merged
        _store(plan, [merged], "merged", project)
        return
    branch = f"{SYNC}{project}"
    prompt.conflicts[project] = OpenConflict(revision=theirs.id, sections=tuple(sections))
    item = SyncedPrompt(slug=prompt.slug, change="conflict", project=project, branch=branch, sections=tuple(sections))
    plan.items.append(replace(item, semver=theirs.version.semver))
    if known is not None and known.revision == theirs.id:
        return
    base = next(iter(common_versions(ours, theirs, pool)), None)
    begins = (MAIN, prompt.numbers.get(base.id, 1) if base else 1)
    number = edited.number if edited else 0
    version = replace(theirs.version, branch=branch, number=number + 1)
    plan.writes.append(Write(version=version, begins=begins, if_changed=True))


def _store(plan: Plan, path: Sequence[Revision], change: Change, project: str) -> None:
    """Plan to store revisions as the newest versions of `main`. A head with our text only gets its revision."""
    prompt = plan.prompt
    newest = prompt.versions[-1] if prompt.versions else None
    number = max([newest.number if newest else 0, *prompt.numbers.values()])
    head = path[-1]
    same = prompt.head is not None and same_text(prompt.pool[prompt.head].version, head.version)
    for each in () if same else path:
        plan.writes.append(Write(version=replace(each.version, number=number + 1), base=number, at=each.created_at))
        number += 1
        prompt.numbers[each.id] = number
    prompt.numbers.pop(head.id, None)
    prompt.numbers[head.id] = number
    prompt.head = head.id
    if not same or change == "merged":
        plan.items.append(SyncedPrompt(slug=prompt.slug, change=change, project=project, semver=head.version.semver))
