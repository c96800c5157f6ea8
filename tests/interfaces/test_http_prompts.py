"""Tests of `/api/prompts` over real HTTP: versions, IDs, conflicts, selection, observations and refusals."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from conftest import Live, config
from cuebook import BlockingCuebook, Cuebook
from hashing_embedder import HashingEmbedder

KIND = {"identity": "Welcome $user_name, I'm $agent_name.", "limits": "Be concise."}
PARAMS = ["$agent_name", {"name": "user_name", "default": "friend"}]


@pytest.fixture
def live(serve_live: Callable[..., Live]) -> Live:
    return serve_live()


@pytest.fixture
def client(live: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url) as http_client:
        yield http_client


@pytest.fixture(scope="module")
def shared_live() -> Iterator[Live]:
    """One server for all rejected requests. It has the prompt `a`."""
    running = Live(Cuebook.open(config()))
    with httpx.Client(base_url=running.url) as http_client:
        save_prompt(http_client, "a", {"body": "Be $tone."}, params=["tone"])
    yield running
    running.stop()


@pytest.fixture
def shared_client(shared_live: Live) -> Iterator[httpx.Client]:
    """A client of `shared_live`. Check after the test that nothing was written."""
    with httpx.Client(base_url=shared_live.url) as http_client:
        yield http_client
        assert [each["slug"] for each in http_client.get("/api/prompts").json()["items"]] == ["a"]
        assert [each["kind"] for each in http_client.get("/api/prompts/a/history").json()["items"]] == ["write"]
        assert http_client.get("/api/prompts/a/branches").json()["items"][0]["observations"] == 0


def save_prompt(client: httpx.Client, slug: str, sections: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    answer = client.post("/api/prompts", json={"slug": slug, "sections": sections or {"body": "x"}} | more)
    assert answer.status_code == 201, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


def check_problem(answer: httpx.Response, status: int, where: str | None = None) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    fields = answer.json()
    assert fields["status"] == status
    if where is not None:
        assert fields["where"] == where, fields
    detail: str = fields["detail"]
    return detail


def test_prompt_is_saved_rendered_and_branched(client: httpx.Client) -> None:
    first = save_prompt(client, "persona/kind_helper", KIND, params=PARAMS, type="persona", author="ann", tags=["warm"])
    assert set(first) == {"slug", "branch", "version", "semver", "digest"}
    assert (first["slug"], first["branch"], first["version"], first["semver"]) == (
        "persona/kind_helper",
        "main",
        1,
        "1.0.0",
    )
    second = save_prompt(client, "persona/kind_helper", {**KIND, "limits": "Be brief."}, base=1)
    assert (second["version"], second["semver"]) == (2, "1.0.1")
    one = "/api/prompts/persona~kind_helper"
    result = client.get(one).json()
    assert (result["version"], result["head"], result["active"], result["type"], result["tags"]) == (
        2,
        True,
        True,
        "persona",
        ["warm"],
    )
    assert list(result["sections"]) == ["identity", "limits"]
    assert result["params"][1]["default"] == "friend"
    assert result["lineage"] == ["prompt:persona/kind_helper@main:2"]
    body = {"params": {"$agent_name": "Ada"}}
    rendered = client.post(f"{one}/render", json=body)
    assert rendered.status_code == 200
    fields = rendered.json()
    assert {"text", "slug", "version", "semver", "digest", "timestamp"} <= set(fields)
    assert (fields["text"], fields["digest"]) == ("Welcome friend, I'm Ada.\n\nBe brief.", second["digest"])
    assert fields["timestamp"].endswith("Z")
    old = client.post(f"{one}/render", json=body | {"version": 1}).json()
    assert old["text"].endswith("Be concise.")
    forked = client.post(f"{one}/branches", json={"name": "try", "from": {"branch": "main", "version": 1}})
    assert (forked.status_code, forked.json()["branch"], forked.json()["version"]) == (201, "try", 1)
    assert client.get(one, params={"branch": "try"}).json()["branchedFrom"] == "main:1"
    branches = client.get(f"{one}/branches").json()["items"]
    assert [(each["name"], each["head"], each["active"], each["edgeWeight"]) for each in branches] == [
        ("main", 2, 2, 0.5),
        ("try", 1, 1, 0.5),
    ]
    listed = client.get("/api/prompts").json()["items"]
    assert [(each["slug"], each["version"], len(each["branches"])) for each in listed] == [
        ("persona/kind_helper", 2, 2)
    ]


def test_logged_render_can_be_replayed(live: Live, client: httpx.Client) -> None:
    save_prompt(client, "system/base", {"rules": "Be true."})
    save_prompt(client, "a", {"body": "Be $tone."}, params=["tone"], inherits="system/base")
    body = {"params": {"$tone": "warm"}, "log": True, "userId": "ann"}
    fields = client.post("/api/prompts/a/render", json=body).json()
    assert "auditSeq" not in client.post("/api/prompts/a/render", json=body | {"log": False}).json()
    audit = live.cue.audit
    record = live.ask_cue(lambda: audit.list(after=fields["auditSeq"] - 1))[-1]
    assert (record.event, record.agent, record.prompt_id, record.digest) == ("render", "ann", "a", fields["digest"])
    assert record.interpolated_text == fields["text"]
    assert live.ask_cue(lambda: audit.replay(fields["auditSeq"])).verdict == "identical"


def test_versions_are_read_by_number_and_compared(client: httpx.Client) -> None:
    save_prompt(client, "a", KIND, params=PARAMS)
    save_prompt(client, "a", {"identity": KIND["identity"], "style": "Use $tone."}, params=[*PARAMS, "tone"])
    assert client.get("/api/prompts/a/versions/1").json()["sections"] == KIND
    versions = client.get("/api/prompts/a/versions").json()
    assert [(each["version"], each["head"], each["supersedes"]) for each in versions["items"]] == [
        (1, False, None),
        (2, True, 1),
    ]
    assert "sections" not in versions["items"][0]
    change = client.get("/api/prompts/a/diff?a=1&b=2").json()
    assert (change["a"], change["b"], change["bump"]) == (1, 2, "major")
    assert [(each["name"], each["kind"]) for each in change["sections"]] == [("limits", "removed"), ("style", "added")]
    assert change["sections"][1]["lines"] == ["+Use $tone."]
    assert [(each["name"], each["before"]) for each in change["params"]] == [("tone", None)]
    back = client.get("/api/prompts/a/diff?a=2&b=1").json()
    assert [each["kind"] for each in back["sections"]] == ["removed", "added"]
    assert client.get("/api/prompts/a/diff?a=1").json() == change
    assert "1 to 2" in check_problem(client.get("/api/prompts/a/diff?a=3"), 404)
    check_problem(client.get("/api/prompts/a/diff?b=1"), 400, "a")
    check_problem(client.get("/api/prompts/a/diff?a=0"), 400, "a")
    for n in ("3", "0", "-1", str(2**70)):
        check_problem(client.get(f"/api/prompts/a/versions/{n}"), 404)


def test_rewriting_a_shown_version_keeps_digest_and_semver(client: httpx.Client) -> None:
    metadata = {"context_weights": {"task_coding": 0.5}, "model": "any"}
    made = save_prompt(
        client, "a", KIND, params=PARAMS, metadata=metadata, engine="braces", overrideSections={"z": "over"}
    )
    result = client.get("/api/prompts/a").json()
    assert (result["metadata"], result["engine"], result["overrideSections"]) == (metadata, "braces", {"z": "over"})
    names = ("slug", "type", "sections", "overrideSections", "inherits", "metadata", "params", "engine", "tags", "sync")
    second = client.post("/api/prompts", json={name: result[name] for name in names}).json()
    assert (second["version"], second["digest"], second["semver"]) == (2, made["digest"], made["semver"])


def test_child_prompt_inherits_until_inherits_is_null(client: httpx.Client) -> None:
    save_prompt(client, "system/base", {"rules": "Be true.", "tone": "Warm."})
    save_prompt(client, "persona/a", {"rules": "Be quick."}, inherits="system/base")
    save_prompt(client, "persona/a", {"rules": "Be quicker."})
    own = client.get("/api/prompts/persona~a").json()
    assert (own["sections"], own["inherits"]) == ({"rules": "Be quicker."}, "system/base")
    whole = client.get("/api/prompts/persona~a?resolve=true").json()
    assert whole["sections"] == {"rules": "Be true.\n\nBe quicker.", "tone": "Warm."}
    assert whole["lineage"] == ["prompt:system/base@main:1", "prompt:persona/a@main:2"]
    assert client.get("/api/prompts/persona~a/versions/1?resolve=true").json()["sections"]["rules"].endswith("quick.")
    save_prompt(client, "persona/a", {"rules": "Alone."}, inherits=None)
    alone = client.get("/api/prompts/persona~a?resolve=true").json()
    assert (alone["inherits"], alone["sections"]) == (None, {"rules": "Alone."})
    ring = {"slug": "system/base", "sections": {"body": "x"}, "inherits": "persona/a@main:2"}
    assert "circular inheritance" in check_problem(client.post("/api/prompts", json=ring), 400, "inherits")


def test_prompt_named_keep_can_be_a_parent(client: httpx.Client) -> None:
    save_prompt(client, "keep", {"body": "Kept."})
    save_prompt(client, "child", {"body": "New."}, inherits="keep")
    assert client.get("/api/prompts/child?resolve=true").json()["sections"] == {"body": "Kept.\n\nNew."}


def test_unknown_id_falls_back_to_the_default_folder(client: httpx.Client) -> None:
    save_prompt(client, "default/agent_init", {"body": "Begin."})
    assert client.get("/api/prompts/agent_init").json()["slug"] == "default/agent_init"
    assert client.post("/api/prompts/agent_init/render", json={}).json()["slug"] == "default/agent_init"
    assert "prompt list" in check_problem(client.get("/api/prompts/nobody"), 404)


def test_outdated_base_is_a_conflict(client: httpx.Client) -> None:
    save_prompt(client, "a", base=0)
    body: dict[str, Any] = {"slug": "a", "sections": {"body": "y"}, "base": 0}
    assert "head is 1" in check_problem(client.post("/api/prompts", json=body), 409)
    start = threading.Barrier(8)

    def write(number: int) -> int:
        start.wait(60)
        mine = {"slug": "a", "sections": {"body": f"mine {number}"}, "base": 1}
        return client.post("/api/prompts", json=mine).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(write, range(8))) == [201] + [409] * 7
    assert len(client.get("/api/prompts/a/versions").json()["items"]) == 2
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: save_prompt(client, "a", {"body": f"all {n}"})["version"], range(8)))
    assert sorted(made) == list(range(3, 11))
    client.post("/api/prompts/a/branches", json={"name": "try"})
    assert "already" in check_problem(client.post("/api/prompts/a/branches", json={"name": "try"}), 409)
    assert "Fork it first" in check_problem(
        client.post("/api/prompts", json={"slug": "a", "branch": "other", "sections": {}}), 404
    )


# ---- names


def raw(live: Live, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    """Send a request with an unnormalized path."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    "name", ["persona~a~b", "persona%2Fa%2fb", "persona%2Fa~b", "%70ersona~a~b", "persona%2F%61%2Fb"]
)
def test_slash_in_an_id_has_two_spellings(live: Live, client: httpx.Client, name: str) -> None:
    save_prompt(client, "persona/a/b", {"body": "Hi."})
    assert raw(live, "GET", f"/api/prompts/{name}")[1]["slug"] == "persona/a/b"
    assert raw(live, "GET", f"/api/prompts/{name}/versions/1")[1]["slug"] == "persona/a/b"
    assert raw(live, "POST", f"/api/prompts/{name}/render", b"{}")[1]["text"] == "Hi."


