"""Tests of failed calls on the inspector page: retries are one card, an unreachable upstream is one banner."""

import re

from api_keys import Keyed, served

from cuebook.errors import UpstreamError
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import completion

BODY = {"model": "m", "messages": [{"role": "user", "content": "When does the ferry leave?"}]}
BUSY = HttpReply(pieces=(b'{"error": {"message": "slow down"}}',), status=429)
DOWN = UpstreamError("The upstream http://up.test/v1 cannot be reached (ConnectError).", status=502)


async def post(keyed: Keyed, retry: int = 0) -> int:
    headers = {"x-stainless-retry-count": str(retry)}
    return (await keyed.client().post("/v1/chat/completions", json=BODY, headers=headers)).status_code


async def test_retries_of_a_refused_call_are_one_card() -> None:
    async with served(upstream=ScriptedUpstream(BUSY, BUSY, BUSY, completion("At 9:45."))) as keyed:
        assert [await post(keyed, retry) for retry in range(4)] == [429, 429, 429, 200]
        [conversation] = (await keyed.cue.conversations.list()).items
        turns = keyed.cue.turns
        every = await turns.list(conversation.id, all_attempts=True)
        assert [turn.state for turn in every] == ["failed"] * 3 + ["finished"]
        for folded in (await turns.list(conversation.id), await turns.list(conversation.id, limit=2)):
            assert [(turn.turn, turn.state, turn.attempts) for turn in folded] == [(4, "finished", 4)]
            assert folded.next is None
        assert [turn.turn for turn in await turns.list(conversation.id, all_attempts=True, limit=2)] == [1, 2]
        address = f"/api/conversations/{conversation.id}/turns"
        assert len((await keyed.client().get(f"{address}?allAttempts=true")).json()["items"]) == 4
        page = (await keyed.client().get("/")).text
        assert re.findall('data-key="(.+?)"', page) == [f"{conversation.id}#1"]
        assert "attempt 4" in page
        rows = (await keyed.client().get(f"/page/conversations/{conversation.id}")).text
        assert "<h1>When does the ferry leave?</h1>" in rows
        assert "finished, attempt 4" in rows
        assert "/turns/1" not in rows


async def test_an_unreachable_upstream_is_one_banner_until_it_answers() -> None:
    async with served(upstream=ScriptedUpstream(DOWN, DOWN, completion("At 9:45."))) as keyed:
        assert 'role="alert" id="unreachable" hidden' in (await keyed.client().get("/")).text
        assert [await post(keyed), await post(keyed)] == [502, 502]
        page = (await keyed.client().get("/")).text
        assert 'role="alert" id="unreachable">' in page
        assert re.findall('<span data-sum="unreachable">(.+?)</span>', page) == [str(DOWN)]
        assert await post(keyed) == 200
        assert 'role="alert" id="unreachable" hidden' in (await keyed.client().get("/")).text
