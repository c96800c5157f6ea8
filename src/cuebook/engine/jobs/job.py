"""A background job: a query for due work in stored state, a function that does one piece of it, and their loop."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.engine.core.scheduling import MAX_WAIT_S
from cuebook.engine.core.services import LruCache, Services
from cuebook.engine.jobs.claims import Claims
from cuebook.errors import CuebookError
from cuebook.records.memory import Scope

W = TypeVar("W", bound=Hashable)
log = logging.getLogger("cuebook.jobs")
#: Seconds that a list of due work is used while other workers run. Finished work stays claimed for longer.
FRESH_S: Final = 1.0
#: Seconds until a failed piece is tried again: doubled with each failure, up to the maximum.
RETRY_S, MAX_RETRY_S = 1.0, 60.0
#: Most failing pieces that a process remembers.
FAILURES: Final = 1_000


class DueQuery(Struct, frozen=True, kw_only=True):
    """A query for due work. `hurry` ignores cool-downs; `conversation` limits compaction to one conversation."""

    limit: int = 100
    hurry: bool = False
    conversation: str | None = None


class DueWork(Struct, Generic[W], frozen=True):
    """A piece of due work, as plain data that can be pickled. Equal pieces are the same work in the same state.

    The log names the `subject`, such as "conversation c1", and `settle` reports the sum of `count`.
    """

    tenant: str
    subject: str
    work: W
    count: int = 1


class Job(Struct, Generic[W], frozen=True, kw_only=True):
    """A background job. Its functions belong to a module, so that another process can load them by name.

    `due` returns due work, most urgent first. `run` does one piece in the scope of its tenant, and returns a true value
    if it changed anything. Several processes may run the same piece: every write is a compare-and-set on the rows that
    it was derived from. A job with `is_local` works for its process only, and each process runs it. With `remembers`,
    only a process that runs the job knows what is due: the others would count work that was done elsewhere.
    """

    name: str
    due: Callable[[Services, DueQuery], Awaitable[Sequence[DueWork[W]]]]
    run: Callable[[Services, Scope, W], Awaitable[object]]
    batch_size: int = 100
    is_local: bool = False
    remembers: bool = False


def of_conversations(pairs: Iterable[tuple[str, str]]) -> list[DueWork[str]]:
    """Return due work for conversations, by tenant and id."""
    return [DueWork(tenant, f"conversation {conversation}", conversation) for tenant, conversation in pairs]


def in_turn(due: Iterable[DueWork[W]]) -> list[DueWork[W]]:
    """Return due work from tenants in turn, so that a busy tenant does not delay the others."""
    counts: Counter[str] = Counter()
    places = []
    for each in due:
        places.append((counts[each.tenant], each))
        counts[each.tenant] += 1
    return [each for _, each in sorted(places, key=itemgetter(0))]


class RunResult(Struct, frozen=True, kw_only=True):
    """The result of running a job: pieces done, those that other workers run, and whether the time ran out.

    `is_left` says that pieces were still due at the end, or that this is not known.
    """

    done: int = 0
    claimed: int = 0
    is_cut: bool = False
    is_left: bool = False

    def __add__(self, other: "RunResult") -> "RunResult":
        return RunResult(
            done=self.done + other.done,
            claimed=self.claimed + other.claimed,
            is_cut=self.is_cut or other.is_cut,
            is_left=self.is_left or other.is_left,
        )


class JobFailures(Struct):
    """Failing pieces of this process by job, tenant and subject: the cause, the delay, and when to try again."""

    pieces: LruCache[tuple[str, str, str], tuple[str, float, float]] = field(default_factory=lambda: LruCache(FAILURES))

    def is_waiting(self, place: tuple[str, str, str], now: float) -> bool:
        """Return whether a piece failed and is not to be tried again yet."""
        return place in self.pieces and now < self.pieces[place][2] <= now + MAX_RETRY_S  # a clock may be set back

    def add(self, place: tuple[str, str, str], cause: str, now: float) -> bool:
        """Store a failure. Return whether its cause is new."""
        before, delay, _ = self.pieces.get(place, ("", 0.0, 0.0))
        delay = min(2 * delay, MAX_RETRY_S) or RETRY_S
        self.pieces[place] = cause, delay, now + delay
        return cause != before


async def run_due(
    services: Services,
    job: Job[Any],
    query: DueQuery | None = None,
    *,
    patience_s: float = float("inf"),
    claims: Claims | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Run what is due of a job, each piece once, in batches.

    With `claims`, pieces that other workers have claimed are left to them. A failed piece stays due and does not block
    the others: after `patience_s` seconds the loop stops, but not before it has done a piece. It is tried again after a
    growing delay, or at once in a `hurry`.
    """
    clock, query = asyncio.get_running_loop().time, query or DueQuery()
    failures = services.caches.progress_of(JobFailures)

    def may_run(each: DueWork[Any]) -> bool:
        return each not in ran and (query.hurry or not failures.is_waiting(_place(job, each), services.clock.now()))

    until, done, claimed, skipped = clock() + patience_s, 0, 0, 0
    ran: set[DueWork[Any]] = set()
    while True:
        limit, loaded = job.batch_size + skipped, clock()
        found = await _logged(services, (job.name, "", ""), job.due(services, replace(query, limit=limit)))
        due = found or ()
        fresh = in_turn(each for each in due if may_run(each))
        if not fresh and len(due) < limit:
            return RunResult(done=done, claimed=claimed, is_left=found is None or bool(due))
        skipped = len(due) - len(fresh)
        while fresh and (claims is None or clock() - loaded < FRESH_S):
            if is_stopping() or (done and clock() >= until):
                return RunResult(done=done, claimed=claimed, is_cut=True)
            await services.foreground.wait_until_free(MAX_WAIT_S)
            place = 0 if claims is None else await claims.take([_place(job, each) for each in fresh])
            claimed += len(fresh) if place is None else place
            ran.update(fresh if place is None else fresh[: place + 1])
            if place is None:
                break
            each, fresh = fresh[place], fresh[place + 1 :]
            call = _logged(services, _place(job, each), _traced(services, job, each))
            done += bool(await (call if claims is None else claims.run(call)))


async def _traced(services: Services, job: Job[W], each: DueWork[W]) -> object:
    """Run a piece in a span of its own."""
    with services.tracing.span(f"job {job.name}", cuebook__job=job.name):
        return await job.run(services, Scope(each.tenant), each.work)


R = TypeVar("R")


def _place(job: Job[Any], each: DueWork[Any]) -> tuple[str, str, str]:
    return job.name, each.tenant, each.subject


async def _logged(services: Services, place: tuple[str, str, str], call: Awaitable[R]) -> R | None:
    """Return the result of a call, or None after logging its error, once for the same cause."""
    failures, now = services.caches.progress_of(JobFailures), services.clock.now
    name, subject = place[0], f" for {place[2]}" if place[2] else ""
    try:
        result = await call
    except (CuebookError, OSError) as error:
        cause = services.writer.clean(str(error))
        if failures.add(place, cause, now()):
            log.warning("Background job %s failed%s: %s", name, subject, cause)
    except Exception as error:  # outermost loop of background jobs; a sink or model may raise anything
        if failures.add(place, repr(error), now()):
            log.exception("Background job %s failed%s; it will be retried", name, subject)
    else:
        failures.pieces.pop(place, None)
        return result
    return None
