"""Tests of API key roles: every route declares its role and rejects lower roles. Routes come from OpenAPI."""

from collections.abc import AsyncIterator

import httpx
import pytest
from api_keys import Keyed, served
from shared_app import openapi_document, unopened_app
from upstream import Upstream

from conftest import config
from cuebook.records.key import OF_ONE_USER, ROLES, Role
from cuebook.server.caller import OPEN
from cuebook.server.guard import PASS_THROUGH

DOCUMENT = openapi_document()
METHODS = ("get", "post", "put", "patch", "delete")
ROUTES = [
    (method.upper(), path) for path, item in sorted(DOCUMENT["paths"].items()) for method in METHODS if item.get(method)
]
#: What each route declares, by method and path.
DECLARED = {
    (method, route.path.replace(":str", "").replace(":int", "")): handler.opt
    for route in unopened_app().routes
    for method, (handler, _) in getattr(route, "route_handler_map", {}).items()
    if method != "OPTIONS"
}
#: The only routes that need no key.
OPEN_ROUTES = {
    ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/page/static/{name}"), ("GET", "/page/key"),
    ("POST", "/page/key"), ("GET", "/page/login"), ("GET", "/page/login/callback"),
}  # fmt: skip


def test_only_health_checks_and_pages_without_data_need_no_key() -> None:
    assert {route for route, each in DECLARED.items() if each.get("role") == OPEN} == OPEN_ROUTES


@pytest.mark.parametrize(("method", "path"), sorted(DECLARED))
def test_every_route_declares_its_role(method: str, path: str) -> None:
    if path != PASS_THROUGH:  # its role depends on the address
        assert DECLARED[method, path].get("role") in (OPEN, *ROLES)


@pytest.fixture(scope="module")
async def keyed() -> AsyncIterator[Keyed]:
    async with served() as made:
        yield made


@pytest.fixture(scope="module")
async def clients(keyed: Keyed) -> dict[Role, httpx.AsyncClient]:
    return {
        role: await keyed.client_as(role, "ann" if role in OF_ONE_USER else None, organizations=["1"]) for role in ROLES
    }


def address(path: str) -> str:
    """Fill path parameters with valid IDs that do not exist: organization 1, prompt `prompt`, turn 1."""
    return (
        path.replace("{n}", "1")
        .replace("{seq}", "1")
        .replace("{number}", "1")
        .replace("{organization}", "1")
        .replace("{", "")
        .replace("}", "")
    )


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_route_accepts_only_its_role_and_higher(
    keyed: Keyed, clients: dict[Role, httpx.AsyncClient], method: str, path: str
) -> None:
    nobody = await keyed.client().request(method, address(path), json={})
    if (method, path) in OPEN_ROUTES:
        assert nobody.status_code == 200
        return
    assert nobody.status_code == 401
    assert nobody.headers["www-authenticate"].startswith("Bearer")
    needed = DECLARED[method, path]["role"]
    for role, client in clients.items():
        answer = await client.request(method, address(path), json={"timeout": 0} if "settle" in path else {})
        assert answer.status_code < 500, answer.text
        if ROLES.index(role) >= ROLES.index(needed):
            assert answer.status_code != 401, role
            assert f"{method} /" not in answer.text.partition("detail")[2], (
                role,
                answer.text,
            )  # the error must come from the route itself
        elif DECLARED[method, path].get("hidden"):
            assert answer.status_code == 404, role
        else:
            assert answer.status_code == 403, role
            assert f"role {needed} or higher" in answer.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/files/file-1"), ("GET", "/v1/files"), ("DELETE", "/v1/models/ft:x"), ("POST", "/v1/batches"),
        ("POST", "/v1/fine_tuning/jobs"), ("GET", "/v1/responses/resp_theirs"),
        ("DELETE", "/v1/responses/resp_theirs"), ("GET", "/v1/conversations/conv_theirs"), ("POST", "/v1/audio/speech"),
    ],
)  # fmt: skip
async def test_only_an_owner_reaches_the_upstreams_other_routes(upstream: Upstream, method: str, path: str) -> None:
    async with served(where=config(upstream=upstream.url)) as keyed:
        editor, owner = await keyed.client_as("editor", "ann"), await keyed.client_as("owner")
        other_tenants_owner = await keyed.client_as("owner", tenant="acme")
        assert (await editor.request(method, path)).status_code == 403
        assert (await other_tenants_owner.request(method, path)).status_code == 403
        assert upstream.received == []
        await owner.request(method, path)
        assert [each.method for each in upstream.received] == [method]


async def test_an_editor_reaches_the_upstreams_served_routes(upstream: Upstream) -> None:
    async with served(where=config(upstream=upstream.url, responses="native")) as keyed:
        editor = await keyed.client_as("editor", "ann")
        for path in ("/v1/embeddings", "/v1/moderations", "/v1/responses/compact"):
            await editor.post(path, json={"model": "m", "input": "x"})
            assert upstream.last.path == path
        assert (await editor.get("/v1/models")).status_code == 200
