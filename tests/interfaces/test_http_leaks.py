"""Property tests of isolation: no answer contains data of another tenant or user."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from api_keys import served
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

TENANTS = ("north", "south", "west")
USERS = ("ann", "bob")
ADMIN = "admin"
CALLERS = [(tenant, user) for tenant in TENANTS for user in (*USERS, ADMIN)]
#: Conversation IDs that every caller uses.
TALKS = ("c0", "c1", "c2")
#: Words around every canary, so that any search finds them.
ABOUT = "My harbour pilot is called"

Call = Callable[[httpx.AsyncClient, str, str], Awaitable[httpx.Response]]


def get(path: str) -> Call:
    return lambda client, talk, canary: client.get(path.format(talk=talk))


def post(path: str, **body: Any) -> Call:
    def call(client: httpx.AsyncClient, talk: str, canary: str) -> Awaitable[httpx.Response]:
        filled = {name: fill(value, talk, canary) for name, value in body.items()}
        return client.post(
            path.format(talk=talk), json=filled, headers={"idempotency-key": talk} if talk == "c2" else {}
        )

    return call


def fill(value: Any, talk: str, canary: str) -> Any:
    if isinstance(value, str):
        return value.replace("{talk}", talk).replace("{canary}", canary)
    if isinstance(value, list):
        return [fill(each, talk, canary) for each in value]
    if isinstance(value, dict):
        return {name: fill(each, talk, canary) for name, each in value.items()}
    return value


SAID = f"{ABOUT} {{canary}}."
HISTORY = [{"role": "user", "content": f"{ABOUT} who?"}, {"role": "assistant", "content": "Tell me."}]
SHARED = {
    "longTermMemory": {"enabled": True, "scopes": {"user": True, "organization": True}, "shareWithOrganization": True}
}
CALLS: dict[str, Call] = {
    "chat": post("/api/chat", message=SAID, conversationId="{talk}"),
    "chat anew": post("/api/chat", message=f"Who is it? {SAID}"),
    "chat shared": post(
        "/api/chat", message=SAID, conversationId="{talk}", organizationId="acme", memoryControl=SHARED
    ),
    "assemble": post("/api/assemble", message=f"{ABOUT}?", conversationId="{talk}", organizationId="acme"),
    "posts": post("/api/conversations/{talk}/posts", posts=[{"sendFrom": "ann", "message": SAID}]),
    "completion": post("/v1/chat/completions", model="m", messages=[*HISTORY, {"role": "user", "content": SAID}]),
    "completion in": post("/c/{talk}/v1/chat/completions", model="m", messages=[{"role": "user", "content": SAID}]),
    "search": post("/api/memories/search", query=ABOUT, limit=50),
    "search in": post("/api/memories/search", query=ABOUT, conversationId="{talk}", limit=50),
    "knowledge": post("/learning/knowledge", category="user_preference", key="pilot", value=SAID),
    "digest": post("/learning/memory/digest", conversationId="{talk}"),
    "compress": post("/api/conversations/{talk}/compress", olderThan="{talk}", summary=SAID),
    "prompt": post("/api/prompts", slug="persona/pilot", type="persona", sections={"main": SAID}),
    "render": post("/api/prompts/persona~pilot/render", params={}, log=True),
    "observe": post("/api/prompts/persona~pilot/observations", sentiment=0.5, conversationId="{talk}"),
    "settle": post("/api/settle", conversationId="{talk}", timeout=1),
    "delete": lambda client, talk, canary: client.delete(f"/api/conversations/{talk}"),
    **{
        path: get(path)
        for path in (
            "/api/conversations", "/api/conversations/{talk}", "/api/conversations/{talk}/posts?branches=all",
            "/api/conversations/{talk}/rounds", "/api/conversations/{talk}/turns", "/api/conversations/{talk}/turns/1",
            "/api/conversations/{talk}/turns/1/replay", "/api/conversations/{talk}/summary",
            "/api/conversations/{talk}/items", "/api/conversations/{talk}/session",
            "/api/conversations/{talk}/shared-entries", "/api/memories", "/api/memories/export",
            "/learning/knowledge", "/api/prompts", "/api/prompts/persona~pilot", "/api/prompts/persona~pilot/history",
            "/api/audit", "/api/organizations/acme/settings", "/readyz", "/",
        )
    },
}  # fmt: skip
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(CALLERS), st.sampled_from(sorted(CALLS)), st.sampled_from(TALKS)),
    min_size=30,
    max_size=60,
)
FIRST = ("chat", "prompt", "knowledge", "chat shared", "completion", "posts")
#: Every caller writes through every route, then every caller reads from every route.
ALL = [
    (caller, call, "c0") for calls in (FIRST, sorted(set(CALLS) - {"delete"})) for caller in CALLERS for call in calls
]


def canary(tenant: str, user: str) -> str:
    return f"Zq{tenant.capitalize()}{user.capitalize()}"


def foreign(tenant: str, user: str, call: str) -> list[str]:
    """Return the canaries that a caller must never read: other tenants' and, in the same tenant, other users'.

    An admin key acts for all users of its tenant and in their conversations. Prompts belong to the
    tenant, and so does everything shared with acme.
    """
    same = () if user == ADMIN or "prompt" in call or call in ("render", "observe") else (*USERS, ADMIN)
    return [canary(other, each) for other in TENANTS if other != tenant for each in (*USERS, ADMIN)] + [
        canary(tenant, each) for each in same if each not in (user, ADMIN)
    ]


@pytest.mark.slow  # test_authorization.py has fast tests of the same
@settings(max_examples=max(1, settings().max_examples // 5 - 3), suppress_health_check=list(HealthCheck))
@given(OPERATIONS)
@example(ALL)
def test_answers_contain_no_data_of_others(operations: list[tuple[tuple[str, str], str, str]]) -> None:
    asyncio.run(check_isolation(operations))


async def check_isolation(operations: list[tuple[tuple[str, str], str, str]]) -> None:
    async with served() as keyed:
        clients = {
            (tenant, user): await keyed.client_as(
                "admin" if user == ADMIN else "editor",
                None if user == ADMIN else user,
                organizations=["acme"] if user == ADMIN else [],
                tenant=tenant,
            )
            for tenant, user in CALLERS
        }
        good = 0
        for (tenant, user), call, talk in operations:
            mine = canary(tenant, user)
            answer = await CALLS[call](clients[tenant, user], talk, mine)
            assert answer.status_code < 500, (call, answer.text)
            assert answer.status_code != 401, call
            good += answer.status_code < 300
            for other in foreign(tenant, user, call):
                assert other not in answer.text, (tenant, user, call, talk)
        await keyed.cue.settle(timeout=60)
        for tenant, user in CALLERS:
            for call in ("search", "assemble", "/api/memories", "/api/conversations"):
                answer = await CALLS[call](clients[tenant, user], "c0", "")
                assert not [other for other in foreign(tenant, user, call) if other in answer.text], call
        assert good, "No request succeeded."
