"""A background job: a query for due work in stored state, a function that does one piece of it, and their loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.scheduling import MAX_WAIT_S
from cuebook.engine.core.services import Services
from cuebook.errors import CuebookError
from cuebook.records.memory import Scope

W = TypeVar("W", bound=Hashable)
log = logging.getLogger("cuebook.jobs")


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
    it was derived from.
    """

    name: str
    due: Callable[[Services, DueQuery], Awaitable[Sequence[DueWork[W]]]]
    run: Callable[[Services, Scope, W], Awaitable[object]]
    batch_size: int = 100


def of_conversations(pairs: Iterable[tuple[str, str]]) -> list[DueWork[str]]:
    """Return due work for conversations, by tenant and id."""
    return [DueWork(tenant, f"conversation {conversation}", conversation) for tenant, conversation in pairs]


async def run_due(
    services: Services, job: Job[Any], query: DueQuery | None = None, *, patience_s: float = float("inf")
) -> tuple[int, bool]:
    """Run what is due of a job, each piece once, in batches. Return the number done and whether the time ran out.

    A failed piece stays due and does not block the others: after `patience_s` seconds the loop stops, but not before it
    has done a piece.
    """
    clock = asyncio.get_running_loop().time
    until, done, skipped = clock() + patience_s, 0, 0
    ran: set[DueWork[Any]] = set()
    while True:
        limit = job.batch_size + skipped
        due = await _logged(services, job, "", job.due(services, replace(query or DueQuery(), limit=limit))) or ()
        fresh = [each for each in due if each not in ran]
        if not fresh and len(due) < limit:
            return done, False
        skipped = len(due) - len(fresh)
        for each in fresh:
            if done and clock() >= until:
                return done, True
            await services.foreground.wait_until_free(MAX_WAIT_S)
            ran.add(each)
            call = job.run(services, Scope(each.tenant), each.work)
            done += bool(await _logged(services, job, f" for {each.subject}", call))


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
