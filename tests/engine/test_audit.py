"""Tests of the audit log: its records, its mirror file, verification and replay."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing

import pytest
from turn_helpers import NAME, cue_on

from cuebook import Ask
from cuebook.engine.jobs.audit_mirror import read_anchor
from cuebook.errors import InvalidInput, NotFound
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.memory import Scope
from cuebook.testing import FrozenClock

HELPER = {"id": "helper", "name": "Ada", "prompts": {"persona": "persona/kind"}}
FILE = "logs/prompts_audit.jsonl"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(HELPER))
    return tmp_path


async def run_turns(cue, turns=2):
    await cue.prompts.save("persona/kind", {"body": "Be kind to $user_name."}, params=["user_name"], author="ann")
    for n in range(turns):
        text = f"hello {n}, my key is sk-abcdefghijklmnopqrstuvwxyz012345"
        await cue.ask(Ask(text, NAME, user="zoe", persona="helper"))


async def test_each_render_answer_and_change_is_a_record(project):
    async with cue_on(project) as cue:
        await run_turns(cue)
        await cue.prompts.observe("persona/kind", sentiment=1.0, user="zoe")
        records = await cue.audit.list()
        assert [each.event for each in records] == ["write", "render", "answer", "render", "answer", "observe"]
        assert [each.seq for each in records] == [1, 2, 3, 4, 5, 6]
        render = records[1]
        assert (render.agent, render.prompt_id, render.version, render.turn) == ("helper", "persona/kind", "1.0.0", 1)
        assert render.interpolated_text == "Be kind to zoe."
        assert render.input_context == {"user_name": "zoe"}
        stored = (await cue.services.audit.records(Scope(), after=1, limit=1))[0]
        assert "zoe" not in stored.interpolated_text, "the chain contains only a commitment"
        assert records[2].render_id == render.render_id
        assert records[2].output_summary == "Noted."
        assert (await cue.audit.verify()).ok
        assert [(await cue.audit.replay(seq)).verdict for seq in (2, 4)] == ["identical", "identical"]
        with pytest.raises(InvalidInput, match="has no prompt"):
            await cue.audit.replay(1)
        with pytest.raises(NotFound, match="audit tail"):
            await cue.audit.replay(99)
        assert [each.seq for each in await cue.audit.tail(2)] == [5, 6]


async def test_the_mirror_matches_the_table_and_contains_no_secret(project):
    async with cue_on(project) as cue:
        await run_turns(cue)
    lines = (project / FILE).read_text().splitlines()
    first = json.loads(lines[1])
    assert list(first)[:7] == [
        "timestamp", "agent", "prompt_id", "version", "input_context", "interpolated_text", "output_summary",
    ]  # fmt: skip
    assert first["interpolated_text"] == "Be kind to zoe."
    assert len(lines) == 5
    assert "sk-abcdef" not in (project / FILE).read_text()


@pytest.mark.parametrize(
    ("damage", "first", "reason"),
    [
        (
            "UPDATE audit_record SET body = replace(CAST(body AS TEXT), 'persona/kind', 'persona/mean') WHERE seq = 2",
            2,
            "",
        ),
        ("DELETE FROM audit_record WHERE seq = 3", 3, ""),
        ("DELETE FROM audit_record WHERE seq = 5", 5, "truncated"),
        ("UPDATE audit_record SET texts = replace(CAST(texts AS TEXT), 'zoe', 'bob') WHERE seq = 4", 4, ""),
    ],
)
async def test_verification_finds_changed_records(project, damage, first, reason):
    async with cue_on(project) as cue:
        await run_turns(cue)
    with closing(sqlite3.connect(next(project.rglob("*.db")))) as file:
        file.execute(damage)
        file.execute("UPDATE audit_record SET body = CAST(body AS BLOB), texts = CAST(texts AS BLOB)")
        file.commit()
    async with cue_on(project, dice=SystemDice()) as cue:
        verdict = await cue.audit.verify()
        assert (verdict.ok, verdict.first_bad) == (False, first)
        assert reason in verdict.reason


async def test_the_mirror_of_a_database_outside_the_project_is_beside_it(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        folder.mkdir()
    async with cue_on(project, store__url=str(elsewhere / "agent.db")) as cue:
        await cue.ask(Ask("hello", NAME))
        await cue.conversations.delete(NAME)
        await cue.settle()
        assert (await cue.audit.verify()).ok
    assert (elsewhere / "agent.db.audit.jsonl").read_bytes()
    assert not (project / "logs").exists()


async def test_a_conversation_without_managed_prompts_leaves_no_record(tmp_path):
    async with cue_on(tmp_path) as cue:
        await cue.ask(Ask("hello", NAME))
        assert not await cue.audit.list()
    assert not (tmp_path / "logs").exists()


async def test_an_unwritable_mirror_does_not_block_turns(project, caplog):
    (project / "logs").write_text("a file where the folder should be")
    async with cue_on(project) as cue:
        await run_turns(cue)
        await cue.work()
        assert "prompts_audit.jsonl cannot be read" in (await cue.audit.verify()).reason
    assert "prompts_audit.jsonl" in caplog.text
    (project / "logs").unlink()
    async with cue_on(project, dice=SystemDice()) as cue:
        await cue.work()
        assert (await cue.audit.verify()).signed == 6
    assert len((project / FILE).read_text().splitlines()) == 6


async def save_versions(cue, count):
    for n in range(count):
        await cue.prompts.save("p", {"body": f"text {n} {len(await cue.audit.list())}"})


async def test_two_processes_mirror_each_record_once(project):
    async with cue_on(project, dice=SystemDice()) as one, cue_on(project, dice=SystemDice()) as other:
        for _ in range(5):
            await asyncio.gather(save_versions(one, 2), save_versions(other, 2))
            await asyncio.gather(one.work(), other.work())
    async with cue_on(project, dice=SystemDice()) as cue:
        verdict = await cue.audit.verify_mirror(project / FILE)
        assert (verdict.ok, verdict.records) == (True, 20)


async def test_a_server_that_leaves_jobs_to_workers_keeps_its_mirror(project):
    async with cue_on(project, worker=True, work__where="workers") as cue:
        await run_turns(cue)
        async with asyncio.timeout(60):
            while not (project / FILE).exists():  # noqa: ASYNC110  # a thread writes it
                await asyncio.sleep(0.01)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
async def test_a_new_mirror_is_private_and_an_erasure_keeps_its_mode(project):
    mirror = project / FILE
    async with cue_on(project) as cue:
        await run_turns(cue)
        await cue.settle()
        assert mirror.stat().st_mode & 0o777 == 0o600
        mirror.chmod(0o640)  # for a log collector
        await cue.memory.forget(user="zoe")
        await cue.settle()
        assert b"zoe" not in mirror.read_bytes()
        assert mirror.stat().st_mode & 0o777 == 0o640


async def test_a_mirror_removed_while_open_is_rewritten(project):
    async with cue_on(project) as cue:
        await save_versions(cue, 3)
        await cue.work()
        (project / FILE).unlink()
        await save_versions(cue, 2)
        await cue.work()
        verdict = await cue.audit.verify_mirror(project / FILE)
        assert (verdict.ok, verdict.records) == (True, 5)


@pytest.mark.parametrize("torn", [b"x" * 3_000_000, b'{"timestamp": "20'])
async def test_a_torn_line_of_any_length_is_removed(project, torn):
    async with cue_on(project) as cue:
        await save_versions(cue, 3)
    whole = (project / FILE).read_bytes()
    (project / FILE).write_bytes(whole + torn)
    async with cue_on(project, dice=SystemDice()) as cue:
        await save_versions(cue, 1)
    lines = (project / FILE).read_bytes().splitlines(keepends=True)
    assert (b"".join(lines[:3]), len(lines)) == (whole, 4)


@pytest.mark.parametrize("damage", ["another database's", "a line that was made up"])
async def test_a_mirror_with_unknown_records_is_left_unchanged(project, tmp_path_factory, caplog, damage):
    async with cue_on(project) as cue:
        await save_versions(cue, 3)
    whole = (project / FILE).read_bytes()
    if damage == "another database's":
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        async with cue_on(elsewhere, dice=SystemDice()) as cue:
            await cue.prompts.save("other", {"body": "x"})
        (project / FILE).write_bytes((elsewhere / FILE).read_bytes())
    else:
        invented = json.loads(whole.splitlines()[-1]) | {"seq": 500}
        (project / FILE).write_bytes(whole + json.dumps(invented).encode() + b"\n")
    damaged = (project / FILE).read_bytes()
    async with cue_on(project, dice=SystemDice()) as cue:
        await save_versions(cue, 1)
        await cue.work()
        assert "Move the file elsewhere" in caplog.text
        assert (project / FILE).read_bytes() == damaged
        (project / FILE).rename(project / "proof.jsonl")
        await cue.audit.mirror(rebuild=True)
        verdict = await cue.audit.verify_mirror(project / FILE)
        assert (verdict.ok, verdict.records) == (True, 5)


async def test_an_edited_mirror_line_stays_and_is_reported(project):
    async with cue_on(project) as cue:
        await save_versions(cue, 3)
    (project / FILE).write_bytes((project / FILE).read_bytes().replace(b'"p"', b'"q"', 1))
    async with cue_on(project, dice=SystemDice()) as cue:
        await save_versions(cue, 1)
        await cue.work()
        verdict = await cue.audit.verify_mirror(project / FILE)
        assert (verdict.ok, verdict.records, verdict.first_bad) == (False, 4, 1)


@pytest.mark.parametrize(
    ("damage", "first"),
    [
        (lambda lines: [lines[0], lines[1].replace(b"zoe", b"bob"), *lines[2:]], 2),
        (lambda lines: [*lines[:2], *lines[3:]], 3),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: lines[:3], 4),
        (lambda lines: [], 1),
        (lambda lines: [*lines[:4], lines[4][:30]], 5),
    ],
    ids=["edited", "left out", "swapped", "cut", "emptied", "torn"],
)
async def test_verification_finds_a_changed_mirror_and_leaves_it(project, damage, first):
    async with cue_on(project) as cue:
        await run_turns(cue)
    damaged = b"".join(damage((project / FILE).read_bytes().splitlines(keepends=True)))
    (project / FILE).write_bytes(damaged)
    async with cue_on(project, dice=SystemDice()) as cue:
        verification = await cue.audit.verify()
        assert (verification.ok, verification.first_bad) == (False, first)
        assert "in prompts_audit.jsonl: " in verification.reason
        assert "is intact" in verification.reason
    assert (project / FILE).read_bytes() == damaged


@pytest.mark.parametrize("damage", ["removed", "emptied", "cut"])
async def test_only_a_rebuild_repairs_the_mirror_and_is_recorded(project, damage):
    async with cue_on(project) as cue:
        await run_turns(cue)
    file = project / FILE
    if damage == "removed":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "emptied" else b"".join(file.read_bytes().splitlines(keepends=True)[:3]))
    async with cue_on(project, dice=SystemDice()) as cue:
        await save_versions(cue, 1)
        await cue.work()
        verification = await cue.audit.verify()
        assert not verification.ok
        assert {"removed": "the file was removed", "emptied": "the file was emptied"}.get(
            damage, "the records from 4 on were removed"
        ) in verification.reason
        assert (await cue.audit.mirror()).failed
        assert not (await cue.audit.mirror(rebuild=True)).failed
        assert (await cue.audit.verify()).ok
        [record] = await cue.audit.tail(1)
        assert (record.event, record.selection["records"]) == ("mirror-rebuild", 3 if damage == "cut" else 0)


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["UPDATE audit_record SET texts = x'7b7d' WHERE seq = 2"], "the texts of record 2 were removed without an"),
        (["DELETE FROM audit_record WHERE seq > 3"], "the tail was truncated"),
        (["DELETE FROM audit_checkpoint"], "the checkpoint over 5 records was removed from the database"),
        (
            ["DELETE FROM audit_record WHERE seq > 3", "DELETE FROM audit_checkpoint"],
            "the tail was truncated; the checkpoint over 5 records was removed from the database, or an older copy was",
        ),
        (["DELETE FROM audit_record", "DELETE FROM audit_checkpoint"], "the whole log was wiped; the checkpoint over"),
    ],
    ids=["texts", "tail", "checkpoints", "tail and checkpoints", "everything"],
)
@pytest.mark.parametrize("tenant", ["default", "acme"])
async def test_verification_names_the_tampering_also_after_more_records(project, tenant, statements, reason):
    async with cue_on(project) as cue:
        await run_turns(cue.of(tenant))
    with closing(sqlite3.connect(next(project.rglob("*.db")))) as database, database:
        for statement in statements:
            database.execute(statement)
    (project / FILE).unlink(missing_ok=True)
    async with cue_on(project, dice=SystemDice()) as cue:
        assert reason in (await cue.of(tenant).audit.verify()).reason
        await save_versions(cue.of(tenant), 9)
    async with cue_on(project, dice=SystemDice()) as cue:
        is_whole = tenant != "default" and "audit_record" not in str(statements)  # it has no mirror that was removed
        assert (await cue.of(tenant).audit.verify()).ok == is_whole, "a later checkpoint does not hide it"


async def test_the_logs_of_all_tenants_get_checkpoints_that_a_rebuilt_mirror_keeps(project):
    clock = FrozenClock()
    async with cue_on(project, clock=clock) as cue:
        one, other = cue.of("acme"), cue.of("umb")
        await save_versions(one, 2)
        await other.memory.add("Lives in Bergen.", user="ann")
        await cue.work()
        clock.advance(61)
        await cue.work()
        assert [each.size for each in await one.audit.checkpoints()] == [2]
        assert ((await other.audit.verify()).signed, (await other.audit.tail(1)).items[0].event) == (1, "seal")
        assert set(read_anchor(cue.services).checkpoints) == {"acme", "umb"}, "the default tenant has no record"
        await cue.audit.mirror(rebuild=True)
        clock.advance(61)
        await cue.work()
        assert set(read_anchor(cue.services).checkpoints) == {"acme", "umb", "default"}
        await save_versions(one, 1)
    async with cue_on(project, clock=clock, dice=SystemDice()) as cue:
        assert (await cue.of("acme").audit.verify()).signed == 3, "signed when it was closed"


async def test_a_forget_with_a_key_of_the_default_tenant_erases_the_mirror(project):
    async with cue_on(project) as cue:
        mine = cue.of("default")  # as a server acts for a key
        await run_turns(mine)
        await cue.work()
        assert b"zoe" in (project / FILE).read_bytes()
        assert (await mine.memory.forget(user="zoe")).state == "done"
        assert b"zoe" not in (project / FILE).read_bytes()
        (project / FILE).unlink()
        assert (await cue.audit.verify()).reason == (await mine.audit.verify()).reason


FORGED = """INSERT INTO receipt SELECT tenant, 'receipt-x', 'pending', CAST(replace(replace(replace(CAST(body AS TEXT),
    id, 'receipt-x'), '"done"', '"pending"'), 'ed25519:', '') AS BLOB), created_at FROM receipt"""


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "UPDATE receipt SET body = CAST(replace(CAST(body AS TEXT), '\"posts\":4', '\"posts\":9') AS BLOB)",
            "was changed: its record in the audit log differs",
        ),
        (
            "UPDATE receipt SET body = CAST(replace(CAST(body AS TEXT), 'a request', 'no request') AS BLOB)",
            "was changed: its signature does not match",
        ),
        ("UPDATE receipt SET body = x'7b7d'", "is damaged"),
        ("UPDATE receipt SET id = 'receipt-y'", "receipt 'receipt-y' is damaged; receipt '{}' was removed"),
        ("DELETE FROM receipt", "receipt '{}' was removed"),
        (FORGED, "receipt 'receipt-x' was inserted: the audit log has no signed record of it"),
    ],
    ids=["counts", "reason", "damaged", "renamed", "removed", "inserted"],
)
async def test_an_altered_receipt_is_named_and_never_signed(project, statement, fault):
    async with cue_on(project) as cue:
        await run_turns(cue)
        receipt = await cue.memory.forget(user="zoe", reason="a request")
        assert (await cue.audit.verify()).ok
    with closing(sqlite3.connect(next(project.rglob("*.db")))) as database, database:
        database.execute(statement)
    async with cue_on(project, dice=SystemDice()) as cue:
        await cue.memory.finish_receipts()
        assert fault.format(receipt.id) in (await cue.audit.verify()).reason


async def test_an_erasure_is_a_record_that_explains_the_missing_texts(project):
    async with cue_on(project) as cue:
        await run_turns(cue)
        await cue.prompts.render("persona/kind", {"user_name": "Zoe Doe"}, log=True, by="zoe")
        receipt = await cue.memory.forget(user="zoe")
        assert receipt.counts["auditTexts"] == 5, "four of the turns, and the logged render"
        [record] = await cue.audit.tail(1)
        assert (record.event, record.prompt_id) == ("forget", receipt.id)
        selection = {"records": [[2, 6]], "kind": "user", "asked": list(receipt.asked), "salt": receipt.salt}
        selection["counts"] = receipt.counts
        assert {**record.selection, "signature": ""} == {**selection, "signature": ""}
        assert (await cue.audit.verify()).ok
    assert "zoe" not in json.dumps(record.selection)
    assert b"Zoe Doe" not in (project / FILE).read_bytes()


async def test_a_receipt_names_the_sinks_and_exports_that_may_have_the_data(project):
    async with cue_on(project, memory__sink="summaries.jsonl") as cue:
        await run_turns(cue)
        first = await cue.memory.forget(user="nobody")
        assert first.remains == "the sink file:summaries.jsonl"
        assert [each async for each in cue.memory.export(user="zoe")] == []
        assert [each async for each in cue.memory.export_everything(user="zoe")]
        await cue.audit.record_export("conversations", user="zoe")
        receipt = await cue.memory.forget(user="zoe")
        assert receipt.remains == "the sink file:summaries.jsonl, the exports and backups of audit records 7, 8, 9"
        assert (await cue.audit.get(7)).input_context is None, "the name of the exported user is erased"
        assert cue.memory.verify_receipt(receipt, name="zoe").ok
        assert (await cue.audit.verify()).ok


async def test_a_mirror_that_cannot_be_read_is_reported(project):
    async with cue_on(project) as cue:
        await run_turns(cue)
    (project / FILE).unlink()
    (project / FILE).mkdir()
    async with cue_on(project, dice=SystemDice()) as cue:
        verdict = await cue.audit.verify()
    assert not verdict.ok
    assert "prompts_audit.jsonl cannot be read (not a regular file); the database is intact" in verdict.reason


async def test_the_mirror_reveals_a_truncated_table_without_checkpoints_or_anchor(project):
    async with cue_on(project) as cue:
        await run_turns(cue)
    key = next(project.rglob("*.key"))
    key.write_bytes(key.read_bytes().splitlines()[0])
    with closing(sqlite3.connect(next(project.rglob("*.db")))) as database, database:
        database.execute("DELETE FROM audit_record WHERE seq > 3")
        database.execute("DELETE FROM audit_checkpoint WHERE size > 3")
    async with cue_on(project, dice=SystemDice()) as cue:
        verification = await cue.audit.verify()
        assert (verification.ok, verification.first_bad) == (False, 4)
        assert "truncated" in verification.reason


async def test_a_record_names_the_written_version_number(project):
    async with cue_on(project) as cue:
        await save_versions(cue, 2)
        await cue.prompts.fork("p", "trial")
        events = [(each.event, each.selection) for each in await cue.audit.list()]
    assert events == [
        ("write", {"branch": "main", "number": 1}),
        ("write", {"branch": "main", "number": 2}),
        ("branch", {"branch": "trial", "number": 1}),
    ]
