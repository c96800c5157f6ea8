"""Sign in to the pages with an OpenID Connect provider, and sign out."""

from typing import Any, Final

from litestar import Response, get
from litestar.datastructures import Cookie
from litestar.exceptions import NotFoundException
from litestar.params import FromQuery
from litestar.response import Redirect

from cuebook.app.login import CALLBACK, Login
from cuebook.errors import CuebookError
from cuebook.server.authorization import COOKIE
from cuebook.server.caller import OPEN, AnyRequest, own_cue
from cuebook.server.error_responses import failure_of
from cuebook.server.page.render import HEADERS, base_url, local_address, show

#: The cookie of a started sign-in, and the seconds in which it must be finished.
ATTEMPT: Final = "cuebook_login"
_PATIENCE_S: Final = 600


@get("/page/login", role=OPEN)
async def begin(request: AnyRequest, to: FromQuery[str] = "/") -> Response[Any]:
    """Redirect the browser to the provider."""
    address, attempt = await _login(request).begin(local_address(to), base_url(request))
    return Redirect(address, status_code=303, cookies=[_attempt(request, attempt)], headers=dict(HEADERS))


@get(CALLBACK, role=OPEN, opt={"any_query": True})
async def finish(request: AnyRequest) -> Response[Any]:
    """Check the provider's answer, and store a key in a cookie.

    Its answer is a page that opens the next one: browsers send a SameSite=Strict cookie only where our pages lead.
    """
    login, cookie = _login(request), request.cookies.get(_name(request))
    try:
        key, to = await login.finish(cookie, dict(request.query_params), base_url(request))
    except CuebookError as error:
        failure = failure_of(error)
        response = show("key.html", failure.status, to="/", error=failure.detail, login=True, signed_in=False)
    else:
        response = show("signed_in.html", to=local_address(to))
        response.set_cookie(key_cookie(key.token, secure=uses_tls(request)))
    response.set_cookie(_attempt(request, ""))
    return response


def key_cookie(token: str, *, secure: bool) -> Cookie:
    """Return the cookie with a page's API key; without one, a cookie that deletes it."""
    return Cookie(
        COOKIE, value=token or "gone", path="/", httponly=True, samesite="strict", secure=secure,
        max_age=None if token else 0,
    )  # fmt: skip


def uses_tls(request: AnyRequest) -> bool:
    """Return whether the browser uses TLS, to this server or to a proxy before it."""
    known = own_cue(request).config.settings.oidc.server_url
    origin = request.headers.get("origin", "")
    return "https" in (request.url.scheme, *(each.lower().partition("://")[0] for each in (known, origin)))


def _attempt(request: AnyRequest, value: str) -> Cookie:
    """Return the cookie of an attempt. The provider redirects from another site, so it cannot be SameSite=Strict."""
    return Cookie(
        _name(request), value=value or "gone", path="/", httponly=True, samesite="lax", secure=uses_tls(request),
        max_age=_PATIENCE_S if value else 0,
    )  # fmt: skip


def _name(request: AnyRequest) -> str:
    """Return the name of the attempt's cookie. With TLS, no other host of the domain can set it."""
    return f"__Host-{ATTEMPT}" if uses_tls(request) else ATTEMPT


def _login(request: AnyRequest) -> Login:
    state = request.app.state
    cue = own_cue(request)
    if not cue.config.settings.oidc.issuer:
        raise NotFoundException(detail="No OpenID Connect provider. Set oidc.issuer, or sign in with an API key.")
    if state.login is None:
        state.login = Login(cue.services)
    login: Login = state.login
    return login


ROUTES = [begin, finish]
