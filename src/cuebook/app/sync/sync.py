"""The public API of prompt sync (`cue.prompt_sync`): sync with other projects, show the status, rotate the key."""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from cuebook.app.prompts.compare import families_of
from cuebook.app.prompts.draft import save_planned
from cuebook.app.sync.bundles import PromptBundles
from cuebook.app.sync.hub import STATE, SyncPeer, SyncState, trusted_keys
from cuebook.app.sync.locations import Location, copy_repository, read_location
from cuebook.app.sync.plan import (
    LocalPrompt,
    Plan,
    SyncedPrompt,
    SyncedState,
    check_parents,
    local_prompt,
    plan_prompt,
)
from cuebook.app.sync.repository import (
    JSON,
    PROMPTS,
    Published,
    fetch_own,
    own_fingerprint,
    own_revisions,
    published_fingerprint,
    read_fingerprints,
    revisions_of,
    root_keys,
    rotate,
    seal,
    signers_of,
    unknown_signer,
    verify,
    write_repository,
)
from cuebook.errors import Conflict, CuebookError, Denied, InvalidInput, SyncRefused, UnknownSigner
from cuebook.operations import operation
from cuebook.prompts.names import SYNC
from cuebook.prompts.revisions import Revision
from cuebook.records.answer import Answer, Time
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, BranchPlace

_DAY_S: Final = 86_400.0


class SyncConflict(Answer, frozen=True, kw_only=True):
    """A prompt that could not be merged: the branch with the other project's version, and the sections in conflict."""

    slug: str
    branch: str
    sections: tuple[str, ...]


class SyncStatus(Answer, frozen=True, kw_only=True):
    """This project's name and key, its last sync, the other projects with their keys, and open conflicts.

    `published_fingerprint` is the key that others see: the former one until a sync publishes a new key.
    """

    project: str
    fingerprint: str
    published_fingerprint: str
    location: str
    last_sync: Time | None
    peers: tuple[SyncPeer, ...]
    conflicts: tuple[SyncConflict, ...]


class SyncResult(Answer, frozen=True, kw_only=True):
    """The changes of a sync. `published`: this project's prompts were written to the location."""

    location: str
    dry_run: bool
    published: bool
    items: tuple[SyncedPrompt, ...]
    notice: str = ""


