"""A blocking book's prompts: `Cuebook.prompts` without `await`."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cuebook.app.blocking.parts import Host
from cuebook.app.prompts import KEEP, Observed, Rendered
from cuebook.app.prompts.files import Change
from cuebook.app.prompts.impact import TURNS, Impact
from cuebook.app.prompts.learning import Weighed
from cuebook.ports.prompts import Event, Family, FamilyPage
from cuebook.prompts.difference import Difference
from cuebook.prompts.docket import Course
from cuebook.prompts.inherit import Merged
from cuebook.prompts.lint import Finding
from cuebook.prompts.rating import Rating
from cuebook.prompts.select import EPSILON, Selection
from cuebook.records.prompt import MAIN, Branch, Engine, Label, Resolved, TaskOutcome, Version


class BlockingPrompts:
    """`Cuebook.prompts` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    # reading

    def page(self, *, prefix: str = "", limit: int = 50, after: str = "") -> FamilyPage:
        """List prompts by name."""
        return self._host.run(lambda book: book.prompts.page(prefix=prefix, limit=limit, after=after))

    def whose(self, project: str | None) -> str:
        """Give the project whose own prompts hold: the one named, "" for nobody's, else the setting's."""
        return self._host.read(lambda book: book.prompts.whose(project))

    def family(self, slug: str, *, project: str = "") -> Family:
        """Read a prompt as it stands, a project's own where it has one. Raises NotFound."""
        return self._host.run(lambda book: book.prompts.family(slug, project=project))

    def get(
        self,
        slug: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        project: str = "",
    ) -> Version:
        """Read a version: the active one of a branch unless named, or the one a label points at. Raises NotFound."""
        return self._host.run(
            lambda book: book.prompts.get(slug, branch=branch, version=version, label=label, project=project)
        )

    def versions(self, slug: str, *, branch: str | None = None) -> list[Version]:
        """Read all versions of a prompt, of one branch or of all, oldest first."""
        return self._host.run(lambda book: book.prompts.versions(slug, branch=branch))

    def events(self, slug: str, *, limit: int = 100) -> list[Event]:
        """Read what was done to a prompt, the newest first."""
        return self._host.run(lambda book: book.prompts.events(slug, limit=limit))

    def resolve(
        self,
        slug: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        project: str = "",
    ) -> Resolved:
        """Read a version with its ancestors merged in. Raises NotFound, InvalidInput."""
        return self._host.run(
            lambda book: book.prompts.resolve(slug, branch=branch, version=version, label=label, project=project)
        )

    def render(
        self,
        slug: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        project: str | None = None,
        log: bool = False,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Rendered:
        """Render a prompt, with `log` into the audit. Raises NotFound, and InvalidInput naming the parameter."""
        return self._host.run(
            lambda book: book.prompts.render(
                slug,
                params,
                branch=branch,
                version=version,
                label=label,
                project=project,
                log=log,
                by=by,
                idempotency_key=idempotency_key,
            )
        )

    def lint(self, *slugs: str) -> list[Finding]:
        """Give what is wrong about prompts, the worst first: of all, or of some beside all. Raises NotFound."""
        return self._host.run(lambda book: book.prompts.lint(*slugs))

    def rating(
        self, slug: str, *, branch: str | None = None, version: int | None = None, label: str | None = None
    ) -> Rating:
        """Say how good a version is, from 0 to 100: the sum of parts, each with its name, points and reason."""
        return self._host.run(lambda book: book.prompts.rating(slug, branch=branch, version=version, label=label))

    def diff(self, slug: str, a: int, b: int | None = None, *, branch: str | None = None) -> Difference:
        """Tell what is other in version `b` (the active one unless named) than in `a`."""
        return self._host.run(lambda book: book.prompts.diff(slug, a, b, branch=branch))

    def impact(
        self,
        slug: str,
        a: int,
        b: int | None = None,
        *,
        branch: str | None = None,
        turns: int = TURNS,
        user: str | None = None,
    ) -> Impact:
        """Tell what version `b` would have done to the last turns' windows in the place of `a`. Raises NotFound."""
        return self._host.run(lambda book: book.prompts.impact(slug, a, b, branch=branch, turns=turns, user=user))

    # writing

    def save(
        self,
        slug: str,
        sections: Mapping[str, str],
        *,
        branch: str = MAIN,
        type: str | None = None,  # noqa: A002  # the wire's name
        override_sections: Mapping[str, str] | None = None,
        params: Any = None,
        engine: Engine | None = None,
        inherits: str | None = KEEP,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        author: str = "",
        description: str | None = None,
        semver: str | None = None,
        sync: bool | None = None,
        base: int | None = None,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Version:
        """Write a new version of a prompt, or a prompt that is new. Raises InvalidInput, Conflict."""
        return self._host.run(
            lambda book: book.prompts.save(
                slug,
                sections,
                branch=branch,
                type=type,
                override_sections=override_sections,
                params=params,
                engine=engine,
                inherits=inherits,
                metadata=metadata,
                tags=tags,
                author=author,
                description=description,
                semver=semver,
                sync=sync,
                base=base,
                by=by,
                idempotency_key=idempotency_key,
            )
        )

    def store(
        self, versions: Sequence[Version], *, base: int | None = None, if_changed: bool = False, by: str = ""
    ) -> list[Version]:
        """Store whole versions, all or none, each on its branch's head. Raises InvalidInput, Conflict, NotFound."""
        return self._host.run(lambda book: book.prompts.store(versions, base=base, if_changed=if_changed, by=by))

    def check(self, versions: Sequence[Version]) -> None:
        """Refuse versions that could not be stored, alone or with each other. Raises InvalidInput."""
        self._host.run(lambda book: book.prompts.check(versions))

    def fork(
        self,
        slug: str,
        name: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Version:
        """Begin a branch with a copy of a version; nothing is shared afterwards. Raises Conflict where there is one."""
        at: dict[str, Any] = {"branch": branch, "version": version, "label": label}
        return self._host.run(lambda book: book.prompts.fork(slug, name, **at, by=by, idempotency_key=idempotency_key))

    def merge(
        self, slug: str, branch: str, *, into: str = MAIN, by: str = "", idempotency_key: str | None = None
    ) -> tuple[Version | None, Merged]:
        """Merge a branch's sections into another; with conflicts nothing is written and they are answered."""
        return self._host.run(
            lambda book: book.prompts.merge(slug, branch, into=into, by=by, idempotency_key=idempotency_key)
        )

    def label(
        self,
        slug: str,
        name: str,
        *,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Label:
        """Point a label such as `production` at a version, the active one unless named, or where another points."""
        at: dict[str, Any] = {"branch": branch, "version": version, "label": label}
        return self._host.run(lambda book: book.prompts.label(slug, name, **at, by=by, idempotency_key=idempotency_key))

    # choosing and learning

    def select(
        self,
        slug: str,
        signals: Mapping[str, float] | None = None,
        *,
        strategy: str | None = None,
        epsilon: float = EPSILON,
        seed: int | None = None,
    ) -> Selection:
        """Choose among a prompt's variants, the active versions of its branches. The same seed chooses the same."""
        return self._host.run(
            lambda book: book.prompts.select(slug, signals, strategy=strategy, epsilon=epsilon, seed=seed)
        )

    def weights(self, slug: str) -> list[Weighed]:
        """Give how the edge weight of each version that was observed went."""
        return self._host.run(lambda book: book.prompts.weights(slug))

    def course(self, slug: str, event: Event) -> Course:
        """Give how the evidence went that a version was taken back on: `Learning.course`."""
        return self._host.run(lambda book: book.prompts.course(slug, event))

    def observe(
        self,
        slug: str,
        *,
        sentiment: float,
        corrections: int = 0,
        outcome: TaskOutcome | None = None,
        branch: str | None = None,
        version: int | None = None,
        label: str | None = None,
        signals: Mapping[str, float] | None = None,
        propensity: float = 1.0,
        conversation: str = "",
        user: str = "",
        idempotency_key: str | None = None,
    ) -> Observed:
        """Keep what a round says about the version that spoke, the active one unless named. Raises InvalidInput."""
        return self._host.run(
            lambda book: book.prompts.observe(
                slug,
                sentiment=sentiment,
                corrections=corrections,
                outcome=outcome,
                branch=branch,
                version=version,
                label=label,
                signals=signals,
                propensity=propensity,
                conversation=conversation,
                user=user,
                idempotency_key=idempotency_key,
            )
        )

    def roll_back(
        self,
        slug: str,
        *,
        branch: str = MAIN,
        to: int | None = None,
        reason: str,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Branch:
        """Make an earlier version active again; the one before is not explored until it is cleared."""
        return self._host.run(
            lambda book: book.prompts.roll_back(
                slug, branch=branch, to=to, reason=reason, by=by, idempotency_key=idempotency_key
            )
        )

    def clear(
        self,
        slug: str,
        version: int,
        *,
        branch: str = MAIN,
        by: str = "",
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> Branch:
        """Let a version that was rolled back be explored again."""
        return self._host.run(
            lambda book: book.prompts.clear(
                slug, version, branch=branch, by=by, reason=reason, idempotency_key=idempotency_key
            )
        )


class BlockingPromptFiles:
    """`Cuebook.prompt_files` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def root(self) -> Path:
        """The folder they lie in."""
        return self._host.read(lambda book: book.prompt_files.root)

    def push(self, folder: Path | None = None, *, dry_run: bool = False, force: bool = False) -> list[Change]:
        """Store what was edited or added on disk, all or nothing. Raises InvalidInput, BackendError, Conflict."""
        return self._host.run(lambda book: book.prompt_files.push(folder, dry_run=dry_run, force=force))

    def pull(
        self,
        folder: Path | None = None,
        *,
        slugs: Collection[str] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> list[Change]:
        """Write the files of the heads, older versions into `.objects`, and the registry."""
        return self._host.run(lambda book: book.prompt_files.pull(folder, slugs=slugs, dry_run=dry_run, force=force))

    def drift(self, folder: Path | None = None) -> list[Change]:
        """List where files, registry and graph do not say the same; nothing where all is well."""
        return self._host.run(lambda book: book.prompt_files.drift(folder))

    def edited(self, slug: str, branch: str) -> tuple[str, Version] | None:
        """Read a branch's file, its path and what it says, where it was edited and is not stored yet."""
        return self._host.run(lambda book: book.prompt_files.edited(slug, branch))
