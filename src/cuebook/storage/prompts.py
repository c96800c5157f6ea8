"""Store prompts: immutable versions, branches and labels, and observations (feedback)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.interfaces.prompts import Family, Write
from cuebook.prompts.difference import free_semver, next_semver
from cuebook.prompts.digest import digest_of
from cuebook.prompts.inherit import DEPTH
from cuebook.prompts.learn import CAP_WINDOW, Posterior, aligned, capped, ema, ema_revised, update, update_revised
from cuebook.prompts.names import parse_reference
from cuebook.prompts.registry import rank
from cuebook.prompts.select import features, known_signals
from cuebook.records.answer import Page, Time
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.prompt import Branch, EventKind, Label, Observation, PromptEvent, Version
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import LARGEST, columns, decode, encode, record
from cuebook.storage.database.transaction import Noun, Transaction, read, read_all, write

#: Number of prompts loaded at a time.
PAGE = 200


class PromptStore(Noun):
    """Stores prompts."""

    @read
    def families(self, transaction: Transaction, slugs: Sequence[str], *, ancestors: bool = True) -> dict[str, Family]:
        """Return the existing prompts among names, and with `ancestors` all that they inherit from."""
        return families_of(transaction, slugs, DEPTH if ancestors else 0)

    @read
    def page(self, transaction: Transaction, *, prefix: str = "", limit: int = 50, after: str = "") -> Page[Family]:
        """Return a page of prompts by name."""
        span = {"after": after, "first": prefix, "last": prefix + "\U0010ffff", "limit": limit + 1}
        names = [slug for (slug,) in transaction.run("prompt_names", **span)]
        families = [family for name in names[:limit] if (family := _family(transaction, name)) is not None]
        return Page(items=tuple(families), next=names[limit - 1] if len(names) > limit else None)

    async def every(self, scope: Scope) -> dict[str, Family]:
        """Return all prompts by name, loaded a page at a time."""
        families: dict[str, Family] = {}
        after: str | None = ""
        while after is not None:
            page = await self.page(scope, limit=PAGE, after=after)
            families |= {each.slug: each for each in page.items}
            after = page.next
        return families

    @read
    def versions(
        self, transaction: Transaction, slug: str, *, branch: str | None = None, numbers: Sequence[int] = ()
    ) -> list[Version]:
        """Return versions of a prompt by branch and number, oldest first, by default all."""
        if numbers and branch is not None:
            wanted = sorted({number for number in numbers if 0 < number <= LARGEST})
            rows = (transaction.one("prompt_version_get", slug=slug, branch=branch, number=each) for each in wanted)
            return [decode(Version, row["body"]) for row in rows if row is not None]
        cursor = transaction.run("prompt_versions", slug=slug, branch=branch)
        return [each for (body,) in cursor if (each := decode(Version, body)).number in numbers or not numbers]

    @write
    def save(self, transaction: Transaction, writes: Sequence[Write], *, by: str, now: float) -> list[Version]:
        """Store versions, all or none, and make each the head and active version of its branch.

        Return the stored versions, or the existing ones if unchanged. No two texts of a prompt have the same semantic
        version: one that is taken or below the branch's newest is raised. Raises Conflict if a head differs from its
        `base` or an author's semantic version is taken, NotFound for a missing start of a branch.
        """
        namings: dict[str, list[Version]] = {}
        for slug in dict.fromkeys(each.version.slug for each in writes):
            cursor = transaction.run("prompt_versions", slug=slug, branch=None)
            namings[slug] = [decode(Version, body) for (body,) in cursor]
        return [_save(transaction, each, by=by, now=now, namings=namings[each.version.slug]) for each in writes]

    @write
    def move_label(self, transaction: Transaction, slug: str, label: Label, *, audit: Record | None = None) -> Label:
        """Move a label to a version and record the author. Return the label. Raises NotFound."""
        _need(transaction, slug, label.branch, label.number)
        transaction.run("prompt_label_put", slug=slug, **columns(label))
        event = PromptEvent(
            kind="label",
            branch=label.branch,
            number=label.number,
            to=label.number,
            label=label.name,
            by=label.moved_by,
            at=label.moved_at,
        )
        _note(transaction, slug, event)
        chained(transaction, [audit] if audit else [])
        return label

    @write
    def activate(
        self, transaction: Transaction, slug: str, event: PromptEvent, *, audit: Record | None = None
    ) -> Branch:
        """Activate another version of a branch: a rollback, or the clearing of one. Raises NotFound, Conflict."""
        place = {"slug": slug, "branch": event.branch}
        if event.kind == "rollback" and (not event.to or event.to == event.number):
            what = f"version {event.number} of {slug!r} is active on {event.branch!r}"
            msg = f"Cannot roll back: {what}, and there is no version {event.to or 0}."
            raise InvalidInput(msg, where="to")
        marked = _need(transaction, slug, event.branch, event.number)["rolled_back"]
        stands = transaction.one("prompt_branch_get", **place)
        if stands is None:
            msg = f"Unknown branch {event.branch!r} of prompt {slug!r}."
            raise NotFound(msg)
        if event.kind == "clear":
            transaction.run("prompt_version_mark", **place, number=event.number, rolled_back=0)
        else:
            cleared = not marked and event.to == stands["active"]  # it was explored: mark it again
            if stands["active"] != event.number and not cleared:
                msg = (
                    f"Version {event.number} of prompt {slug!r} is not active on branch {event.branch!r}:"
                    f" version {stands['active']} is. Read it again."
                )
                raise Conflict(msg)
            _need(transaction, slug, event.branch, event.to or 0)
            transaction.run("prompt_version_mark", **place, number=event.number, rolled_back=1)
            transaction.run("prompt_branch_put", **place, head=stands["head"], active=event.to)
        _note(transaction, slug, event)
        chained(transaction, [audit] if audit else [])
        return _standing(transaction, slug, event.branch)

    @read
    def events(
        self, transaction: Transaction, slug: str, *, branch: str | None = None, limit: int = 100
    ) -> list[PromptEvent]:
        """Return the events of a prompt, or of one branch without its labels, newest first."""
        name = "prompt_events" if branch is None else "prompt_events_on"
        values = {"slug": slug, "branch": branch, "limit": limit}
        return [decode(PromptEvent, body) for (body,) in transaction.run(name, **values)]

    @write
    def observe(self, transaction: Transaction, observation: Observation, *, audit: Record | None = None) -> Branch:
        """Store an observation and update its branch's statistics in one transaction. Raises NotFound."""
        observed(transaction, observation)
        branch = _standing(transaction, observation.slug, observation.branch)
        chained(transaction, [audit] if audit else [])
        return branch

    @read
    def observed(self, transaction: Transaction, *, after: int) -> tuple[list[str], int]:
        """Return the prompts observed after a mark, 0 for all, and the current mark."""
        items = transaction.rows("prompt_observed", after=after)
        return [row["slug"] for row in items], max((row["last"] for row in items), default=after)

    @read_all
    def tenants(self, transaction: Transaction) -> list[str]:
        """Return the tenants with observations."""
        return [tenant for (tenant,) in transaction.run("prompt_tenants")]

    @read
    def observations_since(
        self, transaction: Transaction, slug: str, branch: str, numbers: tuple[int, int], *, after: int, limit: int
    ) -> tuple[list[Observation], int, int]:
        """Return observations of two versions after a mark, 0 for all: in order of arrival, the newest `limit`. Return
        the current mark too, and a number that grows when an earlier observation was corrected. Callers then load all
        again.
        """
        first, other = numbers
        place = {"slug": slug, "branch": branch}
        span = {"one": first, "other": other, "after": after, "limit": limit}
        found = transaction.run("prompt_observations_behind", **place, **span).fetchall()
        corrected = transaction.value("prompt_observations_revised", **place) or 0
        observations = [decode(Observation, body) for _, body in reversed(found)]
        return observations, found[0][0] if found else after, corrected

    @read
    def observations(
        self, transaction: Transaction, slug: str, *, branch: str | None = None, limit: int = 5000
    ) -> list[Observation]:
        """Return a prompt's newest `limit` observations, oldest first."""
        found = transaction.run("prompt_observations", slug=slug, branch=branch, limit=limit).fetchall()
        return [decode(Observation, body) for (body,) in reversed(found)]


