"""Tests of backups: taken under load, restored elsewhere with keys, encrypted, damaged, and with later erasures."""

import asyncio
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import CommandRunner, cuebook

from cuebook import Cuebook, Posted
from cuebook.app.backup import back_up, restore
from cuebook.config import build
from cuebook.errors import Conflict, InvalidInput, StoreFull
from cuebook.storage.database.sqlite_files import COPIES, folder_for_copies, remove_copies

PASSPHRASE = "CUEBOOK_BACKUP_PASSPHRASE"


async def test_a_backup_under_load_has_all_acknowledged_posts_and_working_keys(tmp_path: Path) -> None:
    project, into, archive = tmp_path / "project", tmp_path / "elsewhere", tmp_path / "x.backup"
    (project / "prompts").mkdir(parents=True)
    (project / "cuebook.toml").write_text("")
    (project / "prompts/hello.md").write_text("Hello.")
    async with Cuebook.open(project, worker=False) as cue:
        token = (await cue.keys.new("owner")).token
        acknowledged, more = 0, asyncio.Event()

        async def write() -> None:
            nonlocal acknowledged
            while True:
                await cue.append("c", [Posted(sender="ann", message=f"number {acknowledged}")])
                acknowledged += 1
                more.set()

        async def write_five() -> None:
            for _ in range(5):
                more.clear()
                await more.wait()

        writing = asyncio.create_task(write())
        await write_five()
        before, loop = acknowledged, asyncio.get_running_loop()

        def progress(*_: int) -> None:
            asyncio.run_coroutine_threadsafe(write_five(), loop).result(60)

        await asyncio.to_thread(back_up, cue.config, archive, progress=progress)
        writing.cancel()
        assert acknowledged >= before + 5, "writes went on while the database was copied"
    assert archive.stat().st_mode & 0o777 == 0o600
    assert (await asyncio.to_thread(restore, archive, into)).kept is None
    assert (into / "prompts/hello.md").read_text() == "Hello."
    async with Cuebook.open(into, worker=False) as cue:
        loaded = await cue.conversations.load("c")
        assert before <= len(loaded.posts) <= acknowledged
        assert [each.message for each in loaded.posts] == [f"number {n}" for n in range(len(loaded.posts))]
        assert (await cue.keys.admit(token)).role == "owner"
        assert (await cue.audit.verify()).ok
        assert [each.event for each in await cue.audit.tail()][-1] == "restore"


@pytest.fixture
def backed_up(here: CommandRunner, tmp_path: Path) -> tuple[CommandRunner, Path]:
    """Return a project with two users and a key, and its backup. Afterwards one is forgotten and the key revoked."""
    file = tmp_path / "posts.json"
    for user in ("ann", "bob"):
        file.write_text(json.dumps([{"role": "user", "content": f"{user} likes plums"}]))
        here("conversation", "import", str(file), "--conversation", user, "--user", user)
    key = here.json("key", "new", "--role", "owner")["id"]
    archive = tmp_path / "x.backup"
    here.json("backup", str(archive))
    here("memory", "forget", "--user", "ann", "--yes")
    here("key", "revoke", key)
    return here, archive


def users(folder: Path) -> list[str]:
    listed = cuebook("-C", str(folder), "conversation", "list", "--json", cwd=folder)
    return [each["id"] for each in json.loads(listed.stdout)["items"]]


