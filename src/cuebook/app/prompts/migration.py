"""Import prompts from a migration file: compare with the stored ones, then store all in one transaction or dry-run.

A new branch starts from the most similar version, of `main` if it exists, so that it can be merged later.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.arguments import By, IdempotencyKey
from cuebook.app.prompts.answers import MigratedVersion, MigrationResult, identity_fields
from cuebook.app.prompts.writing import PromptWriting
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.services import Services
from cuebook.interfaces.prompts import Write
from cuebook.operations import operation
from cuebook.prompts.difference import bump, difference
from cuebook.prompts.migrate import MigrationStep, plan, slugs
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Version


class PromptMigrationApi(PromptWriting):
    """The import of `cue.prompts`."""

    @operation("POST /api/prompts/migrate", role="admin", stores=True)
    async def migrate(
        self,
        document: Annotated[
            Any,
            Meta(
                description='A parsed migration file: an array of versions, or {"prompts", "versions", "inheritance"}.'
            ),
        ],
        *,
        dry_run: Annotated[bool, Meta(description="Show the changes without making them.")] = False,
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> MigrationResult:
        """Store the versions of a migration file, all or none; running it again changes nothing.

        Raises InvalidInput naming the path of the first error, Conflict after a concurrent write.
        """
        services = self._services
        existing = await _existing(services, await asyncio.to_thread(slugs, document))
        steps, skipped = await asyncio.to_thread(plan, document, existing)
        await self.check([replace(step.version, number=step.number) for step in steps])
        if dry_run or not steps:
            stored = [replace(step.version, number=step.number) for step in steps]
        else:
            writes = [
                Write(
                    version=step.version,
                    base=step.number - 1,
                    begins=begins,
                    audit=receipt(services, step.version, "branch" if begins else "write", agent=by),
                )
                for step, begins in zip(steps, _begins(steps, existing), strict=True)
            ]
            stored = await services.prompts.save(Scope(), writes, by=by, now=services.clock.now())
        told = zip(steps, stored, strict=True)
        return MigrationResult(
            dry_run=dry_run,
            written=tuple(
                MigratedVersion(**identity_fields(version), place=step.place, bump=bump(step.change))
                for step, version in told
            ),
            skipped=skipped,
        )


async def _existing(services: Services, named: Iterable[str]) -> list[Version]:
    """Return all versions of prompts and of their ancestors."""
    families = await services.prompts.families(Scope(), list(named))
    return [version for slug in families for version in await services.prompts.versions(Scope(), slug)]


def _begins(steps: Sequence[MigrationStep], existing: Sequence[Version]) -> list[tuple[str, int] | None]:
    """Return for each version the origin of its branch: None for an existing branch or a new prompt."""
    versions: dict[str, list[Version]] = {}
    for version in existing:
        versions.setdefault(version.slug, []).append(version)
    results: list[tuple[str, int] | None] = []
    for step in steps:
        family = versions.setdefault(step.version.slug, [])
        stands = any(each.branch == step.version.branch for each in family)
        origins = [each for each in family if each.branch == MAIN] or family
        results.append(None if stands or not origins else _most_like(step.version, origins))
        family.append(replace(step.version, number=step.number))
    return results


def _most_like(version: Version, origins: Sequence[Version]) -> tuple[str, int]:
    """Return the place of the version with the fewest different sections and parameters, the newest if tied."""

    def far(origin: Version) -> tuple[int, int]:
        change = difference(origin, version)
        return len(change.sections) + len(change.params) + len(change.fields), -origin.number

    nearest = min(origins, key=far)
    return nearest.branch, nearest.number