@pytest.mark.parametrize(
    "name",
    [
        *(".. . %2e %2e%2e ..~etc a~..~b %2e%2e%2fetc a%00 a%2500 %252F ~a a~ a~~b".split()),
        *("A %C3%84 %D0%B0 con a.md a%5Cb a%0Ab %ff %7Ea -a".split()),
        "a" * 161,
    ],
)
def test_invalid_ids_are_rejected_with_the_field(shared_live: Live, name: str) -> None:
    for place in ("", "/versions", "/versions/1", "/diff?a=1", "/branches", "/labels", "/history"):
        status, fields = raw(shared_live, "GET", f"/api/prompts/{name}{place}")
        assert (status, fields["status"]) == (400, 400), (place, fields)
        assert fields["where"] in ("slug", "path"), place
    for place in ("/render", "/select"):
        assert raw(shared_live, "POST", f"/api/prompts/{name}{place}", b"{}")[0] == 400, place


def test_an_id_may_name_a_version(client: httpx.Client) -> None:
    for text in ("One.", "Two."):
        save_prompt(client, "a", {"body": text})
    client.put("/api/prompts/a/labels", json={"name": "production", "version": 1})
    for name, text in (("a@main", "Two."), ("a:1", "One."), ("a@production", "One."), ("a@main:1", "One.")):
        assert client.get(f"/api/prompts/{name}").json()["sections"] == {"body": text}, name
    check_problem(client.get("/api/prompts/a:1?version=2"), 400, "version")
    check_problem(client.get("/api/prompts/a@main/history"), 400, "slug")