# ---- reading --------------------------------------------------------------------------------------------------------


def families_of(transaction: Transaction, slugs: Sequence[str], depth: int) -> dict[str, Family]:
    """Return existing prompts by name, with their ancestors up to a depth."""
    families: dict[str, Family] = {}
    wanted = list(dict.fromkeys(slugs))
    for _ in range(depth + 1):
        parents: list[str] = []
        for slug in wanted:
            if slug not in families and (family := _family(transaction, slug)) is not None:
                families[slug] = family
                parents += [parse_reference(each.inherits).slug for each in family.active if each.inherits]
        wanted = [slug for slug in dict.fromkeys(parents) if slug not in families]
        if not wanted:
            break
    return families


def _family(transaction: Transaction, slug: str) -> Family | None:
    items = transaction.rows("prompt_branches", slug=slug, branch=None)
    if not items:
        return None
    active = tuple(decode(Version, row["body"]) for row in items)
    return Family(
        slug=slug,
        branches=tuple(_branch(row, each) for row, each in zip(items, active, strict=True)),
        active=active,
        labels=tuple(transaction.records(Label, "prompt_labels", slug=slug)),
        evidence={row["name"]: decode(Posterior, row["evidence"]) for row in items if row["evidence"]},
    )


def _need(transaction: Transaction, slug: str, branch: str, number: int) -> dict[str, Any]:
    row = transaction.one("prompt_version_get", slug=slug, branch=branch, number=number)
    if row is None:
        msg = f"Unknown version {number} of prompt {slug!r} on branch {branch!r}."
        raise NotFound(msg)
    return row


