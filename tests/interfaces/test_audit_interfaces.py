"""Tests of the audit log over HTTP and on the command line: list, verify, export and replay."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import CommandRunner, cuebook

from conftest import Live
from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.testing.doubles import ScriptedModel

HELPER = {"id": "kindly", "name": "Ada", "prompts": {"persona": "persona/kind"}}
MIRROR = "logs/prompts_audit.jsonl"
KINDS = ["write", "render", "answer", "render", "answer"]


def model() -> ScriptedModel:
    return ScriptedModel(default="Noted.")


async def record_turns(project: Path) -> None:
    async with Cuebook.open(load_config(project, environment={}), model=model()) as cue:
        await cue.prompts.save("persona/kind", {"body": "Be kind to $user_name."}, params=["user_name"], author="ann")
        for n in range(2):
            await cue.ask(Ask(f"hello {n}", "c1", user="zoe", persona="kindly"))


def strip(project: Path) -> Path:
    """Remove a project's prompt files, so no prompts are pushed to its database, its database and feedback signals."""
    settings = project / "cuebook.toml"
    settings.write_text(settings.read_text().replace('# observe = "all"', 'observe = "off"'))
    (project / "config" / "metaprompt-presets.json").unlink()
    for name in ("prompts", ".cuebook", "logs"):
        shutil.rmtree(project / name)
    return project


@pytest.fixture
def bare(project: Path) -> Path:
    """A project without prompts and audit records."""
    return strip(project)