@pytest.mark.parametrize("slug", ["", "../etc", "a//b", "/a", "a/", "%2e", "con", "Ä", "a\\b", "a~b", "x" * 161])
def test_invalid_id_cannot_be_written(shared_client: httpx.Client, slug: str) -> None:
    check_problem(shared_client.post("/api/prompts", json={"slug": slug, "sections": {}}), 400, "slug")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"slug": "a", "sections": {"body": "\\u0000"}}', "sections.body"),
        (b'{"slug": "a", "sections": {"body": "\\ud800"}}', "sections.body"),
        (b'{"slug": "a", "sections": {"b\\u0000": "x"}}', "sections.b\\x00"),
        (b'{"slug": "a", "sections": {}, "overrideSections": {"z": "\\udc00"}}', "overrideSections.z"),
        (b'{"slug": "a", "sections": {}, "metadata": {"k": ["\\u0000"]}}', "metadata.k[0]"),
        (b'{"slug": "a", "sections": {" b": "x"}}', "sections"),
        (b'{"slug": "a", "sections": {}, "overrideSections": {"": "x"}}', "overrideSections"),
        (b'{"slug": "a", "sections": {"body": 5}}', "sections.body"),
        (b'{"slug": "a", "sections": {}, "override_sections": {}}', "override_sections"),
        (b'{"slug": "a", "sections": {}, "engine": "jinja"}', "engine"),
        (b'{"slug": "a", "sections": {}, "semver": "1.2"}', "semver"),
        (b'{"slug": "a", "sections": {}, "branch": "a/b"}', "branch"),
        (b'{"slug": "a", "sections": {}, "branch": "7"}', "branch"),
        (b'{"slug": "a", "sections": {}, "base": 99999999999999999999}', "base"),
        (b'{"slug": "a", "sections": {}, "params": [{"name": "x", "typ": "string"}]}', "params[0]"),
        (b'{"slug": "a", "sections": {}, "params": [5]}', "params[0]"),
        (b'{"slug": "a", "sections": {}, "metadata": {"n": 9007199254740993}}', "metadata"),
        (b'{"slug": "a", "sections": {}, "metadata": {"context_weights": {"x": "much"}}}', "context_weights.x"),
        (b'{"slug": "a", "sections": {}, "inherits": "gone"}', "inherits"),
        (b'{"slug": "a", "sections": {}, "inherits": "a@"}', "inherits"),
        (b'{"slug": "a", "sections": {}, "inherits": "a"}', "inherits"),
    ],
)
def test_invalid_version_error_names_the_field(shared_client: httpx.Client, body: bytes, where: str) -> None:
    check_problem(shared_client.post("/api/prompts", content=body), 400, where)