def _note(transaction: Transaction, slug: str, event: PromptEvent) -> None:
    body = encode(event)
    transaction.run("prompt_event_insert", slug=slug, body=body, branch=event.branch, kind=event.kind)


# ---- writing --------------------------------------------------------------------------------------------------------


def _save(transaction: Transaction, write: Write, *, by: str, now: float, namings: list[Version]) -> Version:
    version = write.version
    place = {"slug": version.slug, "branch": version.branch}
    stands = transaction.one("prompt_branch_get", **place)
    if write.base is not None and write.base != (stands["head"] if stands else 0):
        head = f"its head is {stands['head']}" if stands else "the branch does not exist"
        msg = (
            f"Branch {version.branch!r} of prompt {version.slug!r} has changed: {head}, expected {write.base}."
            " Read it again and reapply your change."
        )
        raise Conflict(msg)
    if write.begins is not None:
        if stands:
            msg = f"Branch {version.branch!r} of prompt {version.slug!r} already exists. Use another name."
            raise Conflict(msg)
        _need(transaction, version.slug, *write.begins)
    elif stands is None and version.branch != "main" and _family(transaction, version.slug) is not None:
        msg = f"Unknown branch {version.branch!r} of prompt {version.slug!r}. Fork it first."
        raise NotFound(msg)
    digest = version.digest or digest_of(version)
    if stands and write.if_changed:
        before = decode(Version, _need(transaction, version.slug, version.branch, stands["head"])["body"])
        if before.digest == digest:
            return before
    number = (stands["head"] if stands else 0) + 1
    semver = _free(write, digest, namings)
    stored = msgspec.structs.replace(
        version,
        number=number,
        semver=semver,
        digest=digest,
        created_at=write.at or now,
        author=version.author or by,
        supersedes=number - 1,
        branched_from="{}:{}".format(*write.begins) if write.begins else "",
    )
    namings.append(stored)
    transaction.run("prompt_version_insert", **place, number=number, body=encode(stored), evidence=b"")
    transaction.run("prompt_branch_put", **place, head=number, active=number)
    kind: EventKind = "branch" if write.begins else "write"
    event = PromptEvent(kind=kind, branch=version.branch, number=number, to=number, by=by, at=Time(now))
    _note(transaction, version.slug, event)
    if write.audit:
        chosen = {**(write.audit.selection or {}), "branch": stored.branch, "number": number}
        chained(transaction, [msgspec.structs.replace(write.audit, version=semver, selection=chosen)])
    return stored