@pytest.mark.slow
def test_restore_repeats_the_erasures_of_the_replaced_project_and_of_receipts(
    backed_up: tuple[CommandRunner, Path], tmp_path: Path
) -> None:
    here, archive = backed_up
    assert "is not empty" in here("restore", str(archive), code=1)
    receipts, elsewhere = tmp_path / "receipts.json", tmp_path / "elsewhere"
    receipts.write_text(here("memory", "receipt", "list", "--json"))
    plain = here.json("restore", str(archive), "--into", str(elsewhere))
    assert "Erasures since the backup are not known here. Pass their receipts with --receipts." in plain["unknown"]
    assert users(elsewhere) == ["bob", "ann"]
    shutil.rmtree(elsewhere)
    told = here.json("restore", str(archive), "--into", str(elsewhere), "--receipts", str(receipts))
    assert [(each["kind"], each["rows"] > 0) for each in told["erasures"]] == [("user", True)]
    assert users(elsewhere) == ["bob"]
    replaced = here.json("restore", str(archive), "--replace")
    assert (len(replaced["erasures"]), replaced["revokedKeys"]) == (1, 1)
    assert users(here.folder) == users(Path(replaced["kept"])) == ["bob"]
    assert [each["state"] for each in here.json("key", "list")["items"]] == ["revoked"]
    assert b"ann likes plums" not in (here.folder / ".cuebook/cuebook.db").read_bytes()
    assert sorted(each.name for each in here.folder.parent.iterdir()) == sorted(
        {here.folder.name, Path(replaced["kept"]).name, "elsewhere", "posts.json", "receipts.json", "x.backup"}
    )