class PromptSync(PromptBundles):
    """Prompt sync between projects."""

    async def sync(self, location: str = "", *, trust: str = "", dry_run: bool = False, by: str = "") -> SyncResult:
        """Exchange the prompts with `sync: true` with the other projects of a location, all or nothing.

        `trust` are fingerprints of keys to trust from now on. Conflicts become branches `sync/PROJECT`. Raises
        SyncRefused, UnknownSigner, BackendError, and InvalidInput if a prompt inherits from one that is not synced.
        """
        address = location or self._settings.hub
        if not address:
            msg = "No location. Run `cuebook prompt sync LOCATION`, or set `hub` under [sync]."
            raise InvalidInput(msg, where="sync.hub")
        place, folder = read_location(address, key_env=self._settings.api_key_env), self._folder()
        async with self._lock:
            try:
                result = await self._sync(folder, place, read_fingerprints(trust, where="trust"), dry_run=dry_run)
            except CuebookError as error:
                if not dry_run:
                    await self._refused(error, by, location=address)
                raise
            if not dry_run:
                changes = ", ".join(f"{each.change} {each.slug}" for each in result.items) or "no changes"
                await self._record(by, location=address, result="accepted", detail=changes)
        return result

    @operation("GET /api/sync", role="viewer")
    async def status(self) -> SyncStatus:
        """Return this project's key, the last sync, the other projects with their keys, and open conflicts."""
        folder = self._folder()
        state = await asyncio.to_thread(self._state)
        return SyncStatus(
            project=self.project,
            fingerprint=await asyncio.to_thread(own_fingerprint, folder),
            published_fingerprint=await asyncio.to_thread(published_fingerprint, folder),
            location=state.location or self._settings.hub,
            last_sync=state.at,
            peers=state.peers,
            conflicts=tuple(
                SyncConflict(slug=slug, branch=f"{SYNC}{project}", sections=each.sections)
                for slug, prompt in sorted(state.prompts.items())
                for project, each in sorted(prompt.conflicts.items())
            ),
        )

    async def summary(self) -> SyncStatus | None:
        """Return the status; None before the first sync."""
        used = self._place is not None and await asyncio.to_thread((self._place / STATE).exists)
        return await self.status() if used else None

    async def rotate_key(self) -> SyncStatus:
        """Replace this project's key. The next sync publishes both, so that others accept the new one.

        Raises Conflict if the last new key is not published yet.
        """
        await asyncio.to_thread(rotate, self._folder())
        return await self.status()

    # ---- inside

    async def _sync(self, folder: Path, place: Location, trust: set[str], *, dry_run: bool) -> SyncResult:
        state = await asyncio.to_thread(self._state)
        own = await asyncio.to_thread(own_revisions, folder / "own")
        prompts = await self._local(own, state)
        before = {slug: revisions[-1].id for slug, revisions in own.items()}
        published = [
            SyncedPrompt(slug=slug, change="published", semver=each.pool[each.head].version.semver)
            for slug, each in prompts.items()
            if each.head and each.head != before.get(slug)
        ]
        with tempfile.TemporaryDirectory(prefix="cuebook-sync-") as scratch:
            fetch = partial(self._fetch, folder, place, state, trust, Path(scratch))
            peers, newer = await asyncio.to_thread(fetch)
            remote = await asyncio.to_thread(revisions_of, peers)
            own = await asyncio.to_thread(own_revisions, newer) if newer else own
            for slug, listed in own.items():
                if newer or (slug in prompts and listed[-1].id not in prompts[slug].numbers):  # restored from a backup
                    remote.setdefault(slug, {})[self.project] = listed
            for slug in remote:
                prompts.setdefault(slug, LocalPrompt(slug=slug))
            plans = [await asyncio.to_thread(plan_prompt, each, remote.get(slug, {})) for slug, each in prompts.items()]
            check_parents(prompts, self._services.settings.builtin)
            await self._check(plans)
            semvers = {} if dry_run else await self._store(plans)
            changes = [each for plan in plans for each in plan.items]
            changes = [replace(each, semver=semvers.get((each.slug, each.branch), each.semver)) for each in changes]
            items = sorted([*changes, *published], key=lambda each: (each.slug, each.change, each.project))
            if dry_run:
                return SyncResult(location=place.address, dry_run=True, published=False, items=tuple(items))
            peer_rows = self._peers(state, place, peers)
            await asyncio.to_thread(_keep_trust, Path(scratch), _trusted_folder(folder, place), peers)
            if newer:
                await asyncio.to_thread(copy_repository, newer, folder / "own")
        state = replace(
            trusted_keys(state, trust, peers),
            prompts={
                slug: SyncedState(numbers=each.numbers, conflicts=each.conflicts)
                for slug, each in prompts.items()
                if each.numbers or each.conflicts
            },
            peers=peer_rows,
            location=place.address,
            at=Time(self._services.clock.now()),
        )
        revisions = {slug: each.revisions for slug, each in prompts.items() if each.head}
        denied = await asyncio.to_thread(self._publish, folder, place, revisions, state)
        restored = f"{place.address} had a newer state of this project: its versions were added here." if newer else ""
        return SyncResult(
            location=place.address, dry_run=False, published=not denied,
            items=tuple(each for each in items if not (denied and each.change == "published")),
            notice=" ".join(filter(None, (restored, denied))),
        )  # fmt: skip

    async def _local(self, own: Mapping[str, Sequence[Revision]], state: SyncState) -> dict[str, LocalPrompt]:
        """Return the prompts that are synced or were, with revisions of their new versions."""
        prompts = {}
        for slug, family in (await families_of(self._services, None)).items():
            versions = await self._services.prompts.versions(Scope(), slug, branch=MAIN)
            edited = {each.branch.removeprefix(SYNC): each for each in family.active if each.branch.startswith(SYNC)}
            known = state.prompts.get(slug, SyncedState())
            if versions and (versions[-1].sync or known.numbers):
                prompts[slug] = await asyncio.to_thread(local_prompt, slug, versions, edited, own.get(slug, ()), known)
            elif versions:
                prompts[slug] = LocalPrompt(slug=slug, versions=versions)
        return prompts

    def _fetch(
        self, folder: Path, place: Location, state: SyncState, trust: set[str], scratch: Path
    ) -> tuple[list[Published], Path | None]:
        """Fetch and verify all other projects. Return also this project's repository, if the location's is newer."""
        blocked = {self.project, *self._settings.blocked.replace(",", " ").split()}
        names, own, newer = place.projects(), scratch / ".own", False
        for each in state.peers:
            if each.location == place.address and each.project not in (*names, *blocked):
                msg = (
                    f"Project {each.project!r} is missing in {place.address}, where it was before. Restore it, or"
                    " add it to sync.blocked."
                )
                raise SyncRefused(msg, reason="rollback")
        if place.has(self.project, names):
            fetch = partial(place.fetch, self.project)
            name = f"{self.project!r} in {place.address}"
            newer = fetch_own(fetch, name, folder / "own", own, signers_of(folder))
        peers = [self._fetch_peer(folder, place, state, trust, scratch / each) for each in names if each not in blocked]
        return peers, own if newer else None

    def _fetch_peer(self, folder: Path, place: Location, state: SyncState, trust: set[str], scratch: Path) -> Published:
        """Fetch and verify the project that `scratch` is named after. Its trusted metadata is copied there first."""
        name, fetch = scratch.name, partial(place.fetch, scratch.name)
        trusted = _trusted_folder(folder, place) / name
        known = next((each for each in state.peers if (each.project, each.location) == (name, place.address)), None)
        has_restarted = known is not None and known.fingerprint not in trust and not trust.isdisjoint(root_keys(fetch))
        if trusted.exists() and not has_restarted:
            shutil.copytree(trusted, scratch, symlinks=True)
        try:
            published = verify(fetch, scratch, name, accepted=self._accepted(state, trust, name))
        except UnknownSigner as error:
            if error.fingerprint != own_fingerprint(folder):
                raise
            msg = f"Project {name!r} has the key of this project: a former name. Add {name!r} to sync.blocked."
            raise Conflict(msg) from error
        if {*published.signers} <= {*state.replaced} - trust:
            raise unknown_signer(f"project {name!r}", name, published.fingerprint)
        return published

    async def _check(self, plans: Sequence[Plan]) -> None:
        """Check that the new versions can be stored. Raises InvalidInput."""
        versions = [each.version for plan in plans for each in plan.writes if each.version.branch == MAIN]
        await self._prompts.check(list({each.slug: each for each in versions}.values()))

    async def _store(self, plans: Sequence[Plan]) -> dict[BranchPlace, str]:
        """Store the versions of all plans. Return the newest semantic version of each branch."""
        writes = [each for plan in plans for each in plan.writes]
        if not writes:
            return {}
        families = await families_of(self._services, {each.version.slug for each in writes})
        return {each.place: each.semver for each in await save_planned(self._services, writes, families)}

    def _peers(self, state: SyncState, place: Location, peers: Sequence[Published]) -> tuple[SyncPeer, ...]:
        now = Time(self._services.clock.now())
        found = [
            SyncPeer(
                project=each.project, location=place.address, fingerprint=each.fingerprint, last_sync=now,
                expires_at=Time(each.expires_at),
            )
            for each in peers
        ]  # fmt: skip
        return (*(each for each in state.peers if each.location != place.address), *found)

    def _publish(
        self, folder: Path, place: Location, revisions: Mapping[str, Sequence[Revision]], state: SyncState
    ) -> str:
        """Write this project's repository and the state, and publish. Return why it was not published, "" if it was."""
        signers = signers_of(folder)
        files = {
            f"{PROMPTS}{slug}{JSON}": seal([each.payload for each in listed], signers)
            for slug, listed in revisions.items()
        }
        own = folder / "own"
        write_repository(
            own, files, signers, project=self.project, now=self._services.clock.now(),
            expires_s=self._settings.expires_days * _DAY_S,
        )  # fmt: skip
        self._write_state(state)
        try:
            place.publish(self.project, own)
        except Denied as error:
            return f"Not published: {error}"
        return ""


def _trusted_folder(folder: Path, place: Location) -> Path:
    return folder / "peers" / sha256(place.address.encode()).hexdigest()[:32]


def _keep_trust(scratch: Path, trusted: Path, peers: Sequence[Published]) -> None:
    """Replace the trusted metadata of projects by the verified one."""
    for each in peers:
        shutil.rmtree(trusted / each.project, ignore_errors=True)
        shutil.copytree(scratch / each.project, trusted / each.project, symlinks=True)
