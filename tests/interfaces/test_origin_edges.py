"""Tests of cross-site requests that a browser sends without an Origin header."""

import httpx
import pytest

PICTURE = {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
FRAME = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-user": "?1"}
ADDRESSES = ("/page/memories", "/api/conversations", "/v1/models", "/mcp")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("how", [PICTURE, FRAME])
async def test_cross_site_subresources_are_rejected(client: httpx.AsyncClient, site: str, how: dict[str, str]) -> None:
    for address in ADDRESSES:
        answer = await client.get(address, headers=how | {"sec-fetch-site": site})
        assert answer.status_code == 403, address
        assert "Cross-site request" in answer.text


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
async def test_cross_site_links_work_and_forms_do_not(client: httpx.AsyncClient, site: str) -> None:
    told = LINK | {"sec-fetch-site": site}
    assert (await client.get("/page/memories", headers=told)).status_code == 200
    assert (await client.get("/v1/files/f/content", headers=told)).status_code == (403 if "-site" in site else 404)
    sent = await client.post("/page/memories/of-use/forget", data={"memory": "x"}, headers=told)
    assert (sent.status_code == 403) == (site in ("cross-site", "same-site"))


async def test_same_origin_requests_are_accepted(client: httpx.AsyncClient) -> None:
    for how in (PICTURE, {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}):
        answer = await client.get("/page/static/icon.svg", headers=how | {"sec-fetch-site": "same-origin"})
        assert answer.status_code == 200
    assert (await client.get("/api/conversations", headers={"sec-fetch-mode": "cors"})).status_code == 200  # Node's


@pytest.mark.parametrize(("origin", "safe"), [("https://127.0.0.1", True), ("http://127.0.0.1", False), (None, False)])
async def test_key_cookie_is_secure_behind_tls(client: httpx.AsyncClient, origin: str | None, *, safe: bool) -> None:
    """A proxy may terminate TLS and forward plain HTTP to this server."""
    response = await client.post("/page/key", data={"key": "cue_x"}, headers={"origin": origin} if origin else {})
    cookie_parts = response.headers["set-cookie"].lower().split("; ")
    assert {"httponly", "samesite=strict"} <= set(cookie_parts)
    assert ("secure" in cookie_parts) == safe


async def test_bidi_characters_in_names_are_escaped_on_pages(client: httpx.AsyncClient) -> None:
    body = {"message": "Hi", "conversationId": "trip\u202e", "userId": "\u202eann"}
    assert (await client.post("/api/chat", json=body)).status_code == 200
    shown = (await client.get("/")).text
    assert "trip\u202e ·" not in shown
    assert "\u202eann" not in shown
    assert "trip⟨U+202E⟩ · turn 1" in shown