@pytest.mark.parametrize(
    ("place", "body", "where"),
    [
        ("branches", {"name": "try", "from": {"number": 1}}, "from.number"),
        ("branches", {"name": "../x"}, "branch"),
        ("render", {"params": {"nobody": 1}}, "nobody"),
        ("render", {"params": {"tone": ["x"]}}, "tone"),
        ("render", {"params": {}}, "tone"),
        ("render", {"version": 2**70}, "version"),
        ("select", {"signals": {"task_coding": 2}}, "signals.task_coding"),
        ("select", {"signals": {"task_coding": "much"}}, "signals.task_coding"),
        ("select", {"strategy": "guess"}, "strategy"),
        ("select", {"seed": 2**80}, "seed"),
        ("observations", {"sentiment": 1.1}, "sentiment"),
        ("observations", {"sentiment": 1, "correctionCount": -1}, "correctionCount"),
        ("observations", {"sentiment": 1, "taskOutcome": "won"}, "taskOutcome"),
        ("observations", {"sentiment": 1, "propensity": 0}, "propensity"),
        ("rollback", {"reason": ""}, "reason"),
        ("rollback", {"reason": "worse", "to": 1}, "to"),
        ("labels", {"name": "7"}, "label"),
        ("clear", {"version": 2**70}, "version"),
    ],
)
def test_invalid_request_error_names_the_field(
    shared_client: httpx.Client, place: str, body: dict[str, Any], where: str
) -> None:
    method = "PUT" if place == "labels" else "POST"
    check_problem(shared_client.request(method, f"/api/prompts/a/{place}", json=body), 400, where)


