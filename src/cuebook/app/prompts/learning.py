"""Select among prompt variants (A/B testing), store observations of their success, and roll versions back."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from cuebook.app.arguments import By, IdempotencyKey
from cuebook.app.prompts import answers
from cuebook.app.prompts.answers import BranchEntry, ObservationResult, RolledBack
from cuebook.app.prompts.arguments import HIGHEST, LabelName, Number, Slug, TargetBranch
from cuebook.app.prompts.reading import PromptReading
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.branch_trial import GUARD, OBSERVATIONS
from cuebook.engine.core.prompt_reading import select_from
from cuebook.engine.jobs.rollback import learn
from cuebook.engine.jobs.rollback import status as rollback_status
from cuebook.errors import InvalidInput
from cuebook.interfaces.prompts import PromptEvent
from cuebook.operations import Argument, operation
from cuebook.prompts.learn import score, trail
from cuebook.prompts.rollback import RollbackStatus
from cuebook.prompts.rollback_evidence import Course, course
from cuebook.prompts.select import EPSILON, Choice, Selection
from cuebook.records.memory import Scope
from cuebook.records.prompt import MAIN, Missing, Observation, Strategy, TaskOutcome

__all__ = ["Choice", "Course", "EdgeWeights", "PromptEvent", "PromptLearningApi", "Selection"]


class EdgeWeights(Struct, frozen=True, kw_only=True):
    """The history of a version's edge weight: each observation's time (Unix seconds), score and resulting weight."""

    branch: str
    number: int
    points: tuple[tuple[float, float, float], ...]


class PromptLearningApi(PromptReading):
    """The selection and learning operations of `cue.prompts`."""

    async def weights(self, slug: str) -> list[EdgeWeights]:
        """Return the edge weight history of each observed version, from the newest 5,000 observations.

        Sorted by branch and version, points oldest first. Raises NotFound.
        """
        observations = await self._services.prompts.observations(Scope(), (await self.family(slug)).slug)
        by_version: dict[tuple[bool, str, int], list[Observation]] = {}
        for each in observations:
            by_version.setdefault((each.branch != MAIN, each.branch, each.number), []).append(each)
        return [
            EdgeWeights(
                branch=branch,
                number=number,
                points=tuple((each.at, each.score, weight) for each, weight in zip(said, trail(said), strict=True)),
            )
            for (_, branch, number), said in sorted(by_version.items())
        ]

    async def course(self, slug: str, event: PromptEvent) -> Course:
        """Return the evidence over time that led to a rollback; `event` is a rollback from `events`.

        Computed from the newest 50,000 observations of both versions, as they are now. Raises NotFound, and
        InvalidInput for another kind of event.
        """
        if event.kind != "rollback":
            msg = f"event: {event.kind!r} has no evidence. Pass a rollback."
            raise InvalidInput(msg, where="event")
        name, numbers = (await self.family(slug)).slug, (event.number, event.to)
        observations, *_ = await self._services.prompts.observations_since(
            Scope(), name, event.branch, numbers, after=0, limit=OBSERVATIONS
        )
        since = float(event.evidence.get("since", 0.0))
        return course(observations, new=event.number, control=event.to, since=since, until=event.at, settings=GUARD)

    @operation("POST /api/prompts/{slug}/select", role="viewer")
    async def select(
        self,
        slug: Slug,
        signals: Annotated[dict[str, float | bool] | None, Meta(description="Signals and their strengths.")] = None,
        *,
        strategy: Annotated[Strategy | None, Meta(description="Default: epsilon_greedy.")] = None,
        epsilon: Annotated[float | None, Meta(ge=0, le=1, description="Exploration rate of epsilon_greedy.")] = None,
        seed: Annotated[
            int | None, Meta(ge=-(2**63), le=2**63 - 1, description="The same seed selects the same variant.")
        ] = None,
    ) -> Selection:
        """Select a variant of a prompt (an active version of its branches). Stores nothing. Raises NotFound."""
        return select_from(
            self._services,
            await self.family(slug),
            signals or {},
            strategy=strategy or "epsilon_greedy",
            epsilon=EPSILON if epsilon is None else epsilon,
            seed=seed,
        )

    @operation("POST /api/prompts/{slug}/observations", role="editor", status=201, stores=True)
    async def observe(
        self,
        slug: Slug,
        *,
        sentiment: Annotated[float, Meta(ge=0, le=1, description="User satisfaction.")],
        corrections: Annotated[
            int, Meta(ge=0, le=HIGHEST, description="Number of corrections."), Argument(wire="correctionCount")
        ] = 0,
        outcome: Annotated[
            TaskOutcome | None, Meta(description="Outcome of the task."), Argument(wire="taskOutcome")
        ] = None,
        missing: Annotated[
            Missing | None, Meta(description="How an unknown outcome counts. Default: the setting's.")
        ] = None,
        branch: TargetBranch = None,
        version: Number = None,
        label: LabelName = None,
        signals: Annotated[
            Mapping[str, Annotated[float, Meta(ge=0, le=1)] | bool] | None, Meta(description="Signals of the round.")
        ] = None,
        propensity: Annotated[float, Meta(gt=0, le=1, description="Probability with which it was selected.")] = 1.0,
        conversation: Annotated[str | None, Meta(description="Conversation of the feedback.")] = None,
        user: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> ObservationResult:
        """Store the outcome of a round for a version: the given, the conversation's or the active one.

        Send an Idempotency-Key, so that a retry does not count twice. Raises NotFound, InvalidInput.
        """
        services = self._services
        found = await self.get(slug, branch=branch, version=version, label=label)
        observation = Observation(
            slug=found.slug,
            branch=found.branch,
            number=found.number,
            score=score(sentiment, corrections, outcome, missing=missing or services.settings.missing),
            sentiment=sentiment,
            corrections=corrections,
            outcome=outcome,
            signals=dict(signals or {}),
            propensity=propensity,
            conversation=conversation or "",
            user=user,
            at=services.clock.now(),
        )
        named = version is not None or label is not None
        stands, judged = await learn(services, observation, found, named=named, placed=named or branch is not None)
        return ObservationResult(
            score=observation.score,
            edge_weight=stands.weight,
            rolled_back=judged.decision == "rollback",
            rollback=judged,
        )

    @operation("POST /api/prompts/{slug}/rollback", role="admin", stores=True)
    async def roll_back(
        self,
        slug: Slug,
        *,
        branch: TargetBranch = None,
        to: Annotated[
            int | None, Meta(ge=1, le=HIGHEST, description="Version to activate. Default: the one before.")
        ] = None,
        reason: Annotated[str, Meta(min_length=1, description="Reason for the history.")],
        by: By = "",
        idempotency_key: IdempotencyKey = None,
    ) -> RolledBack:
        """Make an earlier version active again, and write it to its file. The other is not selected until cleared.

        Raises NotFound, and InvalidInput if there is no earlier version.
        """
        services = self._services
        active = await self.get(slug, branch=branch)
        if to is not None:
            await self.get(slug, branch=branch, version=to)  # raises NotFound listing the versions
        event = PromptEvent(
            kind="rollback",
            branch=active.branch,
            number=active.number,
            to=active.number - 1 if to is None else to,
            by=by,
            reason=reason,
            at=services.clock.now(),
        )
        record = receipt(services, active, "rollback", agent=by, context={"to": event.to, "reason": reason})
        stands = await services.prompts.activate(Scope(), active.slug, event, audit=record)
        await services.restore_file(active.slug)
        return answers.rolled_back(await self.get(active.slug, branch=stands.name, version=stands.active), stands)

    async def rollback_status(self, slug: str) -> dict[str, RollbackStatus]:
        """Return for each branch whether its newest version is to be rolled back, or why not, with the evidence so far.

        Raises NotFound.
        """
        family = await self.family(slug)
        return {each.name: await rollback_status(self._services, family.slug, each) for each in family.branches}

    @operation("POST /api/prompts/{slug}/clear", role="admin", stores=True)
    async def clear(
        self,
        slug: Slug,
        version: Annotated[int, Meta(ge=1, le=HIGHEST, description="Rolled-back version."), Argument(metavar="N")],
        *,
        branch: TargetBranch = None,
        by: By = "",
        reason: Annotated[str, Meta(description="Reason for the history.")] = "",
        idempotency_key: IdempotencyKey = None,
    ) -> BranchEntry:
        """Allow a rolled-back version to be selected again. The active version does not change. Raises NotFound."""
        found = await self.get(slug, branch=branch, version=version)
        now = self._services.clock.now()
        event = PromptEvent(kind="clear", branch=found.branch, number=found.number, by=by, reason=reason, at=now)
        record = receipt(self._services, found, "clear", agent=by, context={"reason": reason})
        stands = await self._services.prompts.activate(Scope(), found.slug, event, audit=record)
        return answers.branch_entry(stands, await self.family(found.slug))
