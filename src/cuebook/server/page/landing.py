"""Render the settings page and the API reference, without scripts and remote resources."""

from html import escape
from typing import Any

from litestar import Response, Router, get
from litestar.openapi.plugins import OpenAPIRenderPlugin

from cuebook.app.setup.project_files import setting_rows, shown_setting
from cuebook.server.caller import AnyRequest, cue_of
from cuebook.server.page.render import show


@get("/page/settings", role="owner")
async def settings(request: AnyRequest) -> Response[bytes]:
    """Render every setting with its value (secrets hidden) and its source."""
    config = cue_of(request).config
    rows = [{**each, "value": shown_setting(each["value"])} for each in setting_rows(config)]
    sections: dict[str, list[dict[str, str]]] = {}
    for each in rows:
        sections.setdefault(each["name"].partition(".")[0] if "." in each["name"] else "environment", []).append(each)
    return show("settings.html", sections=sections, folder=config.folder)


ROUTES = [settings]


#: A page may load and run nothing; its style is inline.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
_STYLE = """
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff;
  font: 1rem/1.5 system-ui, sans-serif }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; background: #f3f3f0 }
pre { padding: 1rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% }
td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1a1a1a } code, pre { background: #2a2a2a } a { color: #8bf }
  td { border-color: #444 }
}
"""
_METHODS = ("get", "post", "put", "patch", "delete")


def page(title: str, body: str) -> bytes:
    """Return an HTML page."""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return text.encode()


class ReferencePage(OpenAPIRenderPlugin):
    """Renders the OpenAPI document as HTML. Litestar's own pages load remote scripts."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: AnyRequest, openapi_schema: dict[str, Any]) -> bytes:
        _ = request
        rows = [
            _row(method, path, item[method])
            for path, item in sorted(openapi_schema["paths"].items())
            for method in _METHODS
            if item.get(method)
        ]
        body = (
            f"<p>{escape(openapi_schema['info']['description'])}</p>"
            '<p>OpenAPI document: <a href="/schema/openapi.json">/schema/openapi.json</a></p>'
            f"<table>{''.join(rows)}</table>"
        )
        return page("API reference", body)


def documents() -> Router:
    """Return the router of the OpenAPI document and its page."""
    return Router(
        "/schema", route_handlers=[], include_in_schema=False, opt={"role": "viewer"}, response_headers=HEADERS
    )


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    queries = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    query = f"<br>?{escape(', '.join(queries))}" if queries else ""
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    schemas = [each["schema"]["$ref"].rpartition("/")[2] for each in content.values() if "$ref" in each["schema"]]
    body = f"<br>body: {escape(', '.join(schemas))}" if schemas else ""
    return (
        f"<tr><td><code>{method.upper()} {escape(path)}</code></td>"
        f"<td>{escape(operation.get('description') or '')}{query}{body}</td></tr>"
    )
