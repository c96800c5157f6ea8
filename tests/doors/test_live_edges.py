"""The live stream of turns ends with what let its watcher in."""

from collections.abc import Callable, Iterator

import httpx

from conftest import Live


def test_a_key_that_is_revoked_sees_nothing_more(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    keys = live.book.keys
    with httpx.stream("GET", f"{live.url}/page/live", timeout=5) as nobodys:  # no key is asked for yet
        got = nobodys.iter_raw()
        assert next(got) == b": watching\n\n"
        made = live.ask_book(lambda: keys.new("viewer", user="ann"))
        assert ended(got)
    shown = {"X-Cuebook-Key": made.token}
    with httpx.stream("GET", f"{live.url}/page/live", headers=shown, timeout=5) as answer:
        got = answer.iter_raw()
        assert next(got) == b": watching\n\n"
        live.ask_book(lambda: keys.revoke(made.key.id))
        live.ask_book(lambda: live.book.append("c", [{"role": "user", "content": "Psst."}], user="ann"))
        assert ended(got)
    assert httpx.get(f"{live.url}/page/live", headers=shown).status_code == 401


def ended(pieces: Iterator[bytes]) -> bool:
    """Whether a stream is cut without another word."""
    try:
        return next(pieces, b"") == b""
    except httpx.RemoteProtocolError:
        return True
