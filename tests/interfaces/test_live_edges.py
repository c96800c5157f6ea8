"""Tests of the live stream of turns: shared readers, connection limits and revoked keys."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing

import httpx

from conftest import Live, config
from cuebook import Ask, Cuebook
from cuebook.app.transcript_views import live as goings_on
from cuebook.app.transcript_views.live import LiveReader, LiveTurn, Sums


def test_revoked_key_ends_the_live_stream(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    keys = live.cue.keys
    with httpx.stream("GET", f"{live.url}/page/live", timeout=60) as anonymous_stream:  # no key is required yet
        got = anonymous_stream.iter_raw()
        assert next(got) == b": watching\n\n"
        made = live.ask_cue(lambda: keys.new("viewer", user="ann"))
        assert is_ended(got)
    shown = {"X-Cuebook-Key": made.token}
    with httpx.stream("GET", f"{live.url}/page/live", headers=shown, timeout=60) as answer:
        got = answer.iter_raw()
        assert next(got) == b": watching\n\n"
        live.ask_cue(lambda: keys.revoke(made.id))
        live.ask_cue(lambda: live.cue.append("c", [{"role": "user", "content": "Psst."}], user="ann"))
        assert is_ended(got)
    assert httpx.get(f"{live.url}/page/live", headers=shown).status_code == 401


def is_ended(pieces: Iterator[bytes]) -> bool:
    """Return whether the stream ends without another event."""
    try:
        return next(pieces, b"") == b""
    except httpx.RemoteProtocolError:
        return True


async def test_watchers_share_a_reader_and_see_permitted_turns(cue: Cuebook) -> None:
    readers: dict[int, LiveReader] = {}
    live = goings_on.Live(cue.services, cue.config, readers)
    async with AsyncExitStack() as open_:
        watching: list[AsyncGenerator[LiveTurn | Sums | None, None]] = []
        for user in ("ann", "ann", "bob", None):
            watching.append(await open_.enter_async_context(aclosing(live.changes(user=user))))
            assert await anext(watching[-1]) is None
        [looks] = readers.values()
        await cue.ask(Ask("Psst.", "secret", user="ann"))
        result = await asyncio.gather(*map(until_sums, watching[:2]), until_sums(watching[3]))
        assert [[each.query for each in turns][-1] for turns, _ in result] == ["Psst."] * 3
        assert result[0][1] is result[1][1], "The sums of one user must be computed once."
        assert await anext(watching[2]) is None, "Bob must not see ann's turn."
        before, began = looks.polls, time.monotonic()
        for each in watching:
            assert await anext(each) is None
        assert looks.polls - before <= 2 + (time.monotonic() - began) / 0.5, (
            "The query rate must not depend on the number of watchers."
        )
    assert readers == {}, "No reader must remain without watchers."


async def until_sums(changes: AsyncGenerator[LiveTurn | Sums | None, None]) -> tuple[list[LiveTurn], Sums]:
    turns: list[LiveTurn] = []
    async for each in changes:
        if isinstance(each, Sums):
            return turns, each
        turns += [each] if each else []
    raise AssertionError


def test_live_connections_are_limited_per_server_and_key(serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(watchers=3, watchers_of_key=2))
    for most, named in ((3, "server.watchers"), (2, "server.watchers_of_key")):
        made = None if most == 3 else live.ask_cue(lambda: live.cue.keys.new("viewer", user="ann"))
        shown = {"X-Cuebook-Key": made.token} if made else {}
        with ExitStack() as open_:
            for _ in range(most):
                assert watch(open_, live, shown).status_code == 200
            refused = watch(open_, live, shown)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
            assert f"Too many live connections: {most}, and {named} allows {most}" in refused.read().decode()
        status = 0
        while status != 200:  # closed connections make room
            with ExitStack() as open_:
                status = watch(open_, live, shown).status_code


def watch(open_: ExitStack, live: Live, headers: dict[str, str]) -> httpx.Response:
    return open_.enter_context(httpx.stream("GET", f"{live.url}/page/live", headers=headers, timeout=60))
