"""Sign a browser in with an API key (stored in a cookie), and render error pages."""

from typing import Any
from urllib.parse import quote

from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromQuery
from litestar.response import Redirect

from cuebook import Cuebook
from cuebook.errors import CuebookError
from cuebook.server.authorization import COOKIE, is_page
from cuebook.server.caller import OPEN, AnyRequest
from cuebook.server.error_responses import Failure
from cuebook.server.page.render import HEADERS, show

KEY = "/page/key"
#: Maximum length of a form field in characters.
_MAX_FIELD = 4_096


@get(KEY, role=OPEN)
async def ask_key(to: FromQuery[str] = "/") -> Response[bytes]:
    """Render the form that asks for an API key."""
    return show("key.html", to=_local_address(to), error="")


@post(KEY, role=OPEN, status_code=303)
async def keep_key(request: AnyRequest) -> Response[Any]:
    """Store an API key in a cookie for this server's pages; an empty key deletes the cookie."""
    form = await request.form()
    key, to = str(form.get("key", ""))[:_MAX_FIELD].strip(), _local_address(str(form.get("to", "/"))[:_MAX_FIELD])
    cue: Cuebook = request.app.state.cue
    if key:
        try:
            await cue.keys.admit(key, closed=request.app.state.exposed)
        except CuebookError as error:
            return show("key.html", 401, to=to, error=str(error))
    cookie = Cookie(
        COOKIE, value=key or "gone", path="/", httponly=True, samesite="strict",
        secure=_uses_tls(request), max_age=None if key else 0,
    )  # fmt: skip
    return Redirect(to, status_code=303, cookies=[cookie], headers=dict(HEADERS))


def error_page(request: AnyRequest, failure: Failure) -> Response[bytes] | None:
    """Render an error as a page if the request is for a page; on 401 render the API key form."""
    if not is_page(request.scope["path"]):
        return None
    if failure.status == 401:
        query = request.url.query
        address = quote(request.url.path, safe="/~") + (f"?{query}" if query else "")
        return show("key.html", 401, to=_local_address(address), error="")
    return show("fault.html", failure.status, code=failure.status, detail=failure.detail)


def _uses_tls(request: AnyRequest) -> bool:
    """Return whether the browser uses TLS, to this server or to a proxy before it (by the Origin header)."""
    return "https" in (request.url.scheme, request.headers.get("origin", "").lower().partition("://")[0])


def _local_address(address: str) -> str:
    """Return an address of this server unchanged, and `/` for any other."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"


ROUTES = [ask_key, keep_key]