# ---- selection and learning


def test_variant_selection_uses_edge_weight_and_context_fit(client: httpx.Client) -> None:
    save_prompt(client, "a", {"body": "plain"})
    client.post("/api/prompts/a/branches", json={"name": "code"})
    weights = {"context_weights": {"task_coding": 1.0}}
    save_prompt(client, "a", {"body": "code"}, branch="code", metadata=weights)
    body: dict[str, Any] = {"signals": {"task_coding": True}, "epsilon": 0}
    answer = client.post("/api/prompts/a/select", json=body)
    assert answer.status_code == 200
    picked = answer.json()
    assert {"slug", "branch", "version", "edgeWeight", "contextFit", "totalScore"} <= set(picked["selected"])
    assert (picked["selected"]["branch"], picked["selected"]["version"]) == ("code", 2)
    assert (picked["selected"]["edgeWeight"], picked["selected"]["contextFit"]) == (0.5, 1.0)
    assert (picked["selected"]["totalScore"], picked["propensity"], picked["explored"]) == (0.75, 1.0, False)
    assert [each["branch"] for each in picked["variants"]] == ["main", "code"]
    even = client.post("/api/prompts/a/select", json={"epsilon": 1, "seed": 5}).json()
    assert (even["propensity"], even["explored"]) == (0.5, True)


def test_same_seed_selects_the_same_variant(client: httpx.Client) -> None:
    save_prompt(client, "a")
    for name in ("b", "c", "d"):
        client.post("/api/prompts/a/branches", json={"name": name})
    for strategy in ("epsilon_greedy", "thompson"):
        body = {"strategy": strategy, "epsilon": 1.0}
        picks = [
            [client.post("/api/prompts/a/select", json=body | {"seed": seed}).json() for seed in range(12)]
            for _ in range(2)
        ]
        assert picks[0] == picks[1]
        assert len({each["selected"]["branch"] for each in picks[0]}) > 1
        assert all(sum(each["propensity"] for each in pick["variants"]) == pytest.approx(1.0) for pick in picks[0])


def test_concurrent_observations_all_count(client: httpx.Client) -> None:
    save_prompt(client, "a")
    one = {"sentiment": 0.8, "correctionCount": 2, "taskOutcome": "partial", "conversationId": "c1"}
    answer = client.post("/api/prompts/a/observations", json=one, headers={"X-User-Id": "ann"})
    assert answer.status_code == 201
    assert answer.json() == {
        "score": pytest.approx(0.74),
        "edgeWeight": pytest.approx(0.9 * 0.5 + 0.1 * 0.74),
        "rolledBack": False,
        "rollback": {"decision": "none", "reason": "version 1 is the first of its branch", "evidence": None},
    }
    best = {"sentiment": 1, "taskOutcome": "success", "signals": {"task_coding": 1}, "propensity": 0.5}
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: client.post("/api/prompts/a/observations", json=best), range(16))
        assert {each.status_code for each in answers} == {201}
    branch = client.get("/api/prompts/a/branches").json()["items"][0]
    assert branch["observations"] == 17
    assert branch["edgeWeight"] == pytest.approx(1 - (1 - 0.524) * 0.9**16)
    save_prompt(client, "a", {"body": "new"})
    assert client.get("/api/prompts/a/branches").json()["items"][0]["edgeWeight"] == 0.5
    late = client.post("/api/prompts/a/observations", json={"sentiment": 0, "version": 1}).json()
    assert late["score"] == pytest.approx(0.3)
    for missing, score in (("zero", 0.8), ("renormalise", 1.0)):
        body = {"sentiment": 1, "missing": missing}
        assert client.post("/api/prompts/a/observations", json=body).json()["score"] == pytest.approx(score)
    check_problem(client.post("/api/prompts/a/observations", json={"sentiment": 1, "missing": "half"}), 400)
    check_problem(client.post("/api/prompts/a/observations", json={"sentiment": 1, "version": 3}), 404)
    check_problem(client.post("/api/prompts/a/observations", json={"sentiment": 1, "branch": "gone"}), 404)


