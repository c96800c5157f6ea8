"""An app for a book. Making its routes takes 0.15 s, so one that served a book now closed serves the next."""

from typing import Final, cast

from litestar import Litestar

from cuebook import Cuebook
from cuebook.errors import CuebookError
from cuebook.server.app import create_app, hand_over
from cuebook.server.guard import Guard

#: The apps of this process, by what is fixed when one is made: the sizes of bodies it takes.
_MADE: Final[dict[tuple[int, int], list[Litestar]]] = {}


def app_of(cue: Cuebook, *, host: str | None = None, port: int | None = None) -> Litestar:
    """Serve an open book as `create_app` does: nothing of who was served before is left."""
    assert is_open(cue), "a book that is not open counts as closed: the next one would get its app"
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
        _ = cue.desk
    except CuebookError:
        return False
    return True
