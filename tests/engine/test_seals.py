"""Tests of seals: documents and memories that somebody changes in the database, past Cuebook, are named."""

import json
import shutil
import sqlite3
from contextlib import closing

import psycopg
import pytest
from turn_helpers import cue_on

from cuebook import Ask, Posted
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.audit import SEAL, AcceptedRows, plain_record
from cuebook.records.document import DocumentChange
from cuebook.records.memory import Scope

SPACE = ("plans", "trip")


def change(url, *statements):
    """Change the database without Cuebook. Return the rows of the last statement."""
    with closing(psycopg.connect(url) if url.startswith("postgresql") else sqlite3.connect(url)) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
    return rows


def text(value, url):
    """Return a statement's literal of bytes."""
    return f"convert_to('{value}', 'UTF8')" if url.startswith("postgresql") else f"CAST('{value}' AS BLOB)"


async def store_data(cue):
    documents = [DocumentChange(space=SPACE, key=f"day {n}", value={"plan": f"walk {n}"}) for n in range(4)]
    await cue.documents.put(documents, user="ann")
    await cue.memory.add("Ann prefers the aisle.", user="ann")
    await cue.memory.add("Ann takes the early ferry.", user="ann")


def opened(tmp_path, url):
    return cue_on(tmp_path, dice=SystemDice(), store__url=url, memory__user=True)


async def test_everything_that_cuebook_changes_is_sealed(tmp_path, url):
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
        await cue.append("c", [Posted(message="I like my coffee black.", sender="user")], user="ann")
        await cue.ask(Ask("I prefer trains to planes.", "c", user="ann"))
        await cue.ask(Ask("How do I like my coffee, and which seat do I prefer?", "d", user="ann"))
        await cue.settle()
        found = [*await cue.memory.list(user="ann")]
        await cue.memory.update(found[0].id, text="Ann prefers the window.", user="ann")
        await cue.documents.put([DocumentChange(space=SPACE, key="day 1")], user="ann")
        await cue.documents.put([DocumentChange(space=SPACE, key="day 2", value={"plan": "swim"})], user="ann")
        await cue.documents.put([DocumentChange(space=("short",), key="k", value={}, ttl_s=0.001)])
        verdict = await cue.audit.verify()
        assert verdict.ok, str(verdict)
        assert verdict.data.rows >= 6
        await cue.conversations.delete("c")
        await cue.documents.delete(SPACE, user="ann")
        await cue.memory.forget(memories=[found[1].id])
        assert (await cue.audit.verify()).ok
        await cue.memory.forget(user="ann")
        assert (await cue.audit.verify()).ok
    assert [name for (name,) in change(url, "SELECT name FROM seal") if "ann" in name] == []


PLACE = "in 'plans/trip' of user 'ann'"
COPY = "SELECT tenant, user_id, space, {}, body, created_at, updated_at, expires_at FROM document WHERE key = {}"
DAMAGE = [
    (
        "UPDATE document SET body = {} WHERE key = {}",
        ('{"plan":"fly"}', "day 1"),
        f"document 'day 1' {PLACE} was changed",
    ),
    ("UPDATE document SET created_at = 60 WHERE key = {}", ("day 1",), f"document 'day 1' {PLACE} was changed"),
    ("UPDATE document SET user_id = 'bob' WHERE key = {}", ("day 3",), f"document 'day 3' {PLACE} was removed"),
    ("DELETE FROM document WHERE key = {}", ("day 3",), f"document 'day 3' {PLACE} was removed"),
    (
        "UPDATE document SET body = (SELECT body FROM document WHERE key = {}) WHERE key = {}",
        ("day 0", "day 3"),
        f"document 'day 3' {PLACE} was changed",
    ),
    (f"INSERT INTO document {COPY}", ("day 9", "day 3"), f"document 'day 9' {PLACE} was inserted"),
    ("UPDATE memory SET text = 'Ann prefers the window.' WHERE no = 1", (), "' of user 'ann' was changed"),
    ("UPDATE memory SET trust = 'system' WHERE no = 1", (), "' of user 'ann' was changed"),
    ("DELETE FROM memory WHERE no = 2", (), "' of user 'ann' was removed"),
    ("INSERT INTO memory_source VALUES ('default', 1, 7, 'p1')", (), "source 'p1' of memory number 1 was inserted"),
]


@pytest.mark.parametrize(("statement", "values", "shown"), DAMAGE)
async def test_an_altered_row_is_named(tmp_path, url, statement, values, shown):
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
    change(url, statement.format(*(text(each, url) for each in values)))
    async with opened(tmp_path, url) as cue:
        verdict = await cue.audit.verify()
        assert not verdict.ok
        assert shown in str(verdict)
        assert verdict.data.found == (2 if "bob" in statement else 1), "only the altered rows"