@pytest.fixture(scope="module")
def recorded(new_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose audit log has one prompt write and two rendered turns."""
    folder = strip(shutil.copytree(new_project, tmp_path_factory.mktemp("recorded") / "project"))
    (folder / "personas" / "kindly.json").write_text(json.dumps(HELPER))
    asyncio.run(record_turns(folder))
    return folder


@pytest.fixture
def audited(recorded: Path, project: Path) -> Path:
    """A copy of that project, in which `here` runs its commands."""
    shutil.rmtree(project)
    return shutil.copytree(recorded, project)


@pytest.fixture
def served(audited: Path, serve_live: Callable[..., Live]) -> Live:
    return serve_live(load_config(audited, environment={}), model=model())


def damage(project: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(project / ".cuebook/cuebook.db")) as connection:
        assert connection.execute(statement, values).rowcount == 1
        connection.commit()


def flip(project: Path, column: str, seq: int, wanted: bytes) -> str | bytes:
    """Flip one bit in the first byte of the first match. Return the value before."""
    with closing(sqlite3.connect(project / ".cuebook/cuebook.db")) as connection:
        [(cell,)] = connection.execute(f"SELECT {column} FROM audit_record WHERE seq = ?", (seq,)).fetchall()  # noqa: S608
    raw = bytearray(cell.encode() if isinstance(cell, str) else cell)
    raw[raw.index(wanted)] ^= 1
    value = raw.decode() if isinstance(cell, str) else bytes(raw)
    damage(project, f"UPDATE audit_record SET {column} = ? WHERE seq = ?", value, seq)  # noqa: S608
    before: str | bytes = cell
    return before


# ---- HTTP


def test_routes_list_verify_and_replay_records(served: Live) -> None:
    with httpx.Client(base_url=served.url) as client:
        body = {"message": "and you?", "conversationId": "c1", "userId": "zoe", "personaId": "kindly"}
        assert client.post("/api/chat", json=body).status_code == 200
        first = client.get("/api/audit", params={"limit": 4}).json()
        assert [each["event"] for each in first["items"]] == KINDS[:4]
        for query in ({"cursor": first["next"]}, {"after": 4}):
            rest = client.get("/api/audit", params=query).json()
            assert ([each["seq"] for each in rest["items"]], set(rest)) == ([5, 6, 7], {"items"})
        render = client.get("/api/audit/2").json()
        assert render == first["items"][1]
        assert (render["promptId"], render["version"], render["agent"]) == ("persona/kind", "1.0.0", "kindly")
        assert (render["interpolatedText"], render["inputContext"]) == ("Be kind to zoe.", {"user_name": "zoe"})
        assert (render["conversationId"], render["turn"]) == ("c1", 1)
        assert client.post("/api/audit/verify").json() | {"signed": 0} == {"ok": True, "records": 7, "signed": 0}
        second = client.post("/api/audit/6/replay")
        assert second.json() == {"seq": 6, "verdict": "identical", "text": "Be kind to zoe."}


def test_unknown_record_or_invalid_query_is_rejected(served: Live) -> None:
    with httpx.Client(base_url=served.url) as client:
        for path in ("/api/audit/99", f"/api/audit/{2**80}", "/api/audit/0"):
            assert client.get(path).status_code == 404
            assert client.post(f"{path}/replay").status_code == 404
        response = client.post("/api/audit/1/replay")
        assert (response.status_code, response.json()["where"]) == (400, "seq")
        for query in ("after=-1", "limit=0", "limit=1001", f"after={2**60}", "since=3"):
            assert client.get(f"/api/audit?{query}").status_code == 400


def test_verify_route_finds_a_change_under_a_running_server(served: Live, audited: Path) -> None:
    flip(audited, "body", 3, b"kindly")
    with httpx.Client(base_url=served.url) as client:
        response = client.post("/api/audit/verify")
    assert response.status_code == 200
    assert response.json()["reason"]
    assert response.json() | {"reason": ""} == {"ok": False, "records": 5, "firstBad": 3, "reason": ""}


# ---- command line


def test_commands_list_verify_and_replay_records(audited: Path, here: CommandRunner) -> None:
    items = here.json("audit", "tail")["items"]
    assert [each["event"] for each in items] == KINDS
    assert [each["seq"] for each in here.json("audit", "tail", "--last", "2")["items"]] == [4, 5]
    assert "persona/kind" in here("audit", "tail")
    assert here.json("audit", "verify") == {"ok": True, "records": 5, "signed": 5}
    assert here("audit", "verify") == "ok: 5 records; signed by checkpoints up to record 5\n"
    assert here("audit", "replay", "2") == "identical\nBe kind to zoe.\n"
    assert here.json("audit", "replay", "4")["verdict"] == "identical"
    assert "has no prompt" in here("audit", "replay", "1", code=1)
    assert "Unknown audit record 99" in here("audit", "replay", "99", code=1)


def test_command_json_equals_the_route_answers(served: Live, audited: Path, here: CommandRunner) -> None:
    for command, method, path in (
        (("tail",), "GET", "/api/audit"),
        (("verify",), "POST", "/api/audit/verify"),
        (("replay", "2"), "POST", "/api/audit/2/replay"),
    ):
        assert here.json("audit", *command) == httpx.request(method, served.url + path).json()


@pytest.mark.slow
def test_verify_names_the_record_with_a_flipped_byte(audited: Path, here: CommandRunner) -> None:
    for column, byte in (
        ("body", b"persona/kind"),
        ("body", b'"timestamp'),
        ("body", b"timestamp"),
        ("body", b'"hash":"'),
        ("body", b"}"),
        ("texts", b"zoe"),
        ("texts", b"{"),
        ("texts", b"salt"),
        ("hash", b""),
    ):
        before = flip(audited, column, 4, byte)
        result = here.json("audit", "verify", code=1)
        assert (result["ok"], result["records"], result["firstBad"]) == (False, 5, 4), (column, byte)
        assert "record 4" in result["reason"]
        assert here("audit", "verify", code=1).startswith("FAILED: record 4 ")
        assert len(here.json("audit", "tail")["items"]) == 5
        damage(audited, f"UPDATE audit_record SET {column} = ? WHERE seq = ?", before, 4)  # noqa: S608
        assert here.json("audit", "verify")["ok"]


def test_verify_command_exits_with_1_after_a_change(audited: Path) -> None:
    flip(audited, "body", 2, b"persona/kind")
    done = cuebook("audit", "verify", "--json", cwd=audited)
    assert (done.returncode, done.stderr, json.loads(done.stdout)["firstBad"]) == (1, "", 2)


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("UPDATE audit_record SET seq = 9 WHERE seq = 5", 5),
        ("UPDATE audit_record SET seq = 9 WHERE seq = 3", 3),
        ("DELETE FROM audit_record WHERE seq = 5", 5),
        ("UPDATE audit_record SET body = 7 WHERE seq = 3", 3),
    ],
)
def test_verify_finds_moved_and_deleted_rows(audited: Path, here: CommandRunner, statement: str, first: int) -> None:
    damage(audited, statement)
    assert here.json("audit", "verify", code=1)["firstBad"] == first


def test_verify_reports_a_damaged_checkpoint(audited: Path, here: CommandRunner) -> None:
    damage(audited, "UPDATE audit_checkpoint SET body = x'7b'")
    result = here.json("audit", "verify", code=1)
    assert set(result) == {"ok", "records", "reason", "signed"}
    assert "is not signed by this key" in result["reason"]
    assert here("audit", "verify", code=1).startswith("FAILED: invalid checkpoints: ")


def test_exported_lines_are_valid_json_and_can_be_verified(audited: Path, here: CommandRunner, tmp_path: Path) -> None:
    lines = here("audit", "export").splitlines()
    assert [json.loads(line)["event"] for line in lines] == [*KINDS, "export"]
    assert json.loads(lines[1])["interpolated_text"] == "Be kind to zoe."
    file = tmp_path / "audit.jsonl"
    assert here.json("audit", "export", "-o", str(file)) == {"file": str(file), "records": 7}
    assert file.read_bytes() == (audited / MIRROR).read_bytes()
    assert here.json("audit", "verify", "--mirror", str(file)) == {"ok": True, "records": 7, "signed": 7}
    file.write_text(file.read_text().replace("Be kind to zoe.", "Be kind to bob.", 1))
    assert here.json("audit", "verify", "--mirror", str(file), code=1)["firstBad"] == 2
    file.write_bytes((audited / MIRROR).read_bytes()[:-9])
    assert "torn" in here("audit", "verify", "--mirror", str(file), code=1)
    assert here.json("audit", "verify") == {"ok": True, "records": 7, "signed": 7}
    assert "no-such" in here("audit", "verify", "--mirror", str(tmp_path / "no-such.jsonl"), code=1)
    (tmp_path / "notes.txt").write_text("hello\n")
    assert "Not an audit log" in here("audit", "verify", "--mirror", str(tmp_path / "notes.txt"), code=1)


def test_exported_checkpoints_reveal_a_truncated_log(audited: Path, here: CommandRunner, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_text(here("audit", "checkpoints", "--json"))
    assert [each["size"] for each in json.loads(file.read_text())["items"]] == [5]
    assert "2" in here("audit", "checkpoints")
    damage(audited, "DELETE FROM audit_record WHERE seq = 5")
    damage(audited, "DELETE FROM audit_checkpoint WHERE size = 5")
    assert cuebook("audit", "verify", cwd=audited).stdout.startswith("FAILED: record 5 "), "The mirror has it."
    (audited / "logs/prompts_audit.jsonl").unlink()
    key = next(audited.rglob("*.key"))
    key.write_bytes(key.read_bytes().splitlines()[0])  # it has the last checkpoint too
    assert here.json("audit", "verify") == {"ok": True, "records": 4, "signed": 4}
    result = here.json("audit", "verify", "--checkpoints", str(file), code=1)
    assert (result["firstBad"], "truncated" in result["reason"]) == (5, True)
    file.write_text("[1]")
    assert "audit checkpoints --json" in here("audit", "verify", "--checkpoints", str(file), code=1)


def test_replay_reports_a_deleted_prompt_version_as_gone(audited: Path, here: CommandRunner) -> None:
    damage(audited, "DELETE FROM prompt_version")
    assert here("audit", "replay", "2", code=1) == "gone\n"


def test_empty_audit_log_is_valid(bare: Path, here: CommandRunner) -> None:
    assert here.json("audit", "tail") == {"items": []}
    assert here("audit", "tail").startswith("no records yet")
    assert here.json("audit", "checkpoints") == {"items": []}
    assert here("audit", "checkpoints").startswith("no checkpoints yet")
    assert here.json("audit", "verify") == {"ok": True, "records": 0}
    assert json.loads(here("audit", "export"))["event"] == "export"
