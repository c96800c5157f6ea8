"""Made by scripts/blocking.py from `cuebook.app.prompts`: `scripts/check --fix` makes it anew."""

from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.app.blocking.host import Host
from cuebook.app.prompts.clusters import Clusters
from cuebook.app.prompts.impact import TURNS, Impact
from cuebook.app.prompts.learning import Observed, Weighed
from cuebook.app.prompts.reading import Rendered
from cuebook.app.prompts.writing import KEEP
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

    def page(self, *, prefix: str = "", limit: int = 50, after: str = "") -> FamilyPage:
        """List prompts by name."""
        return self._host.run(lambda book: book.prompts.page(prefix=prefix, limit=limit, after=after))

    def whose(self, project: str | None) -> str:
        """Give the project whose own prompts hold: the one named, "" for nobody's, else the setting's."""
        return self._host.read(lambda book: book.prompts.whose(project))

    def family(self, slug: str, *, project: str = "") -> Family:
        """Give a prompt as it stands: branches, active versions, labels. Raises NotFound.

        A `project` that has its own of that id gives that one.
        """
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
        """Give a version: the active one of a branch unless named, or the one a label points at. Raises NotFound."""
        return self._host.run(
            lambda book: book.prompts.get(slug, branch=branch, version=version, label=label, project=project)
        )

    def versions(self, slug: str, *, branch: str | None = None) -> list[Version]:
        """Give all versions of a prompt, of one branch or of all, oldest first."""
        return self._host.run(lambda book: book.prompts.versions(slug, branch=branch))

    def events(self, slug: str, *, limit: int = 100) -> list[Event]:
        """Give what was done to a prompt, the newest first."""
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
        """Give a version with its ancestors merged in. Raises NotFound, InvalidInput."""
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
        """Render a prompt. Raises NotFound, and InvalidInput naming the parameter that is missing or unknown.

        A `project` says whose own prompt stands for it, "" nobody's: the setting's unless named.
        `log` has it stand in the audit, asked for `by` somebody; under one key once.
        """
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

    def clusters(self, *, prefix: str = "", least: float | None = None) -> Clusters:
        """Group prompts that are about the same, by the embedder or by their words, and name near duplicates.

        Groups become one while their mean likeness is `least` or more. Raises InvalidInput.
        """
        return self._host.run(lambda book: book.prompts.clusters(prefix=prefix, least=least))

    def rating(
        self, slug: str, *, branch: str | None = None, version: int | None = None, label: str | None = None
    ) -> Rating:
        """Say how good a version is, from 0 to 100: the sum of parts, each with its name, points and reason."""
        return self._host.run(lambda book: book.prompts.rating(slug, branch=branch, version=version, label=label))

    def diff(self, slug: str, a: int, b: int | None = None, *, branch: str | None = None) -> Difference:
        """Give what is other in version `b` (the active one unless named) than in `a`."""
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
        """Say what version `b` (the active one unless named) would have done to past windows in the place of `a`.

        Measured on the last `turns` (1 to 200) that had the prompt in front; with `user` those of their conversations
        alone are named. Raises NotFound, InvalidInput.
        """
        return self._host.run(lambda book: book.prompts.impact(slug, a, b, branch=branch, turns=turns, user=user))

    def weights(self, slug: str) -> list[Weighed]:
        """Give how the edge weight of each version that was observed went, by the newest 5,000 observations.

        Branches and versions in order, points oldest first. Raises NotFound.
        """
        return self._host.run(lambda book: book.prompts.weights(slug))

    def course(self, slug: str, event: Event) -> Course:
        """Give how the evidence went that a version was taken back on: `event` is a rollback of `events`.

        Made of the newest 50,000 observations of both versions, as they stand by now. Raises InvalidInput for another
        event, NotFound.
        """
        return self._host.run(lambda book: book.prompts.course(slug, event))

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
        """Keep a round's word on a version: named, its conversation's, or the active one. Raises InvalidInput."""
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
        """Make an earlier version active again; the one before is not explored until it is cleared.

        `to` is the version before the active one unless named. Raises InvalidInput where there is none.
        """
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

    def save(
        self,
        slug: str,
        sections: Mapping[str, str],
        *,
        branch: str = MAIN,
        type: str | None = None,
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
        """Write a new version of a prompt, or a prompt that is new; what is not given stays what it was.

        `base` is the version its writer saw: Conflict where the head has moved on. The semantic version is suggested by
        what changed unless given. `by` is its author unless one is named. Raises InvalidInput.
        """
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
        """Begin a branch with a copy of a version; nothing is shared afterwards.

        Raises Conflict where there is a branch or a label of that name.
        """
        return self._host.run(
            lambda book: book.prompts.fork(
                slug, name, branch=branch, version=version, label=label, by=by, idempotency_key=idempotency_key
            )
        )

    def merge(
        self, slug: str, branch: str, *, into: str = MAIN, by: str = "", idempotency_key: str | None = None
    ) -> tuple[Version | None, Merged]:
        """Merge a branch's sections into another, against the version it was forked from.

        With conflicts nothing is written: they are answered, each with both texts. Raises NotFound, InvalidInput.
        """
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
        """Point a label such as `production` at a version, the active one unless named, or where another points.

        Raises Conflict where a branch has that name.
        """
        return self._host.run(
            lambda book: book.prompts.label(
                slug, name, branch=branch, version=version, label=label, by=by, idempotency_key=idempotency_key
            )
        )
