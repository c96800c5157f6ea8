"""Tests of API keys over HTTP: authentication, roles, users, tenants and organizations."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from api_keys import Keyed, served
from shared_app import app_of
from upstream import Upstream

from conftest import Live, config
from cuebook import Config, Cuebook
from cuebook.errors import InvalidInput
from cuebook.records.key import id_of
from cuebook.server.app import listen, serve
from cuebook.testing.doubles import BEGINNING, FrozenClock

SAY = {"message": "The cat is called Miso.", "conversationId": "c1"}


@pytest.fixture
async def keyed() -> AsyncIterator[Keyed]:
    async with served() as made:
        yield made


# ---- valid and invalid keys


async def test_caller_is_the_owner_when_no_key_exists(keyed: Keyed) -> None:
    assert (await keyed.client().get("/api/audit")).status_code == 200
    assert (await keyed.client("sk-placeholder").get("/api/audit")).status_code == 200


async def test_first_key_makes_authentication_required(keyed: Keyed) -> None:
    ann = await keyed.client_as("editor", "ann")
    answer = await keyed.client().get("/api/conversations")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    error = (await keyed.client().post("/v1/chat/completions", json={"messages": []})).json()["error"]
    assert error["code"] == "invalid_api_key"
    assert (await ann.get("/api/conversations")).status_code == 200
    assert (await keyed.client().get("/healthz")).json() == {"status": "alive"}
    assert "cue_" in (await keyed.client().get("/")).text
    assert (await keyed.client().get("/readyz")).json()["store"] == {}


async def test_revoked_key_is_rejected_at_once(keyed: Keyed) -> None:
    made = await keyed.cue.keys.new("owner")
    owner = keyed.client(made.token)
    assert (await owner.get("/api/audit")).status_code == 200
    await keyed.cue.keys.revoke(made.id)
    assert (await owner.get("/api/audit")).status_code == 401
    assert (await keyed.client().get("/api/audit")).status_code == 401


async def test_both_keys_of_a_rotation_work_during_the_overlap() -> None:
    clock = FrozenClock()
    async with served(clock=clock) as keyed:
        old = await keyed.cue.keys.new("editor", user="ann")
        new = await keyed.cue.keys.rotate(old.id, overlap_hours=1)
        clients = [keyed.client(each.token) for each in (old, new)]
        for later_s, statuses in ((0, [200, 200]), (3_599, [200, 200]), (3_600, [401, 200])):
            clock.set(BEGINNING + later_s)
            assert [(await each.get("/api/conversations")).status_code for each in clients] == statuses


async def test_expired_key_is_rejected() -> None:
    clock = FrozenClock()
    async with served(clock=clock) as keyed:
        made = await keyed.cue.keys.new("owner", expires_days=1)
        owner = keyed.client(made.token)
        clock.advance(86_399)
        assert (await owner.get("/api/audit")).status_code == 200
        clock.advance(1)
        assert (await owner.get("/api/audit")).status_code == 401


async def test_key_of_another_project_is_rejected(keyed: Keyed) -> None:
    made = await keyed.cue.keys.new("owner")
    async with served() as other:
        await other.cue.keys.new("owner")
        assert (await other.client(made.token).get("/api/audit")).status_code == 401


@pytest.mark.parametrize(
    "wrong",
    ["", "cue_", "cue_x_y", "{id}", "cue_{id}_" + "A" * 43, "cue_{id}_" + "A" * 42, "sk-1", "{token}A", " {token}é"],
)
async def test_malformed_key_is_rejected(keyed: Keyed, wrong: str) -> None:
    made = await keyed.cue.keys.new("owner")
    shown = wrong.replace("{id}", made.id).replace("{token}", made.token)
    for headers in ({"authorization": f"Bearer {shown}".encode()}, {"x-cuebook-key": shown.encode()}):
        answer = await keyed.client().get("/api/audit", headers=headers)
        assert answer.status_code == 401, headers
        assert made.token not in answer.text


async def test_every_invalid_key_gets_the_same_error(keyed: Keyed) -> None:
    made, gone = await keyed.cue.keys.new("owner"), await keyed.cue.keys.new("owner")
    await keyed.cue.keys.revoke(gone.id)
    wrong = (gone.token, made.token[:-1] + ("A" if made.token[-1] != "A" else "B"), f"cue_unknown_{'A' * 43}")
    details = {(await keyed.client(each).get("/api/audit")).json()["detail"] for each in wrong}
    assert len(details) == 1


async def test_cuebook_key_header_precedes_authorization(keyed: Keyed) -> None:
    made = await keyed.cue.keys.new("owner")
    client = keyed.client("sk-upstream", **{"x-cuebook-key": made.token})
    assert (await client.get("/api/audit")).status_code == 200
    client = keyed.client(made.token, **{"x-cuebook-key": "cue_wrong"})
    assert (await client.get("/api/audit")).status_code == 401


async def test_key_secret_is_not_stored(tmp_path: Any) -> None:
    store = tmp_path / "cuebook.db"
    async with served(where=config(store=str(store))) as keyed:
        made = await keyed.cue.keys.new("owner")
        assert (await keyed.client(made.token).get("/api/audit")).status_code == 200
    secret = made.token.removeprefix(f"cue_{id_of(made.token)}_").encode()
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and secret in each.read_bytes()]


# ---- the user of a key


@pytest.mark.parametrize(
    ("method", "path", "request_options"),
    [
        ("POST", "/api/chat", {"json": SAY | {"userId": "bob"}}),
        ("POST", "/api/chat?userId=bob", {"json": SAY}),
        ("POST", "/api/chat", {"json": SAY, "headers": {"x-user-id": "bob"}}),
        ("POST", "/api/assemble", {"json": SAY | {"userId": "bob"}}),
        ("POST", "/api/memories/search", {"json": {"query": "x", "userId": "bob"}}),
        ("GET", "/api/conversations?userId=bob", {}),
        ("GET", "/api/prompts", {"headers": {"x-user-id": "bob"}}),
        ("POST", "/u/bob/v1/chat/completions", {"json": {"messages": [{"role": "user", "content": "x"}]}}),
        ("POST", "/v1/chat/completions", {"json": {"messages": []}, "headers": {"x-user-id": "bob"}}),
    ],
)
async def test_user_key_cannot_act_for_another_user(
    keyed: Keyed, method: str, path: str, request_options: dict[str, Any]
) -> None:
    ann = await keyed.client_as("editor", "ann")
    answer = await ann.request(method, path, **request_options)
    assert answer.status_code == 403, answer.text
    assert "cannot act for others" in answer.text
    assert not (await keyed.cue.conversations.list()).items


async def test_user_key_is_the_default_user(keyed: Keyed) -> None:
    ann = await keyed.client_as("editor", "ann")
    for path in ("/v1/chat/completions", "/u/ann/v1/chat/completions"):
        answer = await ann.post(path, json={"messages": [{"role": "user", "content": "Hi"}], "user": "opaque-hash"})
        assert answer.status_code == 200
        result = await keyed.cue.conversations.get(answer.headers["x-conversation-id"])
        assert result.user == "ann"


async def test_agent_key_acts_for_any_user_of_its_tenant(keyed: Keyed) -> None:
    agent, ann, bob = [
        await keyed.client_as(role, user)
        for role, user in (("agent", None), ("viewer", "ann"), ("viewer", "bob"))  # type: ignore[arg-type]
    ]
    assert (await agent.post("/api/chat", json=SAY | {"userId": "ann"})).status_code == 200
    assert (await ann.get("/api/conversations/c1")).json()["userId"] == "ann"
    assert (await bob.get("/api/conversations/c1")).status_code == 404


async def test_user_key_cannot_access_conversations_without_an_owner(keyed: Keyed) -> None:
    agent, ann = await keyed.client_as("agent"), await keyed.client_as("editor", "ann")
    assert (await agent.post("/api/chat", json=SAY)).status_code == 200
    assert (await agent.get("/api/conversations/c1")).status_code == 200
    assert (await ann.get("/api/conversations/c1")).status_code == 404
    assert (await ann.get("/api/conversations")).json()["items"] == []
    assert (await ann.post("/api/chat", json=SAY)).status_code == 404


async def test_system_messages_require_an_agent_key(keyed: Keyed) -> None:
    agent, ann = await keyed.client_as("agent"), await keyed.client_as("editor", "ann")
    for body in (
        {"posts": [{"sendFrom": "system", "message": "Obey."}]},
        {"messages": [{"role": "system", "content": "Obey."}]},
        {"messages": [{"role": "developer", "content": "Obey."}]},
    ):
        assert (await ann.post("/api/conversations/c1/posts", json=body)).status_code == 403
        assert (await agent.post("/api/conversations/c2/posts", json=body)).status_code == 201


async def test_idempotency_keys_are_separate_per_api_key(keyed: Keyed) -> None:
    one, two = await keyed.client_as("agent"), await keyed.client_as("agent")
    headers = {"idempotency-key": "1"}
    first = await one.post("/api/chat", json={"message": "one"}, headers=headers)
    other = await two.post("/api/chat", json={"message": "two"}, headers=headers)
    second = await one.post("/api/chat", json={"message": "one"}, headers=headers)
    assert (first.status_code, other.status_code) == (200, 200)
    assert second.json() == first.json()
    assert other.json()["conversationId"] != first.json()["conversationId"]
    too_long = await one.post("/api/chat", json={"message": "one"}, headers={"idempotency-key": "k" * 255})
    assert too_long.status_code == 400


async def test_users_share_a_conversation_only_as_participants(keyed: Keyed) -> None:
    ann, bob, owner = (
        await keyed.client_as("editor", "ann"),
        await keyed.client_as("editor", "bob"),
        await keyed.client_as("owner"),
    )
    assert (await ann.post("/api/chat", json=SAY)).json()["turn"] == 1
    assert (await bob.post("/api/chat", json=SAY)).status_code == 404
    for path in ("", "/posts", "/rounds", "/turns", "/turns/1", "/summary", "/items", "/session"):
        assert (await ann.get(f"/api/conversations/c1{path}")).status_code == 200
        mine, none = [(await bob.get(f"/api/conversations/{name}{path}")) for name in ("c1", "c9")]
        assert mine.status_code == none.status_code == 404
        assert mine.json()["detail"].replace("c1", "c9") == none.json()["detail"]
    assert (await bob.post("/api/memories/search", json={"query": "cat Miso"})).json() == {"hits": []}
    # only an owner can add bob
    users = {"participants": ["bob"]}
    for each in (ann, bob):
        assert (await each.put("/api/conversations/c1/participants", json=users)).status_code == 404
    put = await owner.put("/api/conversations/c1/participants", json=users)
    assert put.json()["participants"] == ["ann", "bob"]
    assert (await bob.get("/api/conversations/c1/posts")).status_code == 200
    assert [each["id"] for each in (await bob.get("/api/conversations")).json()["items"]] == ["c1"]
    assert (await bob.post("/api/chat", json=SAY | {"message": "And mine is Tofu."})).json()["turn"] == 2
    assert (await bob.delete("/api/conversations/c1")).status_code == 403
    forgotten = await bob.post("/api/memories/forget", json={"conversationId": "c1"})
    assert forgotten.status_code == 403
    assert (await owner.put("/api/conversations/c1/participants", json={"participants": []})).json()[
        "participants"
    ] == ["ann"]
    assert (await bob.get("/api/conversations/c1")).status_code == 404
    assert (await ann.delete("/api/conversations/c1")).status_code == 200
    assert "participants" in [each["event"] for each in (await owner.get("/api/audit")).json()["items"]]


async def test_tenants_are_isolated(keyed: Keyed) -> None:
    here, there = await keyed.client_as("owner", tenant="here"), await keyed.client_as("owner", tenant="there")
    prompt = {"slug": "persona/kind", "type": "persona", "sections": {"main": "Be kind."}}
    for client, word in ((here, "Miso"), (there, "Tofu")):
        assert (await client.post("/api/chat", json={"message": word, "conversationId": "c1"})).status_code == 200
        made = await client.post("/api/prompts", json=prompt | {"sections": {"main": f"Be {word}."}})
        assert (made.status_code, made.json()["version"]) == (201, 1)
    for client, mine, other in ((here, "Miso", "Tofu"), (there, "Tofu", "Miso")):
        for path in ("/api/conversations/c1/posts", "/api/prompts/persona~kind", "/api/audit"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert mine in answer.text or path == "/api/audit"
            assert other not in answer.text
        assert (await client.post("/api/audit/verify")).json()["ok"]


async def test_key_can_only_forget_its_own_data(keyed: Keyed) -> None:
    ann, bob = await keyed.client_as("editor", "ann"), await keyed.client_as("editor", "bob")
    agent, owner = await keyed.client_as("agent"), await keyed.client_as("owner")
    admin = await keyed.client_as("admin", "mara", organizations=["acme"])
    for client, talk in ((ann, "c1"), (bob, "c2")):
        assert (await client.post("/api/chat", json=SAY | {"conversationId": talk})).status_code == 200
    path = "/api/memories/forget"
    assert (await ann.post(path, json={"userId": "bob"})).status_code == 403
    assert (await ann.post(path, json={"organizationId": "acme"})).status_code == 404
    assert (await admin.post(path, json={"organizationId": "acme"})).status_code == 200
    assert (await admin.post(path, json={"organizationId": "other"})).status_code == 404
    for target in ({"userId": "ann"}, {"conversationId": "c1"}, {"personaId": "helper"}):
        assert (await agent.post(path, json=target)).status_code == 403
    nothing = await ann.post(path, json={"conversationId": "c2"})  # a conversation of another user counts as unknown
    assert (nothing.status_code, (await bob.get("/api/conversations/c2")).status_code) == (200, 200)
    assert (await ann.post(path, json={"userId": "ann"})).status_code == 200
    assert (await ann.get("/api/conversations/c1")).status_code == 404
    assert (await bob.get("/api/conversations/c2")).status_code == 200
    assert (await owner.post(path, json={"userId": "bob"})).status_code == 200
    assert (await bob.get("/api/conversations/c2")).status_code == 404


# ---- organizations


async def test_only_admins_access_organization_settings(keyed: Keyed) -> None:
    admin = await keyed.client_as("admin", "mara", organizations=["acme"])
    others = [
        await keyed.client_as("admin", organizations=["other"]),
        await keyed.client_as("admin"),
        await keyed.client_as("agent", organizations=["acme"]),
        await keyed.client_as("editor", "ann", organizations=["acme"]),
    ]
    path, change = "/api/organizations/acme/settings", {"memory": {"longTermMemory": {"allowWrites": False}}}
    for each in others:
        assert (await each.get(path)).status_code == 404
        assert (await each.patch(path, json=change)).status_code == 404
    assert (await admin.get(path)).json()["memory"]["longTermMemory"]["allowWrites"] is True
    after = (await admin.patch(path, json=change)).json()["memory"]["longTermMemory"]
    assert after == {
        "enabled": True, "defaultRetrievalEnabled": True, "allowWrites": False, "allowedCategories": None,
    }  # fmt: skip
    assert (await admin.get(path)).json()["memory"]["longTermMemory"] == after
    wrong = await admin.patch(path, json={"memory": {"longTermMemory": {"allowedCategories": ["gossip"]}}})
    assert (wrong.status_code, wrong.json()["where"]) == (400, "memory.longTermMemory.allowedCategories")
    unknown = await admin.patch(path, json={"memory": {"shortTermMemory": {}}})
    assert unknown.status_code == 400
    owner = await keyed.client_as("owner")
    assert (await owner.get(path)).json()["memory"]["longTermMemory"] == after
    assert "organization" in [each["event"] for each in (await owner.get("/api/audit")).json()["items"]]


async def test_only_members_can_name_an_organization(keyed: Keyed) -> None:
    member = await keyed.client_as("editor", "ann", organizations=["acme"])
    stranger = await keyed.client_as("editor", "bob")
    body = {"message": "Hi", "organizationId": "acme"}
    for path in ("/api/chat", "/api/assemble"):
        assert (await member.post(path, json=body)).status_code == 200
        assert (await stranger.post(path, json=body)).status_code == 404


# ---- exposed servers


def test_server_without_keys_refuses_a_public_address(tmp_path: Any) -> None:
    settings = config(store=str(tmp_path / "cuebook.db"))
    with pytest.raises(InvalidInput, match="cuebook key new"):
        serve(settings, host="0.0.0.0", port=0)  # noqa: S104
    for each in listen("0.0.0.0", 0, keyed=True):  # noqa: S104
        each.close()


async def test_exposed_server_always_requires_keys() -> None:
    async with Cuebook.open() as cue:
        app = app_of(cue, host="0.0.0.0", port=8760)  # noqa: S104
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://book.example:8760") as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/api/conversations")).status_code == 401
            made = await cue.keys.new("owner")
            headers = {"authorization": f"Bearer {made.token}"}
            assert (await client.get("/api/conversations", headers=headers)).status_code == 200
            foreign = headers | {"origin": "http://evil.example"}
            assert (await client.get("/api/conversations", headers=foreign)).status_code == 403


def test_cuebook_key_is_never_forwarded_upstream(
    upstream: Upstream, serve_live: Callable[..., Live], tmp_path: Any
) -> None:
    settings: Config = config(store=str(tmp_path / "b.db"), upstream=upstream.url)
    live = serve_live(settings)
    made = live.ask_cue(lambda: live.cue.keys.new("editor", user="ann"))
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    for headers in (
        {"authorization": f"Bearer {made.token}"},
        {"authorization": "Bearer sk-mine", "x-cuebook-key": made.token},
        {"authorization": made.token, "x-cuebook-key": made.token},
        {"authorization": f"Bearer sk-mine, Bearer {made.token}", "x-cuebook-key": made.token},
        {"api-key": made.token, "x-cuebook-key": made.token, "cookie": f"cuebook_key={made.token}"},
    ):
        answer = httpx.post(f"{live.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
    first, second, *_ = [dict(each.headers) for each in upstream.received]
    assert made.token not in str(upstream.received)
    assert made.token not in str(upstream.background)
    assert {each.path for each in upstream.background} == {"/v1/models"}
    assert "authorization" not in {name.lower() for name in first}
    assert {name.lower(): value for name, value in second.items()}["authorization"] == "Bearer sk-mine"
