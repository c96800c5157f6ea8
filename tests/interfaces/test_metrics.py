"""Tests of `/metrics`, the log line of each request, and request ids."""

import json
import logging
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from shared_app import app_of

from conftest import config
from cuebook import Cuebook
from cuebook.config import build
from cuebook.server.app import Server

pytestmark = pytest.mark.anyio


async def test_metrics_and_log_count_requests_by_route(caplog: pytest.LogCaptureFixture) -> None:
    async with Cuebook.open(config(log="requests"), worker=False) as cue:
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8760") as client:
            post = {"posts": [{"sendFrom": "ann", "message": "I moved to Oslo. " * 40}]}
            with caplog.at_level(logging.INFO, "cuebook.requests"):
                stored = await client.post(
                    "/api/conversations/private/posts", json=post, headers={"x-request-id": "r-1"}
                )
                missing = await client.get("/api/conversations/other")
                await client.request("PRIVATE", "/api/conversations")
            answer = await client.get("/metrics")
    assert stored.headers["x-request-id"] == "r-1"
    assert missing.headers["x-request-id"] == missing.json()["requestId"]
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "cuebook.requests"]
    assert [(each["request"], each["route"], each["status"]) for each in lines[:2]] == [
        ("r-1", "/api/conversations/{conversation}/posts", 201),
        (missing.json()["requestId"], "/api/conversations/{conversation}", 404),
    ]
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    route = "/api/conversations/{conversation}/posts"
    assert found["cuebook_requests_total", *sorted(("POST", route, "201"))] == 1
    assert found["cuebook_request_seconds_count", route] == 1
    assert found["cuebook_received_bytes_total",] > 600
    assert found["cuebook_loop_lag_seconds",] >= 0
    assert {name for name, *_ in found} >= {"cuebook_jobs_due", "cuebook_turns", "cuebook_lease_conflicts"}
    assert "private" not in (answer.text + json.dumps(lines)).lower()


async def test_rollback_is_counted_only_where_it_runs(tmp_path: Path) -> None:
    settings = {"work.where": "workers", "store.url": str(tmp_path / "c.db")}
    async with Cuebook.open(build(arguments=settings, folder=str(tmp_path))) as cue:
        backlog = await cue.backlog()
    assert "rollback" not in backlog
    assert "compaction" in backlog


async def test_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads((Path(__file__).parents[2] / "deploy/grafana.json").read_text("utf-8"))
    shown = set(re.findall(r"cuebook_\w+", json.dumps([panel["targets"] for panel in dashboard["panels"]])))
    async with Cuebook.open(config(), worker=False) as cue:
        server = Server(app_of(cue))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(server.config.app), base_url="http://127.0.0.1"
        ) as client:
            await client.get("/healthz")
            text = (await client.get("/metrics")).text
    assert all(name in text for name in shown), shown
