"""Tests of erasure in shadow mode: recorded calls that wait to be stored do not restore erased data."""

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook import Cuebook
from cuebook.app.cuebook import RelayCall, RelayRequest
from cuebook.config import Config, ConfigSections, StoreConfig, UpstreamConfig
from cuebook.records.memory import DEFAULT_TENANT
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion

HEADERS = {"content-type": "application/json"}


async def say(cue: Cuebook, text: str, *, user: str | None, conversation: str | None = None) -> None:
    """Forward a call and read its whole answer."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    call = RelayCall(body=body, headers=HEADERS, user=user, conversation=conversation)
    passed = RelayRequest(method="POST", path="/chat/completions", headers=HEADERS, body=body, verbatim=True)
    async for _ in cue.pass_through(passed, call):
        pass


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize(
    ("user", "target"), [("ann", {"user": "ann"}), (None, {"conversation": "trip"}), ("ann", {"organization": "acme"})]
)
async def test_erasure_includes_calls_that_wait_to_be_stored(
    tmp_path: Path, user: str | None, target: dict[str, Any]
) -> None:
    settings = ConfigSections(
        store=StoreConfig(url=str(tmp_path / "cuebook.db")),
        upstream=UpstreamConfig(url="http://up.test/v1", shadow=True),
    )
    async with Cuebook.open(Config(settings=settings), upstream=ScriptedUpstream(default=completion("Ok."))) as cue:
        async with cue.services.queue.hold(DEFAULT_TENANT, "trip"):  # storing the call waits for this lock
            await say(cue, "My pilot is called Zqcanary.", user=user, conversation="trip")
            receipt = await cue.memory.forget(**target)
            assert receipt.state == "done"
        await say(cue, "My pilot is called Bo.", user="bob", conversation="other")
        await say(cue, "My pilot is called Al.", user=user, conversation="trip")  # sent after the erasure
        await cue.settle()
        assert (await cue.shadow.report()).lost == {"forgotten": 1}
        stored = {each.id: each.last_seq for each in (await cue.conversations.list()).items}
        assert stored == {"trip": 2, "other": 2}
        result = bytes_in(tmp_path)
        assert b"Bo." in result
        assert b"Zqcanary" not in result


async def test_erasure_of_others_keeps_waiting_calls() -> None:
    settings = ConfigSections(
        store=StoreConfig(url=":memory:"), upstream=UpstreamConfig(url="http://up.test/v1", shadow=True)
    )
    async with Cuebook.open(Config(settings=settings), upstream=ScriptedUpstream(default=completion("Ok."))) as cue:
        async with cue.services.queue.hold(DEFAULT_TENANT, "trip"):
            await say(cue, "My pilot is called Al.", user="ann", conversation="trip")
            for gone in ({"user": "bob"}, {"conversation": "other"}):
                await cue.memory.forget(**gone)
        await cue.settle()
        assert (await cue.turns.list("trip", user="ann"))[0].state == "finished"
        assert (await cue.shadow.report()).lost == {}