def test_rollback_changes_the_active_version(client: httpx.Client) -> None:
    for text in ("good", "better", "bad"):
        save_prompt(client, "a", {"body": text})
    client.post("/api/prompts/a/branches", json={"name": "other", "from": {"version": 1}})
    answer = client.post("/api/prompts/a/rollback", json={"reason": "worse", "to": 1, "userId": "ann"})
    assert answer.status_code == 200
    fields = answer.json()
    assert (fields["version"], fields["head"], fields["rolledBackVersions"]) == (1, False, [3])
    result = client.get("/api/prompts/a").json()
    assert (result["version"], result["active"], result["head"], result["sections"]) == (
        1,
        True,
        False,
        {"body": "good"},
    )
    head = client.get("/api/prompts/a/versions/3").json()
    assert (head["active"], head["head"], head["rolledBack"]) == (False, True, True)
    assert client.post("/api/prompts/a/render", json={}).json()["version"] == 1
    picked = client.post("/api/prompts/a/select", json={"epsilon": 0}).json()
    assert (picked["selected"]["branch"], picked["selected"]["version"]) == ("main", 1)
    seen = client.post("/api/prompts/a/observations", json={"sentiment": 1, "taskOutcome": "success"})
    assert seen.json()["edgeWeight"] == pytest.approx(0.55)
    assert "Unknown version 9" in check_problem(
        client.post("/api/prompts/a/rollback", json={"reason": "x", "to": 9}), 404
    )
    event = client.get("/api/prompts/a/history").json()["items"][0]
    assert (event["kind"], event["branch"], event["version"], event["to"]) == ("rollback", "main", 3, 1)
    assert (event["by"], event["reason"]) == ("ann", "worse")
    assert save_prompt(client, "a", {"body": "best"}, base=3)["version"] == 4
    assert client.get("/api/prompts/a").json()["version"] == 4


def test_label_points_to_its_latest_version(client: httpx.Client) -> None:
    save_prompt(client, "a")
    save_prompt(client, "a", {"body": "y"})
    body = {"name": "production", "version": 1}
    moved = client.put("/api/prompts/a/labels", json=body, headers={"X-User-Id": "ann"})
    assert (moved.status_code, moved.json()["version"], moved.json()["movedBy"]) == (200, 1, "ann")
    assert client.get("/api/prompts/a/versions/1").json()["labels"] == ["production"]
    client.put("/api/prompts/a/labels", json={"name": "production"})
    items = client.get("/api/prompts/a/labels").json()["items"]
    assert [(each["name"], each["branch"], each["version"]) for each in items] == [("production", "main", 2)]
    kinds = [(each["kind"], each["label"], each["to"]) for each in client.get("/api/prompts/a/history").json()["items"]]
    assert kinds == [("label", "production", 2), ("label", "production", 1), ("write", None, 2), ("write", None, 1)]
    check_problem(client.put("/api/prompts/a/labels", json={"name": "production", "version": 9}), 404)


def test_caller_is_the_author_of_a_version(client: httpx.Client) -> None:
    save_prompt(client, "a", userId="ann")
    client.post("/api/prompts?userId=bob", json={"slug": "a", "sections": {}}, headers={"X-User-Id": "eve"})
    client.post("/api/prompts", json={"slug": "a", "sections": {}, "author": "dan"}, headers={"X-User-Id": "eve"})
    authors = [each["author"] for each in client.get("/api/prompts/a/versions").json()["items"]]
    assert authors == ["ann", "bob", "dan"]
    assert [each["by"] for each in client.get("/api/prompts/a/history").json()["items"]] == ["dan", "bob", "ann"]


# ---- lists


def test_prompts_are_paginated_by_name(client: httpx.Client) -> None:
    for name in ("b", "a/2", "a/1", "c", "a/3"):
        save_prompt(client, name)
    first = client.get("/api/prompts?limit=2").json()
    assert [each["slug"] for each in first["items"]] == ["a/1", "a/2"]
    rest = client.get("/api/prompts", params={"limit": 3, "cursor": first["next"]}).json()
    assert [each["slug"] for each in rest["items"]] == ["a/3", "b", "c"]
    assert "next" not in rest
    below = client.get("/api/prompts", params={"prefix": "a/", "limit": 2}).json()
    more = client.get("/api/prompts", params={"prefix": "a/", "cursor": below["next"]}).json()
    assert [each["slug"] for each in more["items"]] == ["a/3"]
    check_problem(client.get("/api/prompts", params={"cursor": below["next"]}), 400, "cursor")
    for limit in ("0", "201", "x"):
        check_problem(client.get(f"/api/prompts?limit={limit}"), 400, "limit")


