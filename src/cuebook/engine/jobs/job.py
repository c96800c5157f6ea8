"""A background job: a query for due work in stored state, a function that does one piece of it, and their loop."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.scheduling import MAX_WAIT_S
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.claims import Claims
from cuebook.errors import CuebookError
from cuebook.records.memory import Scope

W = TypeVar("W", bound=Hashable)
log = logging.getLogger("cuebook.jobs")
#: Seconds that a list of due work is used while other workers run. Finished work stays claimed for longer.
FRESH_S: Final = 1.0


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
    it was derived from. A job with `is_local` works for its process only, and each process runs it.
    """

    name: str
    due: Callable[[Services, DueQuery], Awaitable[Sequence[DueWork[W]]]]
    run: Callable[[Services, Scope, W], Awaitable[object]]
    batch_size: int = 100
    is_local: bool = False


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
    """The result of running a job: pieces done and those that other workers run, and whether the time ran out."""

    done: int = 0
    claimed: int = 0
    is_cut: bool = False

    def __add__(self, other: "RunResult") -> "RunResult":
        return RunResult(
            done=self.done + other.done, claimed=self.claimed + other.claimed, is_cut=self.is_cut or other.is_cut
        )


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
    the others: after `patience_s` seconds the loop stops, but not before it has done a piece.
    """
    clock = asyncio.get_running_loop().time
    until, done, claimed, skipped = clock() + patience_s, 0, 0, 0
    ran: set[DueWork[Any]] = set()
    while True:
        limit, loaded = job.batch_size + skipped, clock()
        due = await _logged(services, job, "", job.due(services, replace(query or DueQuery(), limit=limit))) or ()
        fresh = in_turn(each for each in due if each not in ran)
        if not fresh and len(due) < limit:
            return RunResult(done=done, claimed=claimed)
        skipped = len(due) - len(fresh)
        while fresh and (claims is None or clock() - loaded < FRESH_S):
            if is_stopping() or (done and clock() >= until):
                return RunResult(done=done, claimed=claimed, is_cut=True)
            await services.foreground.wait_until_free(MAX_WAIT_S)
            place = (
                0 if claims is None else await claims.take([(job.name, each.tenant, each.subject) for each in fresh])
            )
            claimed += len(fresh) if place is None else place
            ran.update(fresh if place is None else fresh[: place + 1])
            if place is None:
                break
            each, fresh = fresh[place], fresh[place + 1 :]
            call = _logged(services, job, f" for {each.subject}", job.run(services, Scope(each.tenant), each.work))
            done += bool(await (call if claims is None else claims.run(call)))


R = TypeVar("R")


async def _logged(services: Services, job: Job[Any], subject: str, call: Awaitable[R]) -> R | None:
    """Return the result of a call, or None after logging its error."""
    try:
        return await call
    except (CuebookError, OSError) as error:
        log.warning("Background job %s failed%s: %s", job.name, subject, services.writer.clean(str(error)))
    except Exception:  # outermost loop of background jobs; a sink or model is user code and may raise anything
        log.exception("Background job %s failed%s; it will be retried", job.name, subject)
    return None