def _free(write: Write, digest: str, namings: Sequence[Version]) -> str:
    """Return a version's semantic version, raised above its branch's newest and to one that no other text has."""
    semver, slug, branch = write.version.semver, write.version.slug, write.version.branch
    taken = {each.semver for each in namings if each.digest != digest}
    if write.named and semver in taken:
        msg = (
            f"semver: version {semver} of prompt {slug!r} is another text. Use {next_semver(semver, 'patch')} or later,"
            " or omit it."
        )
        raise Conflict(msg)
    newest = max((each for each in namings if each.branch == branch), key=lambda each: each.number, default=None)
    if newest and not (write.named or write.at) and newest.digest != digest and rank(semver) < rank(newest.semver):
        semver = next_semver(newest.semver, "patch")
    return free_semver(semver, taken)


def _standing(transaction: Transaction, slug: str, branch: str) -> Branch:
    row = transaction.one("prompt_branches", slug=slug, branch=branch)
    if row is None:
        msg = f"Unknown branch {branch!r} of prompt {slug!r}."
        raise NotFound(msg)
    return _branch(row, decode(Version, row["body"]))


def _branch(row: dict[str, Any], active: Version) -> Branch:
    return record(Branch, row, semver=active.semver, digest=active.digest)


def observed(transaction: Transaction, observation: Observation) -> tuple[int, bool]:
    """Store an observation and update its version's weight; return its number and whether it counted.

    For a turn without a user, the conversation counts as the user.
    """
    place = {"slug": observation.slug, "branch": observation.branch, "number": observation.number}
    row = _need(transaction, observation.slug, observation.branch, observation.number)
    who = observation.user or (nameless(observation.conversation) if observation.turn else "")
    lately = transaction.run("prompt_observed_lately", **place, limit=CAP_WINDOW - 1).fetchall()
    counted = capped([(user, weight) for user, weight in reversed(lately)], who) if who else 1.0
    no = transaction.value("prompt_observation_insert", **place, user=who, counted=counted, body=encode(observation))
    weight, evidence = row["weight"], row["evidence"]
    if counted:
        before = aligned(decode(Posterior, evidence) if evidence else Posterior(), known_signals(observation.signals))
        evidence = encode(update(before, features(before.signals, observation.signals), observation.score))
        weight = ema(weight, observation.score)
    transaction.run("prompt_version_learn", **place, weight=weight, evidence=evidence)
    return no, counted > 0


def nameless(conversation: str) -> str:
    """Return the pseudo user of a conversation without a user; no user id has this prefix."""
    return f"\x1f{conversation}"


def revised(transaction: Transaction, no: int, observation: Observation) -> bool:
    """Replace an observation, and recompute its version's weight as if it had been stored first.

    Return False if it does not exist.
    """
    row = transaction.one("prompt_observation_get", no=no)
    if row is None:
        return False
    before = decode(Observation, row["body"])
    after = msgspec.structs.replace(
        before,
        score=observation.score,
        sentiment=observation.sentiment,
        corrections=observation.corrections,
        outcome=observation.outcome,
    )
    transaction.run("prompt_observation_revise", no=no, slug=row["slug"], branch=row["branch"],
        body=encode(after))  # fmt: skip
    if row["counted"]:
        place = {"slug": row["slug"], "branch": row["branch"], "number": row["number"]}
        version = _need(transaction, row["slug"], row["branch"], row["number"])
        later = transaction.value("prompt_observations_later", **place, no=no)
        change, stands = after.score - before.score, decode(Posterior, version["evidence"])
        evidence = update_revised(stands, features(stands.signals, before.signals), change, later)
        weight = ema_revised(version["weight"], change, later)
        transaction.run("prompt_version_relearn", **place, weight=weight, evidence=encode(evidence))
    return True
