"""Pages a browser shows: what this server is, and its addresses. No script, no remote resource."""

from html import escape
from typing import Any

from litestar import Response, Router, get
from litestar.openapi.plugins import OpenAPIRenderPlugin

from cuebook.server.caller import AnyRequest, book_of

#: A page may load nothing and run nothing; its own style stands in it.
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
    """Give a page."""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return text.encode()


@get("/", include_in_schema=False)
async def front(request: AnyRequest) -> Response[bytes]:
    """Show what this server is."""
    host = escape(request.headers.get("host", "127.0.0.1:8760"))
    book = book_of(request)
    upstream, keyed = book.upstream_url, await book.keys.configured()
    shown = "its upstream" if keyed else f"<code>{escape(upstream or '')}</code>"  # anybody reads this page
    behind = f"relays to {shown}" if upstream else "has no upstream and answers by itself"
    key = "cue_…, from `cuebook key new`" if keyed else "none"
    body = f"""
<p>The prompt book of an agent: this server keeps conversations, builds prompts and remembers. It {behind}.</p>
<h2>Use it from an OpenAI client</h2>
<pre>from openai import OpenAI
client = OpenAI(base_url="http://{host}/v1", api_key="{key}")</pre>
<p>Name a conversation in the base URL, <code>http://{host}/c/my-chat/v1</code>, or in the header
<code>X-Conversation-Id</code>; a user with <code>/u/ann/v1</code>.</p>
<h2>Addresses</h2>
<table>
<tr><td><code>POST /api/chat</code></td><td>answer a message, in one piece or as events</td></tr>
<tr><td><code>POST /api/assemble</code></td><td>the prompt a chat would get, every block with its source</td></tr>
<tr><td><code>GET /api/conversations</code></td><td>transcripts, their rounds, posts and turns</td></tr>
<tr><td><code>POST /api/memories/search</code></td><td>find what answers a question</td></tr>
<tr><td><a href="/schema">/schema</a></td><td>all of them; as <a href="/schema/openapi.json">OpenAPI 3.1</a></td></tr>
<tr><td><a href="/readyz">/readyz</a></td><td>whether the store answers, and which model does</td></tr>
</table>"""
    return Response(page("Cuebook", body), media_type="text/html", headers=HEADERS)


class Listing(OpenAPIRenderPlugin):
    """The OpenAPI document as a page to read. Litestar's own pages all load scripts from elsewhere."""

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
            '<p>As a document: <a href="/schema/openapi.json">/schema/openapi.json</a></p>'
            f"<table>{''.join(rows)}</table>"
        )
        return page("Addresses of this server", body)


def documents() -> Router:
    """Give the room of the OpenAPI document and its page."""
    return Router("/schema", route_handlers=[], include_in_schema=False, response_headers=HEADERS)


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    queries = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    query = f"<br>?{escape(', '.join(queries))}" if queries else ""
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    schemas = [each["schema"]["$ref"].rpartition("/")[2] for each in content.values() if "$ref" in each["schema"]]
    takes = f"<br>takes {escape(', '.join(schemas))}" if schemas else ""
    return (
        f"<tr><td><code>{method.upper()} {escape(path)}</code></td>"
        f"<td>{escape(operation.get('description') or '')}{query}{takes}</td></tr>"
    )


ROUTES = [front]
