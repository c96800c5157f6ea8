"""The live stream of turns: one reader for all who watch, as many as may, and it ends with what let them in."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing

import httpx

from conftest import Live, config
from cuebook import Ask, Cuebook
from cuebook.app.transcript_views import live_view as goings_on
from cuebook.app.transcript_views.live_turns import LiveTurn
from cuebook.app.transcript_views.live_view import Sums
from cuebook.app.transcript_views.watchers import Looks


def test_a_key_that_is_revoked_sees_nothing_more(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    keys = live.cue.keys
    with httpx.stream("GET", f"{live.url}/page/live", timeout=5) as nobodys:  # no key is asked for yet
        got = nobodys.iter_raw()
        assert next(got) == b": watching\n\n"
        made = live.ask_cue(lambda: keys.new("viewer", user="ann"))
        assert ended(got)
    shown = {"X-Cuebook-Key": made.token}
    with httpx.stream("GET", f"{live.url}/page/live", headers=shown, timeout=5) as answer:
        got = answer.iter_raw()
        assert next(got) == b": watching\n\n"
        live.ask_cue(lambda: keys.revoke(made.key.id))
        live.ask_cue(lambda: live.cue.append("c", [{"role": "user", "content": "Psst."}], user="ann"))
        assert ended(got)
    assert httpx.get(f"{live.url}/page/live", headers=shown).status_code == 401


def ended(pieces: Iterator[bytes]) -> bool:
    """Whether a stream is cut without another word."""
    try:
        return next(pieces, b"") == b""
    except httpx.RemoteProtocolError:
        return True


async def test_all_who_watch_share_a_reader_and_see_what_they_may(cue: Cuebook) -> None:
    readers: dict[int, Looks] = {}
    live = goings_on.Live(cue.desk, cue.config, readers)
    async with AsyncExitStack() as open_:
        watching: list[AsyncGenerator[LiveTurn | Sums | None, None]] = []
        for user in ("ann", "ann", "bob", None):
            watching.append(await open_.enter_async_context(aclosing(live.changes(user=user))))
            assert await anext(watching[-1]) is None
        [looks] = readers.values()
        await cue.ask(Ask("Psst.", "secret", user="ann"))
        told = await asyncio.gather(*map(until_sums, watching[:2]), until_sums(watching[3]))
        assert [[each.query for each in turns][-1] for turns, _ in told] == ["Psst."] * 3
        assert told[0][1] is told[1][1], "the sums of one user are made once"
        assert await anext(watching[2]) is None, "nothing of it is bob's to see"
        before, began = looks.looks, time.monotonic()
        for each in watching:
            assert await anext(each) is None
        assert looks.looks - before <= 2 + (time.monotonic() - began) / 0.5, "as if one watched"
    assert readers == {}, "nobody reads where nobody watches"


async def until_sums(found: AsyncGenerator[LiveTurn | Sums | None, None]) -> tuple[list[LiveTurn], Sums]:
    turns: list[LiveTurn] = []
    async for each in found:
        if isinstance(each, Sums):
            return turns, each
        turns += [each] if each else []
    raise AssertionError


def test_so_many_may_watch_and_one_key_not_all_of_them(serve_live: Callable[..., Live]) -> None:
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
        for _ in range(100):  # those who left make room
            with ExitStack() as open_:
                if (again := watch(open_, live, shown).status_code) == 200:
                    break
        assert again == 200


def watch(open_: ExitStack, live: Live, headers: dict[str, str]) -> httpx.Response:
    return open_.enter_context(httpx.stream("GET", f"{live.url}/page/live", headers=headers, timeout=5))
