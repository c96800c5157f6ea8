"""Reuse of Litestar apps between tests. Creating routes takes 0.15 s, so a new database gets a closed one's app."""

from functools import cache
from typing import Any, Final, cast

from litestar import Litestar

from cuebook import Cuebook
from cuebook.errors import CuebookError
from cuebook.server.app import create_app, hand_over
from cuebook.server.guard import Guard

#: The apps of this process, by the body size limits that are fixed when an app is created.
_MADE: Final[dict[tuple[int, int], list[Litestar]]] = {}


def app_of(cue: Cuebook, *, host: str | None = None, port: int | None = None) -> Litestar:
    """Return an app for an open database, as `create_app` does. It keeps no state of an earlier database."""
    assert is_open(cue), "The database is not open, so the next one would get its app."
    limits = cue.config.settings.server
    made = _MADE.setdefault((limits.max_body, limits.max_v1_body), [])
    for app in made:
        if not is_open(app.state.cue):
            app.asgi_handler = cast("Guard", app.asgi_handler).inner_app
            return hand_over(app, cue, host=host, port=port)
    made.append(create_app(cue, host=host, port=port))
    return made[-1]


def is_open(cue: Cuebook) -> bool:
    try:
        _ = cue.services
    except CuebookError:
        return False
    return True


@cache
def unopened_app() -> Litestar:
    """Return an app that serves no database, for tests of its routes."""
    return create_app(Cuebook())


@cache
def openapi_document() -> dict[str, Any]:
    """Return the server's OpenAPI document."""
    return unopened_app().openapi_schema.to_schema()
