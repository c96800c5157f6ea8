"""`agent-memory-integrity` (agmi): nine edits of the database past Cuebook, which `cuebook audit verify` must report.

Both adapters use only public API on Cuebook's side, and SQL on the attacker's. The attacker has the database file, not
the project's folder: its key file has the newest checkpoint.
"""

import sqlite3
import sys
import tempfile
from base64 import b64decode, b64encode
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from agmi.adapters.base import MemoryAdapter, Record
from agmi.check import run
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from cuebook import BlockingCuebook
from cuebook.integrations.langgraph import CuebookSaver


class SqliteAdapter(MemoryAdapter):
    """The rows of one table of a project's database file; `add` writes one for a context."""

    supports_replay = supports_metadata = supports_snapshot = True
    detection_point = "audit"
    table: str
    identity: ClassVar[tuple[str, ...]]  # the columns of a slot, the last of which orders the rows
    content: str
    changeable: str  # a column with metadata

    def setup(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._project = Path(self._folder.name) / "project"
        self._project.mkdir()
        self._file = Path(self._folder.name) / "database" / "memory.db"
        self._file.parent.mkdir()
        settings = f'[store]\nurl = "{self._file}"\n[secrets]\nkey_file = "memory.key"\n'
        (self._project / "cuebook.toml").write_text(settings)
        self._cue = BlockingCuebook(self._project)
        self._count = 0

    def teardown(self) -> None:
        self._cue.close()
        self._folder.cleanup()

    def add(self, context: str, text: str) -> None:
        raise NotImplementedError

    def seed(self, n: int) -> None:
        for _ in range(n):
            self.append_genuine()

    def append_genuine(self) -> None:
        self._count += 1
        self.add("ann", f"The code of door {self._count} is {self._count}{self._count}.")

    def seed_other(self, n: int) -> None:
        for at in range(n):
            self.add("bob", f"The password of safe {at} is {at}{at}{at}.")

    def reload(self) -> None:
        self._cue.close()
        self._cue = BlockingCuebook(self._project)

    def verify(self) -> bool:
        verdict = self._cue.audit.verify()
        self.verify_detail = str(verdict)
        return verdict.ok

    # ---- the attacker

    def _sql(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self._file)) as connection:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute(statement, values)]
            connection.commit()
        return rows

    def _rows(self, context: str) -> list[Record]:
        rows = self._sql(f"SELECT * FROM {self.table} ORDER BY {self.identity[-1]}")  # noqa: S608  # our own names
        own = [row for row in rows if self.owner_of(Record(0, row)) == context]
        return [Record(seq, row) for seq, row in enumerate(own)]

    def read_all_raw(self) -> list[Record]:
        return self._rows("ann")

    def read_other_raw(self) -> list[Record]:
        return self._rows("bob")

    def _where(self, seq: int) -> tuple[str, list[Any]]:
        fields = self.read_all_raw()[seq].fields
        return " AND ".join(f"{name} = ?" for name in self.identity), [fields[name] for name in self.identity]

    def _set(self, seq: int, column: str, value: Any) -> None:
        where, slot = self._where(seq)
        self._sql(f"UPDATE {self.table} SET {column} = ? WHERE {where}", value, *slot)  # noqa: S608

    def write_raw(self, record: Record) -> None:
        if record.seq < len(self.read_all_raw()):
            self._set(record.seq, self.content, record.fields[self.content])
            return
        columns, marks = ", ".join(record.fields), ", ".join("?" * len(record.fields))
        self._sql(f"INSERT INTO {self.table} ({columns}) VALUES ({marks})", *record.fields.values())  # noqa: S608

    def delete_raw(self, seq: int) -> None:
        where, slot = self._where(seq)
        self._sql(f"DELETE FROM {self.table} WHERE {where}", *slot)  # noqa: S608

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        self._set(victim_seq, self.content, donor.fields[self.content])

    def read_meta(self, seq: int) -> dict[str, Any]:
        return {self.changeable: self.read_all_raw()[seq].fields[self.changeable]}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        self._set(seq, self.changeable, meta[self.changeable] + 60)  # the suite only adds a field

    def identity_of(self, record: Record) -> str:
        return repr([record.fields[name] for name in self.identity])

    def payload_of(self, record: Record) -> str:
        return repr(record.fields[self.content])

    def snapshot_store(self) -> str:
        self._cue.close()
        copy = self._copy_store(self._file.parent)
        self.reload()
        return copy

    def restore_store(self, token: str) -> None:
        self._cue.close()
        self._restore_store(token, self._file.parent)


class CheckpointAdapter(SqliteAdapter):
    """Checkpoints of LangGraph's threads, by `CuebookSaver`."""

    name = "Cuebook: LangGraph checkpoints"
    table, identity, content, changeable = "document", ("space", "key"), "body", "created_at"

    def add(self, context: str, text: str) -> None:
        saver = CuebookSaver(self._cue)
        config: Any = {"configurable": {"thread_id": context, "checkpoint_ns": ""}}
        last = saver.get_tuple(config)
        checkpoint = create_checkpoint(last.checkpoint if last else empty_checkpoint(), {}, 0)
        checkpoint["channel_values"] = {"state": text}
        saver.put(last.config if last else config, checkpoint, {"source": "loop", "step": 0}, {})

    def owner_of(self, record: Record) -> str:
        return str(record.fields["space"].decode().split("\x1f")[2])

    def mutate_payload(self, record: Record) -> Record:
        value = msgspec.json.decode(record.fields["body"])
        kind, raw = value["checkpoint"]
        value["checkpoint"] = kind, b64encode(b64decode(raw).replace(b"code", b"c0de")).decode()
        record.fields["body"] = msgspec.json.encode(value)
        return record

    def forge_record(self, template: Record) -> Record:
        key = template.fields["key"] + b"1"
        return self.mutate_payload(Record(template.seq + 1, template.fields | {"key": key}))


class MemoryRowAdapter(SqliteAdapter):
    """Memories of users."""

    name = "Cuebook: memories"
    table, identity, content, changeable = "memory", ("no",), "text", "confidence"

    def add(self, context: str, text: str) -> None:
        self._cue.memory.add(text, user=context)

    def owner_of(self, record: Record) -> str:
        return str(record.fields["owner"])

    def mutate_payload(self, record: Record) -> Record:
        record.fields["text"] = str(record.fields["text"]).replace("code", "c0de")
        return record

    def forge_record(self, template: Record) -> Record:
        fields = template.fields | {
            "no": template.fields["no"] + 1,
            "id": "f" * 16,
            "said": template.fields["said"] + 1,
        }
        return self.mutate_payload(Record(template.seq + 1, fields))


@pytest.mark.parametrize("adapter", [CheckpointAdapter, MemoryRowAdapter])
def test_every_edit_is_reported(adapter: type[SqliteAdapter], capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(adapter())
    table = [f"  {row['edit']:26}{row['verdict']:10}{' '.join(row['detail'].split())}\n" for row in rows]
    with capsys.disabled():
        sys.stdout.writelines(["\n", f"{adapter.name}\n", *table])
    assert [row["verdict"] for row in rows] == ["REPORTED"] * 9
