"""Tests of the model that background work names in its requests: by settings, the environment and the presets file."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from upstream import Upstream

from cuebook import Cuebook
from cuebook.config import build
from cuebook.errors import InvalidInput
from cuebook.records.memory import Scope
from cuebook.records.turn import WorkUsage

AS_MODEL = {"model.provider": "openai", "model.name": "small", "work.model": "model"}


@pytest.mark.parametrize(
    ("settings", "environment", "profile", "model"),
    [
        ({"work.model_name": "big"}, {}, {}, "big"),
        ({"work.model": "upstream", "model.name": "small"}, {}, {}, "small"),
        ({"work.model": "upstream", "model.name": "small", "work.model_name": "big"}, {}, {}, "big"),
        (AS_MODEL, {}, {}, "small"),
        (AS_MODEL | {"work.model_name": "big"}, {}, {}, "big"),
        ({"work.model_name": "big"}, {}, {"modelId": "own"}, "own"),
        ({"work.model_name": "big"}, {"MEMORY_COMPACTION_MODEL_ID": "named"}, {"modelId": "own"}, "named"),
    ],
)
async def test_a_summary_is_requested_from_the_named_model(
    tmp_path: Path,
    upstream: Upstream,
    *,
    settings: dict[str, Any],
    environment: dict[str, str],
    profile: dict[str, Any],
    model: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "cuebook.jobs")
    (tmp_path / "config").mkdir()
    document = {"memoryCompaction": {"profiles": {"standard": profile}}}
    (tmp_path / "config" / "metaprompt-presets.json").write_text(json.dumps(document))
    server = {"model.base_url" if settings.get("work.model") == "model" else "upstream.url": upstream.url}
    arguments = {"store.url": ":memory:"} | server | settings
    config = build(arguments=arguments, environment=environment, folder=str(tmp_path))
    async with Cuebook.open(config, worker=False) as cue:
        await cue.append("c", [{"role": "user", "content": f"I have {n} boats in Oslo."} for n in range(24)])
        await cue.work()
    requests = [each.fields for each in upstream.received if each.path.endswith("/chat/completions")]
    assert [each["model"] for each in requests] == [model, model]  # the answer is no JSON, so it is asked again
    assert requests[1]["messages"][-1]["content"].startswith("This answer is invalid: the answer contains no JSON")


@pytest.mark.parametrize(
    ("settings", "where"),
    [({"work.model_name": "big"}, "work.model_name"), ({"work.model": "upstream"}, "work.model")],
)
async def test_a_named_model_without_a_server_is_refused(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        async with Cuebook.open(build(arguments={"store.url": ":memory:"} | settings), worker=False):
            pass
    assert refused.value.where == where


async def test_pages_and_status_show_the_usage_and_cost_of_background_work(
    cue: Cuebook, client: httpx.AsyncClient
) -> None:
    await cue.append("c", [{"role": "user", "content": "Hi"}])
    for task, costs in (("compaction", {"USD": 0.25}), ("compaction", {"USD": 0.25}), ("sentiment", {})):
        usage = WorkUsage(task=task, model="<b>small", input_tokens=1_000, output_tokens=10, costs=costs)
        await cue.services.store.tuning.add_work(Scope(), "c", [usage])
    work = (await client.get("/learning/optimizer/status", params={"conversationId": "c"})).json()["work"]
    assert work[0] == {
        "task": "compaction", "model": "<b>small", "calls": 2, "inputTokens": 2_000, "outputTokens": 20,
        "cachedTokens": 0, "costs": {"USD": 0.5},
    }  # fmt: skip
    for page in ("/page/conversations/c", "/page/optimizer"):
        text = (await client.get(page)).text
        assert "Background work by models" in text
        assert "<b>small" not in text
        rows = [re.findall(">([^<]+)</td>", row) for row in re.findall(r"<tr><td>(?:compaction|sentiment)<.*", text)]
        assert [row[-1] for row in rows] == ["$0.50", "unknown price"]