@pytest.mark.parametrize("place", ["versions", "branches", "labels", "history"])
def test_lists_of_a_prompt_are_paginated(client: httpx.Client, place: str) -> None:
    save_prompt(client, "a")
    save_prompt(client, "other")
    for n in range(5):
        save_prompt(client, "a", {"body": f"{n}"})
        client.post("/api/prompts/a/branches", json={"name": f"b-{n}"})
        client.put("/api/prompts/a/labels", json={"name": f"l{n}", "version": n + 1})
    url = f"/api/prompts/a/{place}"
    whole = client.get(url).json()["items"]
    assert len(whole) == {"versions": 11, "branches": 6, "labels": 5, "history": 16}[place]
    results, cursor = [], None
    while True:
        page = client.get(url, params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        assert 1 <= len(page["items"]) <= 2
        results += page["items"]
        cursor = page.get("next")
        if cursor is None:
            break
    assert results == whole
    start = client.get(url, params={"limit": 2}).json()["next"]
    save_prompt(client, "a", {"body": "meanwhile"})
    later = client.get(url, params={"limit": 2, "cursor": start}).json()["items"]
    key = "name" if place in ("branches", "labels") else "version"
    assert [each[key] for each in later] == [each[key] for each in whole[2:4]]
    check_problem(client.get(f"/api/prompts/other/{place}", params={"cursor": start}), 400, "cursor")
    check_problem(client.get(url, params={"cursor": "nonsense"}), 400, "cursor")


def test_versions_are_filtered_by_branch(client: httpx.Client) -> None:
    save_prompt(client, "a")
    client.post("/api/prompts/a/branches", json={"name": "try"})
    items = client.get("/api/prompts/a/versions?branch=try").json()["items"]
    assert [(each["branch"], each["version"], each["branchedFrom"]) for each in items] == [("try", 1, "main:1")]
    assert "Available: main, try." in check_problem(client.get("/api/prompts/a/versions?branch=gone"), 404)
    assert "Available: main, try." in check_problem(client.get("/api/prompts/a?branch=gone"), 404)


# ---- migration

DOCUMENT = [
    {"slug": "persona/kind", "sections": {"body": "Kind."}, "inherits": "base"},
    {"slug": "base", "sections": {"rules": "One.", "tone": "Warm."}, "version": 1},
    {"slug": "base", "sections": {"rules": "One.", "tone": "Two."}, "version": 2},
    {"slug": "base", "branch": "try", "sections": {"rules": "One.", "tone": "Warm.", "style": "Three."}},
]


def test_migration_is_atomic_and_idempotent(client: httpx.Client) -> None:
    dry = client.post("/api/prompts/migrate", json={"document": DOCUMENT, "dryRun": True})
    assert (dry.status_code, dry.json()["dryRun"]) == (200, True)
    assert client.get("/api/prompts").json() == {"items": []}
    done = client.post("/api/prompts/migrate", json={"document": DOCUMENT, "userId": "ann"})
    assert done.status_code == 200
    assert done.json()["written"] == dry.json()["written"]
    made = [(each["place"], each["slug"], each["branch"], each["version"]) for each in done.json()["written"]]
    assert sorted(made) == [
        ("prompts[0]", "persona/kind", "main", 1),
        ("prompts[1]", "base", "main", 1),
        ("prompts[2]", "base", "main", 2),
        ("prompts[3]", "base", "try", 1),
    ]
    assert client.get("/api/prompts/base?branch=try").json()["branchedFrom"] == "main:1"
    whole = client.get("/api/prompts/persona~kind?resolve=true").json()
    assert list(whole["sections"].values()) == ["One.", "Two.", "Kind."]
    assert whole["author"] == "ann"
    second = client.post("/api/prompts/migrate", json={"document": {"prompts": DOCUMENT}})
    assert (second.status_code, second.json()["written"], len(second.json()["skipped"])) == (200, [], 4)
    more = [*DOCUMENT, {"slug": "new", "sections": {"body": "x"}}, {"slug": "bad", "sections": {}, "inherits": "gone"}]
    check_problem(client.post("/api/prompts/migrate", json={"document": more}), 400, "prompts[5].inherits")
    assert len(client.get("/api/prompts").json()["items"]) == 2


@pytest.mark.parametrize("document", [None, 5, "x", {}, {"prompts": {}}, [{"slug": "../x", "sections": {}}], [[]]])
def test_invalid_migration_document_is_rejected(shared_client: httpx.Client, document: Any) -> None:
    if document == {}:
        assert shared_client.post("/api/prompts/migrate", json={"document": document}).json()["written"] == []
    else:
        check_problem(shared_client.post("/api/prompts/migrate", json={"document": document}), 400)
    check_problem(shared_client.post("/api/prompts/migrate", json={"document": [], "dry": True}), 400, "dry")
    check_problem(shared_client.post("/api/prompts/migrate", json={}), 400, "document")


def test_prompt_named_migrate_is_a_normal_prompt(client: httpx.Client) -> None:
    save_prompt(client, "migrate", {"body": "Go."})
    assert client.get("/api/prompts/migrate").json()["slug"] == "migrate"
    assert client.get("/api/prompts/migrate?resolve=true&version=1").json()["version"] == 1
    assert len(client.get("/api/prompts/migrate/versions").json()["items"]) == 1
    assert client.post("/api/prompts/migrate/render", json={}).json()["text"] == "Go."


# ---- similar prompts

LATE = "You answer customers whose parcel is late. Ask for the order number, look where it is, and say when it arrives."
ALIKE = {
    "late": LATE,
    "late2": LATE + " Be kind.",
    "refund": "You answer customers who want their money back. Ask for the order number, and say when it arrives.",
    "tale": "Tell a bedtime story for a child of five: short sentences, a small animal, and a calm ending.",
}


def test_similar_prompts_are_grouped_and_duplicates_named(client: httpx.Client) -> None:
    for slug, text in ALIKE.items():
        save_prompt(client, slug, {"body": text})
    result = client.get("/api/prompt-clusters").json()
    assert (result["by"], result["prompts"], result["alone"], result["instead"]) == ("words", 4, ["tale"], "")
    (group,) = result["groups"]
    assert {each["name"] for each in group["members"]} == {"late", "late2", "refund"}
    assert "customers" in group["words"]
    (twins,) = result["nearDuplicates"]
    assert ({twins["a"], twins["b"]}, twins["similarity"] > 0.8) == ({"late", "late2"}, True)
    assert client.get("/api/prompt-clusters", params={"prefix": "late"}).json()["prompts"] == 2
    assert client.get("/api/prompt-clusters", params={"least": 1}).json()["groups"] == []
    assert client.get("/api/prompt-clusters", params={"least": 0}).json()["where"] == "least"
    page = client.get("/page/prompt-clusters").text
    assert 'href="/page/prompts/late2"' in page
    assert "Prompts without similar ones" in page
    assert "Find similar prompts" in client.get("/page/prompts").text


def test_clusters_use_the_embedder_and_fall_back_to_words() -> None:
    embedder = HashingEmbedder(synonyms={"fetch": "bring"})
    with BlockingCuebook.open(config(), embedder=embedder) as cue:
        for slug, text in (("a", "bring coffee"), ("b", "fetch coffee"), ("c", "write poems")):
            cue.prompts.save(slug, {"body": text})
        result = cue.prompts.clusters()
        assert (result.by, result.alone) == ("meaning", ("c",))
        assert [{each.name for each in one.members} for one in result.groups] == [{"a", "b"}]
        embedder.fails = True
        result = cue.prompts.clusters()
        assert (result.by, bool(result.instead)) == ("words", True)


def test_a_prompt_with_a_secret_is_stored_only_by_force(client: httpx.Client) -> None:
    body = {"slug": "deploy", "sections": {"body": "Log in with password: hunter2"}}
    text = check_problem(client.post("/api/prompts", json=body), 400, "sections.body")
    assert "password" in text
    assert "hunter2" not in text
    assert client.get("/api/prompts/deploy").status_code == 404
    assert client.post("/api/prompts", json=body | {"force": True}).status_code == 201
    document = [{"slug": "other", "sections": {"body": "Hi."}, "metadata": {"password": "hunter2"}, "version": 1}]
    text = check_problem(client.post("/api/prompts/migrate", json={"document": document}), 400, "metadata.password")
    assert "hunter2" not in text
    assert client.post("/api/prompts/migrate", json={"document": document, "force": True}).status_code == 200
