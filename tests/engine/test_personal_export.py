"""Tests of the export of all data about a person: it has everything that forgetting the user erases."""

import io
import json
import re
import sqlite3
import zipfile
from contextlib import closing

import psycopg
import pytest
from turn_helpers import cue_on

from cuebook import Ask, InvalidInput, Part, Posted
from cuebook.errors import Denied
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.key import Caller
from cuebook.storage.database.copying import tables
from cuebook.storage.database.statements import load_statements
from cuebook.storage.personal import LEFT_OUT, OF_USER
from cuebook.storage.writes import TABLES
from cuebook.testing import ScriptedModel

#: A mark that a test puts into a kind of data, with a number for each kind.
MARK = re.compile(rb"quokka\d+")
#: Tables that an erasure changes without a person's data: progress, indexes, numbers, and names of exported rows.
BOOKKEEPING = {
    "post_text", "memory_text", "vector", "embedded", "epoch", "receipt", "delivery", "outbox", "blob_use", "place",
    "participant", "parallel_turn", "claim", "seal", "seal_total",
}  # fmt: skip


def dump(url):
    """Return the rows of all tables, with each cell as bytes."""
    connection = psycopg.connect(url) if url.startswith("postgresql") else sqlite3.connect(url)
    with closing(connection):
        if isinstance(connection, psycopg.Connection):
            connection.execute("SELECT set_config('cuebook.tenant', '*', false)")
        rows = {each.name: connection.execute(f"SELECT * FROM {each.name}").fetchall() for each in tables()}  # noqa: S608
    return {name: {tuple(map(cell, row)) for row in found} for name, found in rows.items()}


def cell(value):
    return value if isinstance(value, bytes) else bytes(value) if isinstance(value, memoryview) else str(value).encode()


async def store_data(cue):
    """Store data of every kind about ann, each with its own mark, and data of bob."""
    posts = [Posted(sender="ann", message=f"My house in quokka{n} has {n} rooms.") for n in range(1, 31)]
    posts[3] = Posted(sender="ann", message="See it.", parts=(Part("text", "quokka40", {"name": "quokka41"}),))
    await cue.append("c", posts, user="ann")
    await cue.append("c", [{"role": "user", "content": "quokka42 " * 900, "x_extra": "quokka43"}], user="ann")
    await cue.ask(Ask("Where is quokka44?", "c", user="ann", persona="helper", idempotency_key="k"))
    await cue.turns.feedback("c", 1, score=1.0, comment="quokka45", user="ann")
    await cue.settle()
    item = next(each for each in (await cue.memory.items("c", user="ann")).items if "rooms" in each.text)
    await cue.memory.update(f"item:c:{item.id}", "The house in quokka46 has 99 rooms.", user="ann")
    await cue.memory.add("Prefers quokka47.", user="ann")
    await cue.ask(Ask("And my house?", "c", user="ann"))
    await cue.append("team", [{"role": "user", "content": "Bob lives in Rome."}], user="bob")
    await cue.conversations.participants("team", ["bob", "ann"])
    await cue.append(
        "team", [Posted(sender="ann", message="I live in quokka48."), Posted(sender="assistant", message="quokka49!")]
    )
    await cue.documents.put([{"space": ["notes"], "key": "k", "value": {"text": "quokka51"}}], user="ann")
    await cue.settle()


async def archive_of(cue, **asked):
    pieces = [each async for each in cue.memory.export_everything(**asked)]
    return zipfile.ZipFile(io.BytesIO(b"".join(pieces)))


async def test_an_export_has_everything_that_a_forget_erases(tmp_path, url):
    (tmp_path / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "prompts": {"persona": "persona/kind"}}
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(helper))
    model = ScriptedModel(default="quokka50 is fine.")
    async with cue_on(tmp_path, model=model, dice=SystemDice(), store__url=url, memory__user=True) as cue:
        await cue.prompts.save("persona/kind", {"body": "Be kind to $user_name."}, params=["user_name"])
        await store_data(cue)
        archive = await archive_of(cue, user="ann")
        before = dump(url)
        await cue.memory.forget(user="ann")
        after = dump(url)
    exported = b"".join(archive.read(name) for name in archive.namelist())
    erased = {name: rows - after[name] for name, rows in before.items() if rows - after[name]}
    marks = {mark for rows in erased.values() for row in rows for text in row for mark in MARK.findall(text)}
    assert len(marks) == 41, "every kind of data"
    assert marks - set(MARK.findall(exported)) == set()
    manifest = json.loads(archive.read("manifest.json"))
    files = {name.rsplit("/", 1)[-1].removesuffix(".jsonl") for name in manifest["files"]}
    names = {"post": "messages", "audit_record": "audit", "prompt_observation": "observations", "memory": "memories"}
    names |= {
        "memory_source": "memories",
        "tuning": "tuning",
        "idempotency": "requests",
        "conversation": "conversation.json",
    }
    plural = {name[:-1] + "ies" if name.endswith("y") else f"{name}s": name for name in erased}
    assert {
        name for plain, name in plural.items() if plain not in files and names.get(name) not in files
    } <= BOOKKEEPING
    deletes = {name for name, sql in load_statements().items() if sql.startswith("DELETE")}
    of_user = {name for name in deletes if name.endswith("_of_user")}
    assert of_user == {"embedded_of_user", "places_of_user", *OF_USER.values()}, "embedded, place: bookkeeping"
    assert set(manifest["leftOut"]) == set(LEFT_OUT) <= set(TABLES)
    assert b"Rome" not in exported, "it has no words of others"
    prompts = archive.read("conversations/1/prompts.jsonl").splitlines()
    assert [json.loads(each)["messages"][-1]["role"] for each in prompts] == ["user"] * 2


async def test_an_export_is_recorded_and_needs_a_user(tmp_path):
    async with cue_on(tmp_path) as cue:
        with pytest.raises(InvalidInput, match="userId: missing"):
            await archive_of(cue, user=None)
        with pytest.raises(Denied):
            await archive_of(cue, user="ann", caller=Caller(key="k", role="editor", user="bob"))
        archive = await archive_of(cue, user="nobody")
        assert archive.namelist() == ["audit.jsonl", "manifest.json"], "the record of the export itself"
        [record] = (await cue.audit.list(limit=5)).items
        assert (record.event, record.input_context) == ("export", {"user": "nobody"})


async def test_an_export_contains_the_users_prompt_logs(tmp_path):
    async with cue_on(tmp_path, logs__prompts="logs") as cue:
        await cue.ask(Ask("Where is quokka1?", "Trip to Rome", user="ann"))
        await cue.ask(Ask("Where is quokka2?", "trip-to-rome", user="bob"))
        archive = await archive_of(cue, user="ann")
    logs = [name for name in archive.namelist() if "/logs/" in name]
    assert logs == ["conversations/1/logs/assistant_prompt_log_1_2.json"]
    assert json.loads(archive.read(logs[0]))[-1]["content"] == "Where is quokka1?"
    assert b"quokka2" not in b"".join(archive.read(name) for name in archive.namelist())