def test_receipts_of_another_project_and_damaged_backups_are_refused(
    backed_up: tuple[CommandRunner, Path], tmp_path: Path
) -> None:
    here, archive = backed_up
    receipts, elsewhere = tmp_path / "receipts.json", tmp_path / "elsewhere"
    document: Any = here.json("memory", "receipt", "list")
    document["items"][0]["reason"] = "changed"
    receipts.write_text(json.dumps(document))
    arguments = ("restore", str(archive), "--into", str(elsewhere))
    assert "its signature does not match" in here(*arguments, "--receipts", str(receipts), code=1)
    body = archive.read_bytes()
    for damaged in (body[:-9], body[: len(body) // 2], b"", body[:-6000] + bytes(6000), b"no backup"):
        archive.write_bytes(damaged)
        assert "damaged" in here(*arguments, code=1)
    assert not elsewhere.exists()
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")], "nothing is left behind"


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.slow
def test_restore_says_what_the_receipts_do_not_tell(
    here: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    monkeypatch.setenv(PASSPHRASE, "plums and figs")
    for user in ("ann", "bob", "eve"):
        here("memory", "add", f"{user} likes plums.", "--user", user)
    archive, receipts = tmp_path / "x.backup", tmp_path / "receipts.json"
    here("backup", str(archive), *["--encrypt"] * encrypted)
    for user in ("ann", "bob", "eve"):
        here("memory", "forget", "--user", user, "--yes")
    listed = here.json("memory", "receipt", "list")["items"]
    assert {each["remains"] for each in listed} == {"the exports and backups of audit records 24"}
    assert here.json("audit", "tail", "--last", "100")["items"][23]["selection"] == {"file": "x.backup"}
    for given, missing in ((listed, 0), (listed[:1], 2), (listed[::2], 1)):
        receipts.write_text(json.dumps(given))
        into = tmp_path / str(missing)
        report = here.json("restore", str(archive), "--into", str(into), "--receipts", str(receipts))
        assert [each["rows"] > 0 for each in report["erasures"]] == [True] * len(given)
        lacking = [each for each in report["unknown"] if "since the backup. List more" in each]
        assert [each.split(" lack ")[1].split(" since")[0] for each in lacking] == (
            [f"{missing} erasure{'s' * (missing > 1)}"] if missing else []
        )
        newest = f"Erasures after the newest receipt, of {listed[0]['requestedAt']}, are not known here."
        assert newest in report["unknown"]


def test_restore_says_that_a_damaged_project_was_replaced(
    backed_up: tuple[CommandRunner, Path], tmp_path: Path
) -> None:
    here, archive = backed_up
    file = here.folder / ".cuebook/cuebook.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE receipt SET body = x'7b7d'")
    first = here.json("restore", str(archive), "--replace")
    assert any("of the replaced project is damaged. Its erasure was not repeated." in each for each in first["unknown"])
    file.write_bytes(b"damaged")
    report = here.json("restore", str(archive), "--replace")
    assert (report["erasures"], report["revokedKeys"]) == ([], 0)
    for told in (
        "Erasures since the backup are not known.",
        "Keys that were revoked since the backup are valid again.",
    ):
        assert any("cannot be read" in each and told in each for each in report["unknown"])
    assert Path(first["kept"]).is_dir()
    assert Path(report["kept"]).is_dir()
    assert first["kept"] != report["kept"], "also within a second"


async def test_restore_repeats_an_erasure_in_its_tenant_only(tmp_path: Path) -> None:
    folder, archive = tmp_path / "project", tmp_path / "x.backup"
    folder.mkdir()
    settings = build(arguments={"store.url": "x.db"}, folder=str(folder))
    async with Cuebook.open(settings, worker=False) as cue:
        for mine in (cue, cue.of("acme")):
            await mine.memory.add("Likes plums.", user="ann")
        await asyncio.to_thread(back_up, settings, archive)
        receipt = await cue.of("acme").memory.forget(user="ann")
    report = await asyncio.to_thread(restore, archive, tmp_path / "into", receipts=[receipt])
    assert [each.rows > 0 for each in report.erasures] == [True]
    async with Cuebook.open(build(arguments={"store.url": "x.db"}, folder=str(tmp_path / "into"))) as cue:
        assert [each.text for each in (await cue.memory.list(user="ann")).items] == ["Likes plums."]
        assert not (await cue.of("acme").memory.list(user="ann")).items


def test_a_new_backup_keeps_its_folder_while_others_remove_left_ones(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as others:
        removals = [others.submit(lambda: [remove_copies(tmp_path) for _ in range(1_000)]) for _ in range(2)]
        while not all(each.done() for each in removals):
            with folder_for_copies(tmp_path) as folder:
                (folder / "cuebook.db").touch()
                assert (folder / "cuebook.db").exists()
    assert not [*tmp_path.iterdir()]


def test_copies_of_a_killed_backup_are_erased_by_a_forget_and_by_the_next_backup(
    here: CommandRunner, tmp_path: Path
) -> None:
    here("memory", "add", "Likes plums.", "--user", "ann")
    home = here.folder / ".cuebook"

    def leave_copy() -> Path:
        folder = home / f"{COPIES}killed"
        (folder / ".cuebook").mkdir(parents=True)
        shutil.copy(home / "cuebook.db", folder / ".cuebook")
        os.link(folder / ".cuebook/cuebook.db", tmp_path / f"{len([*tmp_path.iterdir()])}.bytes")
        return folder

    own = home / ".backup-monday/notes.txt"
    own.parent.mkdir()
    own.write_text("of the user")
    leave_copy()
    with folder_for_copies(home) as running:  # removes the first one
        (running / "cuebook.db").touch()
        folder = leave_copy()
        here("memory", "forget", "--user", "ann", "--yes")
        assert (running / "cuebook.db").exists()
        assert not folder.exists()
    leave_copy()
    here("backup", str(tmp_path / "x.backup"))
    assert not [*home.glob(f"{COPIES}*")]
    assert own.read_text() == "of the user"
    left = [file.read_bytes() for file in tmp_path.glob("*.bytes")]
    assert len(left) == 3
    assert not any(any(each) for each in left), "the bytes are overwritten"


def test_an_encrypted_backup_needs_its_passphrase(
    here: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.json("key", "new", "--role", "owner")
    archive, elsewhere = tmp_path / "x.backup", tmp_path / "elsewhere"
    assert f"Set {PASSPHRASE}" in here("backup", str(archive), "--encrypt", code=1)
    monkeypatch.setenv(PASSPHRASE, "plums and figs")
    here("backup", str(archive), "--encrypt", "--without-keys")
    assert b"cuebook.db" not in archive.read_bytes()
    assert "File exists" in here("backup", str(archive), code=1)
    monkeypatch.setenv(PASSPHRASE, "figs")
    arguments = ("restore", str(archive), "--into", str(elsewhere))
    assert "the passphrase is wrong, or the file is damaged" in here(*arguments, code=1)
    monkeypatch.setenv(PASSPHRASE, "plums and figs")
    assert "The backup has no API keys. Create new ones with `cuebook key new`." in here.json(*arguments)["unknown"]
    assert json.loads(cuebook("key", "list", "--json", cwd=elsewhere).stdout)["items"] == []


@pytest.mark.slow
async def test_a_postgresql_database_is_restored_into_a_new_one(
    new_postgres_url: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUEBOOK_KEY_SECRET", "a long secret")
    project, into, archive = tmp_path / "project", tmp_path / "elsewhere", tmp_path / "x.backup"
    project.mkdir()
    old, new = new_postgres_url(), new_postgres_url(tables=False)
    (project / "cuebook.toml").write_text(f'[store]\nurl = "{old}"\n')
    assert cuebook("db", "init", cwd=project, CUEBOOK_KEY_SECRET="a long secret").returncode == 0
    async with Cuebook.open(project, worker=False) as cue:
        token = (await cue.keys.new("owner")).token
        await cue.append("c", [Posted(sender="ann", message="I like plums")], user="ann")
        await cue.of("other").append("c", [Posted(sender="bob", message="I like figs")], user="bob")
        await asyncio.to_thread(back_up, cue.config, archive)
        receipt = await cue.memory.forget(user="ann")
    arguments = {"receipts": [receipt], "database": new}
    report = await asyncio.to_thread(restore, archive, into, **arguments)
    assert [each.rows > 0 for each in report.erasures] == [True]
    assert any("Set store.url to the one of --database." in each for each in report.unknown)
    async with Cuebook.open(into, arguments={"store.url": new}, worker=False) as cue:
        assert (await cue.keys.admit(token)).role == "owner"
        assert [each.id for each in await cue.conversations.list()] == []
        assert [each.id for each in await cue.of("other").conversations.list()] == ["c"]
        assert (await cue.audit.verify()).ok
    with pytest.raises(Conflict, match="The database has tables"):
        await asyncio.to_thread(restore, archive, tmp_path / "again", database=new)


def hostile_archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def manifest(**files: int) -> tuple[tarfile.TarInfo, bytes]:
    listed = [{"name": name, "size": size, "sha256": "0" * 64} for name, size in files.items()]
    about = {"createdAt": "2026-01-01T00:00:00Z", "cuebook": "0.1", "database": "sqlite", "databaseFile": "a",
             "schema": 1, "withKeys": False, "files": listed}  # fmt: skip
    return tarfile.TarInfo("manifest.json"), json.dumps(about).encode()


@pytest.mark.parametrize("field", ["databaseFile", "keyFile"])
@pytest.mark.parametrize("name", ["../../other.db", "other.db"])
def test_a_manifest_cannot_name_a_file_that_the_archive_lacks(tmp_path: Path, field: str, name: str) -> None:
    member, content = manifest(a=0)
    about = {**json.loads(content), field: name}
    about["files"][0]["sha256"] = hashlib.sha256().hexdigest()
    data = hostile_archive((member, json.dumps(about).encode()), (tarfile.TarInfo("a"), b""))
    (tmp_path / "x.backup").write_bytes(data)
    with pytest.raises(InvalidInput, match=re.escape(f"'{name}' is missing")):
        restore(tmp_path / "x.backup", tmp_path / "a" / "into")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["x.backup"]


@pytest.mark.parametrize("what", ["header", "end", "size"])
@pytest.mark.slow
def test_a_hostile_archive_takes_neither_memory_nor_the_disk(tmp_path: Path, what: str) -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    data, error, reason = {
        "header": (
            hostile_archive((header, bytes(64 << 20)), manifest()),
            InvalidInput,
            "a header has 67,108,864 bytes",
        ),
        "end": (
            gzip.compress(gzip.decompress(hostile_archive(manifest())) + bytes(64 << 20)),
            InvalidInput,
            "'the end'",
        ),
        "size": (hostile_archive(manifest(a=1 << 60)), StoreFull, "needs 1,152,921,504,606,846,976 bytes"),
    }[what]
    (tmp_path / "x.backup").write_bytes(data)
    peaks = []
    for _ in range(2):  # the first one also imports modules
        tracemalloc.start()
        with pytest.raises(error, match=reason):
            restore(tmp_path / "x.backup", tmp_path / "into")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 16 << 20
    assert [each.name for each in tmp_path.iterdir()] == ["x.backup"]
