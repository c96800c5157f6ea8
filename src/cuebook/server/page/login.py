"""How a browser is let in where the book has keys, and what it is shown where something is not there."""

from typing import Any
from urllib.parse import quote

from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromQuery
from litestar.response import Redirect

from cuebook import Cuebook
from cuebook.errors import CuebookError
from cuebook.server.authorization import COOKIE, AnyRequest, is_page
from cuebook.server.error_responses import Failure
from cuebook.server.page.render import HEADERS, show

KEY = "/page/key"
#: Characters of a field of the form: a key, or an address.
_MOST = 4_096


@get(KEY, include_in_schema=False)
async def ask_key(to: FromQuery[str] = "/") -> Response[bytes]:
    """Ask for the key this browser is to bring."""
    return show("key.html", view="", to=_own(to), refused="")


@post(KEY, include_in_schema=False, status_code=303)
async def keep_key(request: AnyRequest) -> Response[Any]:
    """Keep a key in this browser, for pages of this server alone; an empty one is forgotten."""
    form = await request.form()
    key, to = str(form.get("key", ""))[:_MOST].strip(), _own(str(form.get("to", "/"))[:_MOST])
    book: Cuebook = request.app.state.book
    if key:
        try:
            await book.keys.admit(key, closed=request.app.state.exposed)
        except CuebookError as error:
            return show("key.html", 401, view="", to=to, refused=str(error))
    kept = Cookie(
        COOKIE, value=key or "gone", path="/", httponly=True, samesite="strict",
        secure=_is_safe(request), max_age=None if key else 0,
    )  # fmt: skip
    return Redirect(to, status_code=303, cookies=[kept], headers=dict(HEADERS))


def error_page(request: AnyRequest, failure: Failure) -> Response[bytes] | None:
    """Show a fault as a page where a page was asked for; who brings no key is asked for one."""
    if not is_page(request.scope["path"]):
        return None
    if failure.status == 401:
        query = request.url.query
        asked = quote(request.url.path, safe="/~") + (f"?{query}" if query else "")
        return show("key.html", 401, view="", to=_own(asked), refused="")
    return show("fault.html", failure.status, view="", code=failure.status, detail=failure.detail)


def _is_safe(request: AnyRequest) -> bool:
    """Whether the browser speaks TLS, with this server or with what stands before it: it says of which origin it is."""
    return "https" in (request.url.scheme, request.headers.get("origin", "").lower().partition("://")[0])


def _own(address: str) -> str:
    """Return an address of this server's own, `/` for anything else."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"


ROUTES = [ask_key, keep_key]
