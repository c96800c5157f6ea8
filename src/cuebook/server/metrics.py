"""Measure the server: Prometheus metrics at `/metrics`, and one line of JSON per request in the log.

Neither has content or names of users: a request is named by its route.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from litestar import get
from litestar.response.base import ASGIResponse
from litestar.types import HTTPScope
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cuebook.records.answer import to_json
from cuebook.server.caller import AnyRequest, own_cue

_log = logging.getLogger("cuebook.requests")
#: Seconds for which the longest lag of the event loop is shown: as long as Prometheus usually waits between two reads.
LAG_S = 60.0


#: Methods that are named. A client can send any text as its method.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def method_of(scope: HTTPScope) -> str:
    """Return the method of a request, or "other"."""
    return scope["method"] if scope["method"] in _METHODS else "other"


class FinishedRequest(Struct, frozen=True, kw_only=True):
    """An answered request, as the log shows it."""

    request: str  # its id
    method: str
    route: str
    status: int
    seconds: float
    received: int  # bytes of its body
    key: str = ""  # id of the API key


class Metrics:
    """The metrics of one server process."""

    def __init__(self, *, logs: bool) -> None:
        self._logs = logs
        self.registry = CollectorRegistry()
        names = ["route", "method", "status"]
        self._requests = Counter("cuebook_requests", "Answered requests", names, registry=self.registry)
        self._seconds = Histogram(
            "cuebook_request_seconds", "Time from the head of a request to the end of its answer", ["route"],
            registry=self.registry,
        )  # fmt: skip
        self._received = Counter("cuebook_received_bytes", "Bytes of request bodies", registry=self.registry)
        self._lags: dict[int, float] = {}  # longest of each second
        lag = Gauge(
            "cuebook_loop_lag_seconds", "Longest wait of the event loop within a minute", registry=self.registry
        )
        lag.set_function(lambda: max(self._lags.values(), default=0.0))
        self._due = Gauge("cuebook_jobs_due", "Pending background work", ["job"], registry=self.registry)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is read when the metrics are."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def finish(self, scope: HTTPScope, *, status: int, seconds: float, received: int) -> None:
        """Count an answered request."""
        state: Any = scope["state"]
        caller = state.get("caller")
        done = FinishedRequest(
            request=state["request_id"],
            method=method_of(scope),
            route=str(scope.get("path_template") or "-"),
            status=status,
            seconds=round(seconds, 4),
            received=received,
            key=caller.key if caller is not None else "",
        )
        self._requests.labels(done.route, done.method, str(status)).inc()
        self._seconds.labels(done.route).observe(seconds)
        self._received.inc(received)
        if self._logs:
            _log.info("%s", to_json(done).decode())

    def lag(self, seconds: float) -> None:
        """Note how much later than planned the event loop ran."""
        now = int(time.monotonic())
        self._lags = {at: each for at, each in self._lags.items() if at > now - LAG_S}
        self._lags[now] = max(seconds, self._lags.get(now, 0.0))

    def due(self, counts: dict[str, int]) -> None:
        """Set the pending background work by job."""
        for job, count in counts.items():
            self._due.labels(job).set(count)


@get("/metrics", role="viewer", media_type="text/plain")
async def metrics(request: AnyRequest) -> ASGIResponse:
    """Return the metrics of this process in Prometheus's text format."""
    found: Metrics = request.app.state.metrics
    found.due(await own_cue(request).backlog())
    body = await asyncio.to_thread(generate_latest, found.registry)
    return ASGIResponse(body=body, media_type=CONTENT_TYPE_LATEST)


ROUTES = [metrics]
