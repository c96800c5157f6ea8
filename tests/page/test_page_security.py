"""Tests of cookies and of attacks by other sites' pages, in a browser: signing in, CSRF, frames, reading answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Served
from cuebook import Ask
from cuebook.testing.doubles import ScriptedModel
from oidc_issuer import CLIENT, SECRET, Issuer
from threaded_server import ThreadedServer

#: A page that tries everything that a site can do to another one.
HOSTILE = """<!doctype html><title>waiting</title>
<iframe name="sink"></iframe><iframe id="framed" src="{url}/page/conversations/trip"></iframe>
<img src="{url}/page/conversations/trip">
<form id="quiet" method="post" action="{url}/page/conversations/trip/forget" target="sink"></form>
<form id="open" method="post" action="{url}/page/conversations/trip/forget"></form>
<script>
const post = {{method: "POST", mode: "no-cors", credentials: "include"}};
async function attack() {{
  document.getElementById("quiet").submit();
  const tries = [
    fetch("{url}/page/conversations/trip/forget", post),
    fetch("{url}/page/key", {{...post, body: new URLSearchParams()}}),
    fetch("{url}/api/conversations/trip", {{method: "DELETE", credentials: "include"}}),
    fetch("{url}/page/conversations/trip", {{credentials: "include"}}).then(answer => answer.text()),
    fetch("{url}/api/conversations", {{credentials: "include"}}).then(answer => answer.text()),
  ];
  const read = (await Promise.allSettled(tries)).slice(2).filter(each => each.status === "fulfilled");
  document.title = "read " + read.length;
}}
addEventListener("load", attack);
</script>"""


class HostilePage:
    """A server with the hostile page."""

    def __init__(self, url: str) -> None:
        self.body = HOSTILE.format(url=url).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": self.body})


@contextmanager
def hostile_site(url: str, host: str) -> Iterator[str]:
    server = ThreadedServer(HostilePage(url))
    try:
        yield server.root.replace("127.0.0.1", host)
    finally:
        server.stop()


@pytest.fixture
def context(chromium: Any) -> Iterator[Any]:
    made = chromium.new_context()
    made.set_default_timeout(60_000)
    yield made
    made.close()


def key_cookie(context: Any) -> dict[str, Any]:
    return next(each for each in context.cookies() if each["name"] == "cuebook_key")


def sign_in(context: Any, served: Served) -> Any:
    token = served.run(lambda cue: cue.keys.new("editor", user="ann")).token
    page = context.new_page()
    page.goto(f"{served.url}/page/conversations/trip")
    page.fill("#key", token)
    page.click("text=Sign in")
    page.wait_for_url("**/page/conversations/trip")
    return page


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])  # another site; the same site, where cookies are sent
def test_pages_of_other_sites_cannot_act_or_read(
    context: Any, serve: Callable[..., Served], tmp_path: Path, host: str
) -> None:
    served = serve(tmp_path, ScriptedModel(default="Noted."))
    served.run(lambda cue: cue.ask(Ask("The ferry leaves at 9:45.", "trip", user="ann")))
    page = sign_in(context, served)
    assert "ferry" in page.inner_text("main")
    cookie = key_cookie(context)
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    assert page.evaluate("document.cookie") == ""
    with hostile_site(served.url, host) as address:
        hostile = context.new_page()
        hostile.goto(address)
        hostile.wait_for_function("document.title != 'waiting'")
        assert hostile.title() == "read 0"
        framed = next(each for each in hostile.frames if each.parent_frame and each.name != "sink")
        assert "ferry" not in framed.content()
        with hostile.expect_navigation() as answered:
            hostile.evaluate("document.getElementById('open').submit()")
        assert answered.value.status == 403
    page.reload()
    assert "ferry" in page.inner_text("main")
    assert key_cookie(context)["value"] == cookie["value"]


def test_signing_in_with_a_provider_opens_the_page(
    context: Any, serve: Callable[..., Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OIDC_CLIENT_SECRET", SECRET)
    issuer = Issuer()
    try:
        settings = {"oidc__issuer": issuer.url, "oidc__client_id": CLIENT, "oidc__roles": "staff = editor"}
        served = serve(tmp_path, ScriptedModel(default="Noted."), **settings)
        served.run(lambda cue: cue.ask(Ask("The ferry leaves at 9:45.", "trip", user="mara")))
        page = context.new_page()
        page.goto(f"{served.url}/page/conversations/trip")
        page.click("a >> text=Sign in")
        page.wait_for_url("**/page/conversations/trip")
        assert "ferry" in page.inner_text("main")
        assert {each["name"] for each in context.cookies()} == {"cuebook_key"}
        cookie = key_cookie(context)
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.goto(f"{served.url}/page/key")
        page.click("text=Sign out")
        page.wait_for_url(f"{served.url}/")
        assert "API key required" in page.inner_text("main")
        assert not context.cookies()
    finally:
        issuer.stop()