@pytest.mark.parametrize("value", ["CAST(x'61ff' AS TEXT)", "x'61ff'"])
@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ("memory SET text", "' of user 'ann' was changed"),
        ("memory SET owner", r"of user 'a\\xff' was inserted"),
        ("document SET user_id", r"of user 'a\\xff' was inserted"),
        ("memory_source SET post", r"source 'a\\xff' of memory number 1 was inserted"),
        ("audit_record SET hash", "record 1 was changed: its hash differs"),
        ("audit_record SET seq", "record 1 is missing"),
        ("audit_checkpoint SET body", "an unknown time"),
    ],
)
async def test_a_text_that_is_not_utf8_is_named_as_damaged(tmp_path, column, shown, value):
    url = str(tmp_path / "cuebook.db")
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
        await cue.append("c", [Posted(message="I like my coffee black.", sender="user", id="p")], user="ann")
    change(
        url,
        "INSERT INTO memory_source VALUES ('default', 1, 1, 'p')",
        f"UPDATE {column} = {value} WHERE rowid = 1" if "record" in column else f"UPDATE {column} = {value}",
    )
    async with opened(tmp_path, url) as cue:
        assert shown in str(await cue.audit.verify())
        assert not [each async for each in cue.audit.export() if not each.seq]


async def test_a_later_write_does_not_hide_an_altered_row(tmp_path, url):
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
        change(
            url,
            "UPDATE memory SET trust = 'system' WHERE no = 1",
            f"UPDATE document SET created_at = 60 WHERE key = {text('day 0', url)}",  # noqa: S608
            f"DELETE FROM document WHERE key = {text('day 1', url)}",  # noqa: S608
            f"INSERT INTO document {COPY.format(text('day 9', url), text('day 3', url))}",
        )
        await store_data(cue)
        await cue.documents.put([DocumentChange(space=SPACE, key="day 9", value={"plan": "hike"})], user="ann")
        verdict = await cue.audit.verify()
        assert {each.what for each in verdict.data.altered} == {"changed"}
        assert {each.name[-1] for each in verdict.data.altered} >= {"day 0", "day 1", "day 9"}
        assert verdict.data.found == 4
        assert (await cue.audit.accept()).altered == 4
        assert (await cue.audit.verify()).ok


async def test_rows_replaced_together_with_their_seals_are_found(tmp_path, url):
    """Whoever can copy rows can copy the seals as well, but cannot compute the sum over them."""
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
        change(
            url, "CREATE TABLE old_document AS SELECT * FROM document", "CREATE TABLE old_seal AS SELECT * FROM seal"
        )
        await cue.documents.put([DocumentChange(space=SPACE, key="day 1", value={"plan": "swim"})], user="ann")
        change(
            url,
            "DELETE FROM document", "DELETE FROM seal",
            "INSERT INTO document SELECT * FROM old_document", "INSERT INTO seal SELECT * FROM old_seal",
        )  # fmt: skip
        verdict = await cue.audit.verify()
        assert "removed or replaced by earlier ones, together with their seals" in str(verdict)
        await cue.documents.put([DocumentChange(space=SPACE, key="day 1", value={"plan": "swim"})], user="ann")
        assert not (await cue.audit.verify()).ok, "a later write does not hide it"
    change(url, "DROP TABLE old_document", "DROP TABLE old_seal")


async def test_older_tables_beside_a_newer_audit_log_are_found(tmp_path, url):
    tables = ("document", "memory", "memory_source", "seal", "seal_total")
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
    change(url, *(f"CREATE TABLE old_{each} AS SELECT * FROM {each}" for each in tables))  # noqa: S608
    async with opened(tmp_path, url) as cue:
        await cue.documents.put([DocumentChange(space=SPACE, key="day 1", value={"plan": "swim"})], user="ann")
    back = [(f"DELETE FROM {each}", f"INSERT INTO {each} SELECT * FROM old_{each}") for each in tables]  # noqa: S608
    change(url, *(statement for pair in back for statement in pair), *(f"DROP TABLE old_{each}" for each in tables))
    async with opened(tmp_path, url) as cue:
        verdict = await cue.audit.verify()
        assert "replaced by an older copy: record 2 of the audit log is newer" in str(verdict)
        await cue.documents.put([DocumentChange(space=SPACE, key="day 1", value={"plan": "swim"})], user="ann")
    async with opened(tmp_path, url) as cue:
        verdict = await cue.audit.verify()
        assert "an older copy, and used: record 3 of the audit log does not follow" in str(verdict)


