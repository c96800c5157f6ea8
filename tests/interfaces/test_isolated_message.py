"""Tests of a single message sent to a named conversation: it is stored as a side branch."""

import json
import logging
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from api_keys import Keyed, served
from commands import CUEBOOK, environment

from cuebook import Cuebook
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion, streamed

HI = {"role": "user", "content": "I live in Oslo."}
NEW = {"role": "user", "content": "Where do I live?"}


async def say(keyed: Keyed, *messages: object, name: str = "c1", stream: bool = False, **headers: str) -> str | None:
    """Send messages to a named conversation. Return the branch header of the answer."""
    client = keyed.client()
    body = {"model": "m", "messages": list(messages), "stream": stream}
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    answer = await client.post(f"/c/{name}/v1/chat/completions", json=body, headers=named)
    assert answer.status_code == 200, answer.text
    assert answer.content in (b"".join(completion("Noted.").pieces), b"".join(streamed("Noted.").pieces))
    return answer.headers.get("x-cuebook-branch")


async def path(cue: Cuebook, name: str = "c1") -> list[str]:
    return [post.message for post in await cue.conversations.posts(name)]


@pytest.mark.parametrize("stream", [False, True])
async def test_message_without_history_is_a_side_branch(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    answer = streamed("Noted.") if stream else completion("Noted.")
    with caplog.at_level(logging.INFO, logger="cuebook.relay"):
        async with served(upstream=ScriptedUpstream(default=answer)) as keyed:
            assert await say(keyed, HI, stream=stream) == "head"
            assert await say(keyed, NEW, stream=stream) == "side"
            assert await say(keyed, NEW, stream=stream) == "side"
            assert await path(keyed.cue) == ["I live in Oslo.", "Noted."]
            history = (HI, {"role": "assistant", "content": "Noted."}, NEW)
            assert await say(keyed, *history, stream=stream) == "head"
            assert await say(keyed, NEW, stream=stream, x_history="server") == "head"
            assert len(await path(keyed.cue)) == 6
            assert await say(keyed, HI, name="c2", stream=stream) == "head"
            assert await say(keyed, NEW, name="c2", stream=stream) == "side"
    messages = [record.getMessage() for record in caplog.records if record.name == "cuebook.relay"]
    assert [text.split(" does not")[0] for text in messages] == [
        f"A request of conversation {name}" for name in ("c1", "c2")
    ]


@pytest.mark.slow
def test_side_branch_is_logged_once(project: Path) -> None:
    command = [CUEBOOK, "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = json.loads(b"".join(process.stdout.readline() for _ in range(7)))["url"].rstrip("/")
        for message in (HI, NEW, NEW):
            answer = httpx.post(
                f"{url}/c/c1/v1/chat/completions", json={"model": "m", "messages": [message]}, timeout=60
            )
            assert answer.status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
        [line] = process.stderr.read().decode().splitlines()
    assert line == "cuebook: A request of conversation c1 does not continue its history; it is stored as a side branch"
