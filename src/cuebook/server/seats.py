"""Who watches the book: live views, and clients of the Model Context Protocol that listen. So many may at once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from cuebook.errors import Busy
from cuebook.records.counted import counted
from cuebook.server.caller import AnyRequest, book_of, caller_of

#: Seconds after which who was refused may try again.
RETRY_S = 10.0


@contextmanager
def seat(request: AnyRequest) -> Iterator[None]:
    """Count who watches. Raises Busy where too many do, or too many under one key."""
    watching: Counter[str] = request.app.state.watching
    limits, key = book_of(request).config.settings.server, caller_of(request).key
    for many, most, setting in (
        (watching.total(), limits.watchers, "server.watchers"),
        (watching[key] if key else 0, limits.watchers_of_key, "server.watchers_of_key"),
    ):
        if many >= most:
            msg = f"{counted(many, 'watcher')} are here, and {setting} allows {most}; end one, or raise it"
            raise Busy(msg, retry_after=RETRY_S)
    watching[key] += 1
    try:
        yield
    finally:
        watching[key] -= 1
        if not watching[key]:
            del watching[key]
