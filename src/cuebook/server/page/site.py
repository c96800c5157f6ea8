"""Render the settings, the sign-in with an API key, errors and the API reference, and serve the static files."""

from typing import Any
from urllib.parse import quote

from litestar import Response, Router, get, post
from litestar.exceptions import NotFoundException
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.params import FromPath, FromQuery
from litestar.response import Redirect

from cuebook import Cuebook
from cuebook.app.setup.project_files import setting_meanings, setting_rows, shown_setting
from cuebook.errors import CuebookError
from cuebook.server.authorization import COOKIE, is_page
from cuebook.server.caller import OPEN, AnyRequest, cue_of, own_cue
from cuebook.server.error_responses import Failure
from cuebook.server.guard import name_in
from cuebook.server.page.login import key_cookie, uses_tls
from cuebook.server.page.render import HEADERS, asset, local_address, page, show


@get("/page/settings", role="owner")
async def settings(request: AnyRequest) -> Response[bytes]:
    """Render every setting with its value (secrets hidden) and its source."""
    config = cue_of(request).config
    rows = [{**each, "value": shown_setting(each["value"])} for each in setting_rows(config)]
    sections: dict[str, list[dict[str, str]]] = {}
    for each in rows:
        sections.setdefault(each["name"].partition(".")[0] if "." in each["name"] else "environment", []).append(each)
    return show("settings.html", sections=sections, meanings=setting_meanings(), folder=config.folder)


@get("/page/static/{name:str}", role=OPEN)
async def static(name: FromPath[str]) -> Response[bytes]:
    """Return a style sheet, script or icon of the inspector."""
    response = asset(name_in(name))
    if response is None:
        raise NotFoundException(detail=f"Unknown file {name_in(name)!r}.")
    return response


# ---- API reference --------------------------------------------------------------------------------------------------


class ReferencePage(OpenAPIRenderPlugin):
    """Renders the OpenAPI document as HTML. Litestar's own pages load remote scripts."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: AnyRequest, openapi_schema: dict[str, Any]) -> bytes:
        _ = request
        return page("reference.html", **openapi_schema)


def documents() -> Router:
    """Return the router of the OpenAPI document and its page."""
    opt = {"role": "viewer"}
    return Router("/schema", route_handlers=[], include_in_schema=False, opt=opt, response_headers=HEADERS)


# ---- API key and errors ---------------------------------------------------------------------------------------------


KEY = "/page/key"
#: Maximum length of a form field in characters.
_MAX_FIELD = 4_096


@get(KEY, role=OPEN)
async def ask_key(request: AnyRequest, to: FromQuery[str] = "/") -> Response[bytes]:
    """Render the form that asks for an API key."""
    return _show_key(request, local_address(to))


@post(KEY, role=OPEN, status_code=303)
async def keep_key(request: AnyRequest) -> Response[Any]:
    """Store an API key in a cookie for this server's pages; an empty key signs out."""
    form = await request.form()
    key, to = str(form.get("key", ""))[:_MAX_FIELD].strip(), local_address(str(form.get("to", "/"))[:_MAX_FIELD])
    cue: Cuebook = request.app.state.cue
    if key:
        try:
            await cue.keys.admit(key, closed=request.app.state.closed)
        except CuebookError as error:
            return _show_key(request, to, 401, error=str(error))
    elif kept := request.cookies.get(COOKIE):
        await cue.keys.sign_out(kept)
    cookie = key_cookie(key, secure=uses_tls(request))
    return Redirect(to, status_code=303, cookies=[cookie], headers=dict(HEADERS))


def _show_key(request: AnyRequest, to: str, status: int = 200, *, error: str = "") -> Response[bytes]:
    login = bool(own_cue(request).config.settings.oidc.issuer)
    return show("key.html", status, to=to, error=error, login=login, signed_in=COOKIE in request.cookies)


def error_page(request: AnyRequest, failure: Failure) -> Response[bytes] | None:
    """Render an error as a page if the request is for a page; on 401 render the API key form."""
    if not is_page(request.scope["path"]):
        return None
    if failure.status == 401:
        query = request.url.query
        address = quote(request.url.path, safe="/~") + (f"?{query}" if query else "")
        return _show_key(request, local_address(address), 401)
    return show("fault.html", failure.status, code=failure.status, detail=failure.detail)


ROUTES = [settings, static, ask_key, keep_key]
