"""What another site's page makes a browser ask for, without saying where it comes from."""

import httpx
import pytest

PICTURE = {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
FRAME = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-user": "?1"}
ADDRESSES = ("/page/memories", "/api/conversations", "/v1/models", "/mcp")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("how", [PICTURE, FRAME])
async def test_nothing_is_loaded_by_others(client: httpx.AsyncClient, site: str, how: dict[str, str]) -> None:
    for address in ADDRESSES:
        answer = await client.get(address, headers=how | {"sec-fetch-site": site})
        assert answer.status_code == 403, address
        assert "another site's page" in answer.text


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
async def test_a_link_may_lead_here_and_a_form_may_not(client: httpx.AsyncClient, site: str) -> None:
    told = LINK | {"sec-fetch-site": site}
    assert (await client.get("/page/memories", headers=told)).status_code == 200
    sent = await client.post("/page/memories/of-use/forget", data={"memory": "x"}, headers=told)
    assert (sent.status_code == 403) == (site in ("cross-site", "same-site"))


async def test_what_the_pages_of_this_server_load_is_theirs(client: httpx.AsyncClient) -> None:
    for how in (PICTURE, {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}):
        answer = await client.get("/page/static/icon.svg", headers=how | {"sec-fetch-site": "same-origin"})
        assert answer.status_code == 200
    assert (await client.get("/api/conversations", headers={"sec-fetch-mode": "cors"})).status_code == 200  # Node's
