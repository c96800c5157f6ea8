"""Lint and rate prompts: the files of a project, and stored prompts that have no file."""

import asyncio
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from cuebook.app.prompts.compare import families_of, wanted
from cuebook.app.prompts.folder import PromptFolder
from cuebook.engine.core.services import Services
from cuebook.errors import NotFound
from cuebook.prompts.lint import LintFinding, lint
from cuebook.prompts.lint import rules as lint_rules
from cuebook.prompts.names import candidates, own_names, parse_reference
from cuebook.prompts.rating import QualityRating, rate
from cuebook.records.answer import Wire
from cuebook.records.memory import Scope
from cuebook.records.prompt import Version

#: Number of observations used for a rating.
_OBSERVED = 1_000


async def lint_prompts(
    services: Services, shelf: PromptFolder | None, slugs: Collection[str] = ()
) -> list[LintFinding]:
    """Return the findings of the lint rules, worst first, for all prompts or for `slugs` only.

    Without `shelf`, lint the stored prompts. An invalid file is a finding of the rule `unreadable`; the others are
    still linted.
    """
    versions, invalid = await _versions(services, shelf)
    named = {_known(slug, {each.slug for each in versions}) for slug in slugs}
    findings = await asyncio.to_thread(lint, versions, count=services.count, known=_others(services))
    chosen = [each for each in findings if not named or each.slug.partition("@")[0] in named]
    return [*(() if slugs else invalid), *chosen]


def _known(slug: str, known: Collection[str]) -> str:
    """Return the full id of a prompt name. Raises NotFound."""
    for name in candidates(parse_reference(slug, where="slug").slug):
        if name in known:
            return name
    msg = f"Unknown prompt {slug!r}. List prompts with `cuebook prompt list`."
    raise NotFound(msg)


async def rate_version(services: Services, version: Version) -> QualityRating:
    """Return the rating of a version, from 0 to 100, with its parts."""
    versions, _ = await _versions(services, None)
    others = [each for each in versions if each.place != version.place]
    findings = await asyncio.to_thread(lint, [*others, version], count=services.count, known=_others(services))
    observations = await services.prompts.observations(Scope(), version.slug, branch=version.branch, limit=_OBSERVED)
    scores = [each.score for each in observations if each.number == version.number]
    return rate(version, findings, scores=scores)


def _others(services: Services) -> set[str]:
    """Return the ids of texts that are not stored prompts: those of personas, and built-in ones."""
    return {
        name for each in services.settings.personas.values() for name in own_names(each.id)
    } | services.settings.builtin.keys()


def rules() -> list[Wire]:
    """Return every lint rule: its name, severity and description."""
    return [{"rule": name, "severity": severity, "what": what} for name, (severity, what) in lint_rules().items()]


async def _versions(services: Services, shelf: PromptFolder | None) -> tuple[Sequence[Version], list[LintFinding]]:
    """Return the version that each branch would have after a push, and findings for invalid files."""
    families = await families_of(services, None)
    heads = {each.place: each for family in families.values() for each in family.active}
    if shelf is None:
        return list(heads.values()), []
    prompt_files = await asyncio.to_thread(shelf.read, lenient=True)
    files = {each.version.place: wanted(each, heads.get(each.version.place)) for each in prompt_files.prompts}
    fresh = {
        place: replace(version, number=heads[place].number if place in heads else 0) for place, version in files.items()
    }
    invalid = [
        LintFinding(rule="unreadable", severity="error", slug="", where=where, message=message)
        for where, message in prompt_files.invalid
    ]
    return list((heads | fresh).values()), invalid