@pytest.mark.parametrize("accepted", [{}, {"accepted": 0}])
async def test_an_appended_record_of_the_sum_does_not_hide_an_older_copy_or_a_wiped_table(tmp_path, accepted):
    """Records can be linked without the key."""
    tables, url = ("document", "memory", "memory_source", "seal", "seal_total"), str(tmp_path / "cuebook.db")
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
    change(url, *(f"CREATE TABLE old_{each} AS SELECT * FROM {each}" for each in tables))  # noqa: S608
    async with opened(tmp_path, url) as cue:
        await cue.documents.put([DocumentChange(space=SPACE, key="day 1", value={"plan": "swim"})], user="ann")
    [(newest,)] = change(url, "SELECT recorded FROM seal_total")
    back = [(f"DELETE FROM {each}", f"INSERT INTO {each} SELECT * FROM old_{each}") for each in tables]  # noqa: S608
    change(url, *(statement for pair in back for statement in pair))
    [(old, total)] = change(url, "SELECT recorded, total FROM seal_total")
    async with opened(tmp_path, url) as cue:
        forged = {"changes": old, "after": newest, "sum": total.hex(), **accepted}
        await cue.services.audit.append(Scope(), [plain_record(SEAL, selection=forged)])
        assert "was not written with this key" in str(await cue.audit.verify())
        change(url, *(f"DELETE FROM {each}" for each in tables[:-1]), "UPDATE seal_total SET total = x''")  # noqa: S608
        assert not (await cue.audit.verify()).ok
        await cue.audit.accept()
        assert (await cue.audit.verify()).ok
        change(url, *(f"DELETE FROM {each}" for each in tables[:-1]), "UPDATE seal_total SET total = x''")  # noqa: S608
        assert "together with their seals" in str(await cue.audit.verify()), "the sum of no rows cannot be forged"


async def test_a_restored_old_database_is_found_by_the_key_file(tmp_path):
    (tmp_path / "project").mkdir()
    file, copy = tmp_path / "project" / "cuebook.db", tmp_path / "copy.db"
    settings = {"store__url": str(file), "secrets__key_file": str(tmp_path / "elsewhere.key")}
    async with cue_on(tmp_path / "project", dice=SystemDice(), **settings) as cue:
        await store_data(cue)
    shutil.copy(file, copy)
    async with cue_on(tmp_path / "project", dice=SystemDice(), **settings) as cue:
        await cue.documents.put([DocumentChange(space=SPACE, key="day 9", value={"plan": "fly"})], user="ann")
    for each in file.parent.glob("cuebook.db-*"):
        each.unlink()
    shutil.copy(copy, file)
    (tmp_path / "project" / "logs" / "prompts_audit.jsonl").unlink()
    for reason in ("the key file has it", "two versions of the chain"):  # using the old copy does not hide it
        async with cue_on(tmp_path / "project", dice=SystemDice(), **settings) as cue:
            verdict = await cue.audit.verify()
            assert not verdict.ok
            assert reason in str(verdict)
            await cue.documents.put([DocumentChange(space=SPACE, key="day 9", value={"plan": "hike"})], user="ann")


async def test_accepted_rows_are_sealed_as_they_are(tmp_path, url):
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
        change(url, "UPDATE memory SET text = 'Ann prefers the window.' WHERE no = 1")
        assert await cue.audit.accept() == AcceptedRows(rows=6, altered=1)
        verdict = await cue.audit.verify()
        assert verdict.ok, str(verdict)
        assert (await cue.audit.tail())[-1].selection["accepted"] == 1
    async with opened(tmp_path, url) as cue:
        assert (await cue.audit.verify()).ok


async def test_damaged_rows_and_seals_are_reported(tmp_path):
    """SQLite stores any value in any column."""
    url = str(tmp_path / "cuebook.db")
    async with opened(tmp_path, url) as cue:
        await store_data(cue)
        long = DocumentChange(space=("é" * 900,), key="k\0" + "ü" * 990, value={"plan": "walk"})
        await cue.documents.put([long])
        assert (await cue.audit.verify()).ok
        change(
            url,
            "DELETE FROM document WHERE user_id = ''",
            "UPDATE document SET key = 5 WHERE key = CAST('day 0' AS BLOB)",
            "UPDATE document SET key = x'ff00', body = 'text' WHERE key = CAST('day 1' AS BLOB)",
            "UPDATE memory SET weight = 'heavy', valid_from = x'00' WHERE no = 1",
            "INSERT INTO seal VALUES ('default', '', 0, NULL), ('default', '[\"memory\"]', '', 1)",
            "INSERT INTO seal VALUES ('default', '{}', '', 2)",
            "UPDATE seal_total SET changes = 'many', total = 'none'",
        )
        verdict = await cue.audit.verify()
        assert verdict.data.found == 9
        assert "document ['document', " not in str(verdict)
        await cue.documents.put([DocumentChange(space=SPACE, key="day 7", value={"plan": "fly"})], user="ann")
        shown = json.dumps([str(each) for each in verdict.data.altered], ensure_ascii=False)
        assert "document 'day 0' in 'plans/trip' of user 'ann' was removed" in shown
        assert "memory " in shown
