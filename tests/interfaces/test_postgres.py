"""Tests of the product on PostgreSQL: turns, the database commands, and the key that all machines share."""

import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from commands import cuebook

from cuebook import Ask, Cuebook
from cuebook.app.setup.database import check_database, is_in_use, owner_note
from cuebook.app.setup.embedded_postgres import check_folder, start, status, stop
from cuebook.app.setup.project_files import load_config
from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.records.memory import Scope
from cuebook.storage.database.postgres import PostgresDatabase, upgrade
from cuebook.storage.database.postgres_key import stored_key
from cuebook.storage.database.statements import MIGRATIONS, VERSION
from storage.databases import content_of

SECRET = {"CUEBOOK_KEY_SECRET": "a long secret"}


def project(folder: Path, url: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "cuebook.toml").write_text(f'[store]\nurl = "{url}"\n')
    return folder


async def test_turns_and_memory_work_on_postgresql(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*next(iter(SECRET.items())))
    stored_key(postgres_url, SECRET["CUEBOOK_KEY_SECRET"], new=bytes(32))
    folder = project(tmp_path / "ann", postgres_url)
    async with Cuebook.open(folder, arguments={"memory.user": True}, worker=False) as cue:
        for text in ("I am allergic to walnuts.", "What shall I cook?", "Which nuts must I avoid?"):
            await cue.ask(Ask(text, "c1", user="ann"))
        assert await cue.settle(timeout=60) == {}
    async with Cuebook.open(project(tmp_path / "other", postgres_url), worker=False) as other:
        hits = await other.memory.search("walnuts", user="ann")
        assert "allergic to walnuts" in hits[0].text
        assert [each.id for each in await other.conversations.list()] == ["c1"]
        assert (await other.audit.verify()).ok
        await other.memory.forget(user="ann")
        assert list(await other.conversations.list()) == []


@pytest.mark.slow
async def test_a_forget_leaves_no_byte_in_the_tables(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*next(iter(SECRET.items())))
    stored_key(postgres_url, SECRET["CUEBOOK_KEY_SECRET"], new=bytes(32))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        query = "SELECT current_setting('data_directory'), oid FROM pg_database WHERE datname = current_database()"
        folder, database = connection.execute(query).fetchone() or ("", 0)

        def occurrences() -> int:
            connection.execute("CHECKPOINT")
            files = (file for file in Path(folder, "base", str(database)).iterdir() if file.is_file())
            return sum(content_of(file).lower().count(b"quokka") for file in files)

        async with Cuebook.open(project(tmp_path / "ann", postgres_url), worker=False) as cue:
            for number in range(20):
                await cue.ask(Ask(f"{number}: I have a quokka.", "c1", user="ann"))
                await cue.ask(Ask(f"{number}: I like figs.", "c2", user="bob"))
            await cue.settle(timeout=60)
            connection.execute("ANALYZE")  # as autovacuum does: statistics contain values
            assert occurrences() > 20
            with psycopg.connect(postgres_url) as reader:
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reader.execute("SELECT 1")
                assert (await cue.memory.forget(user="ann")).state == "pending", "an older transaction may read"
            await cue.settle(timeout=60)
            receipt = (await cue.memory.receipts())[0]
            assert receipt.state == "done"
            assert "write-ahead log up to" in receipt.remains
            assert cue.memory.verify_receipt(receipt, name="ann").ok
            assert occurrences() == 0
            assert len(await cue.conversations.posts("c2")) == 40


async def test_a_role_that_may_not_vacuum_leaves_receipts_pending(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("CREATE ROLE guest IN ROLE cuebook_app")
        database = PostgresDatabase(f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-crole%3Dguest")
        try:
            assert not await database.clean()
            assert not await database.clean()
        finally:
            await database.aclose()
            owner.execute("DROP ROLE guest")
    assert caplog.text.count("Connect as the owner, or run `cuebook db check`.") == 1


async def test_a_role_that_may_maintain_tables_finishes_receipts(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        if owner.info.server_version < 170_000:
            pytest.skip("pg_maintain is new in PostgreSQL 17")
        owner.execute("CREATE ROLE keeper IN ROLE cuebook_app, pg_maintain")
        url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-crole%3Dkeeper"
        database = PostgresDatabase(url)
        try:
            assert await database.clean()
            assert owner_note(load_config(None, arguments={"store.url": url})) == ""
        finally:
            await database.aclose()
            owner.execute("DROP ROLE keeper")


@pytest.mark.slow
async def test_machines_with_other_prompt_files_do_not_push_back_and_forth(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*next(iter(SECRET.items())))
    stored_key(postgres_url, SECRET["CUEBOOK_KEY_SECRET"], new=bytes(32))
    folders = [project(tmp_path / name, postgres_url) for name in ("one", "two")]
    for folder in folders:
        (folder / "prompts").mkdir()
        (folder / "prompts/greeting.md").write_text(f"Greet them as machine {folder.name}.")

    async def started(folder: Path) -> list[str]:
        """Start a machine, and return the stored texts of the prompt."""
        async with Cuebook.open(folder, worker=False) as cue:
            return [each.sections["body"] for each in await cue.services.prompts.versions(Scope(), "greeting")]

    assert len(await started(folders[0])) == 1
    both = await started(folders[1])
    assert len(both) == 2
    for folder in (*folders, *folders):
        assert await started(folder) == both
        for state in (folder / ".cuebook").glob("*.prompts"):  # a new container does not have it
            state.unlink()


@pytest.mark.slow
async def test_each_machine_cleans_its_own_audit_mirror(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(*next(iter(SECRET.items())))
    stored_key(postgres_url, SECRET["CUEBOOK_KEY_SECRET"], new=bytes(32))
    folders = [project(tmp_path / name, postgres_url) for name in ("one", "two", "stopped")]
    (folders[0] / "personas").mkdir()
    (folders[0] / "personas/ada.json").write_text('{"id": "ada", "prompts": {"persona": "greeting"}}')
    one, two, stopped = (Cuebook.open(folder, worker=False) for folder in folders)

    def machines_with(word: str) -> list[str]:
        return [each.name for each in folders if word in (each / "logs/prompts_audit.jsonl").read_text()]

    async with one, two:
        await one.prompts.save("greeting", {"body": "Greet $user_name."}, params=["user_name"])
        await one.ask(Ask("hello", "c1", user="Quirina", persona="ada"))
        async with stopped:
            assert await one.settle() == await two.settle() == await stopped.settle() == {}
        assert machines_with("Quirina") == ["one", "two", "stopped"]
        await two.memory.forget(user="Quirina")
        assert machines_with("Quirina") == ["one", "stopped"]
        await one.work()
        assert machines_with("Quirina") == ["stopped"]
        await one.ask(Ask("hello", "c2", user="Rosa", persona="ada"))
        await one.settle()
        assert (await two.audit.verify()).ok
    async with Cuebook.open(folders[2], worker=False) as stopped:
        assert await stopped.settle() == {}
        assert machines_with("Quirina") == []
        assert (await stopped.audit.verify()).ok
    assert "lacked" not in caplog.text


@pytest.mark.slow
def test_a_database_is_prepared_once(postgres_server: str, tmp_path: Path) -> None:
    name = "prepared"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        url = postgres_server.replace("/cuebook?", f"/{name}?")
        missing = cuebook("db", "check", url, cwd=tmp_path)
        assert (missing.returncode, "Run `cuebook db init`" in missing.stdout) == (1, True)
        refused = cuebook("db", "init", url, cwd=tmp_path)
        assert "needs a key" in refused.stderr
        with pytest.raises(InvalidInput, match="has no tables"):
            PostgresDatabase(url)
        for line in ("; created the key", "no changes: the tables exist; the key is unchanged"):
            done = cuebook("db", "init", url, cwd=tmp_path, **SECRET)
            assert (done.returncode, line in done.stdout) == (0, True), done.stderr
        checked = json.loads(cuebook("db", "check", url, "--json", cwd=tmp_path, **SECRET).stdout)
        assert (checked["role"], checked["faults"], checked["unprotected"]) == ("cuebook_app", [], [])
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("ALTER TABLE memory DISABLE ROW LEVEL SECURITY")
        for arguments in (("db", "check", url), ("doctor", "-C", str(project(tmp_path / "ann", url)))):
            checked = cuebook(*arguments, cwd=tmp_path, **SECRET)
            assert (checked.returncode, "Row-level security is off for memory" in checked.stdout) == (1, True)
        assert cuebook("db", "migrate", url, cwd=tmp_path).returncode == 0
        assert cuebook("db", "check", url, cwd=tmp_path, **SECRET).returncode == 0
        keyless = cuebook("db", "check", url, cwd=tmp_path)
        assert (keyless.returncode, "A PostgreSQL database needs a key" in keyless.stdout) == (1, True)
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("DROP SCHEMA cuebook_queue CASCADE")
        unwoken = cuebook("db", "check", url, cwd=tmp_path, **SECRET)
        assert (unwoken.returncode, "the job queue is missing" in unwoken.stdout) == (0, True)
        doctor = cuebook("doctor", cwd=tmp_path / "ann", **SECRET).stdout
        assert re.search("warn +server .*servers use role cuebook_app; .*the job queue is missing", doctor)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_other_versions_of_the_tables_are_refused(postgres_url: str) -> None:
    later = ("CREATE TABLE later (tenant TEXT NOT NULL, at REAL, PRIMARY KEY (tenant)) WITHOUT ROWID",)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE schema_version SET version = version - 1")
    with pytest.raises(InvalidInput, match="Run `cuebook db migrate`"):
        PostgresDatabase(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE schema_version SET version = version + 1")
    assert upgrade(postgres_url, migrations=(*MIGRATIONS, later)) == (VERSION, VERSION + 1)
    with psycopg.connect(postgres_url) as connection:
        query = "SELECT relforcerowsecurity FROM pg_class WHERE relname = 'later'"
        assert connection.execute(query).fetchone() == (True,)
    with pytest.raises(InvalidInput, match="a newer version of Cuebook made the database"):
        PostgresDatabase(postgres_url)


def test_the_owner_of_a_database_needs_no_superuser(
    postgres_server: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{name}_{secrets.token_hex(4)}" for name in ("owner", "server")]
    owned = urlsplit(postgres_url).path[1:]

    def url(user: str) -> str:
        return postgres_url.replace("//postgres:", f"//{user}:")

    with psycopg.connect(postgres_server, autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE ROLE {name} LOGIN")
        owner, server = names
        try:
            admin.execute(f"DROP DATABASE {owned}")
            admin.execute(f"CREATE DATABASE {owned} OWNER {owner} TEMPLATE template0")
            with pytest.raises(InvalidInput, match=f"once: CREATE ROLE cuebook_app; GRANT cuebook_app TO {owner};"):
                upgrade(url(owner))
            admin.execute(f"GRANT cuebook_app TO {owner}")
            upgrade(url(owner))
            stored_key(url(owner), "secret", new=bytes(32))
            with pytest.raises(BackendError, match=r"as a member of cuebook_app \(GRANT cuebook_app TO role\)"):
                stored_key(url(server), "secret")
            admin.execute(f"GRANT cuebook_app TO {server}")
            assert stored_key(url(server), "secret") == bytes(32)
            with pytest.raises(BackendError, match=r"created or migrated .* Connect as the owner of the database\.$"):
                upgrade(url(server))
            monkeypatch.setenv("CUEBOOK_KEY_SECRET", "other")
            checked = check_database(load_config(None, arguments={"store.url": url(server)}))
            assert [each.split(".")[0] for each in checked.notes] == [f"{server} may not vacuum the database"]
            assert "is not the one with which" in checked.faults[0]
        finally:
            admin.execute(f"DROP DATABASE {owned} WITH (FORCE)")
            for name in names:
                admin.execute(f"DROP ROLE {name}")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root starts a server as another user")
def test_the_modes_of_folders_above_a_server_stay(postgres_server: str, tmp_path: Path) -> None:
    if (folder := urlsplit(postgres_server).query.removeprefix("host=")).startswith("/"):
        assert Path(folder).parent.stat().st_mode & 0o777 == 0o711, "as the fixture made it"
    tmp_path.chmod(0o700)
    with pytest.raises(InvalidInput, match=f"other users cannot enter '{tmp_path}'"):
        start(tmp_path / "data")
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_all_machines_have_one_key(postgres_url: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "ann", postgres_url)
    assert "A PostgreSQL database needs a key" in cuebook("conversation", "list", cwd=folder).stderr
    assert "has no key. Run `cuebook db init`" in cuebook("conversation", "list", cwd=folder, **SECRET).stderr
    assert cuebook("db", "init", cwd=folder, **SECRET).returncode == 0
    assert cuebook("conversation", "list", cwd=folder, **SECRET).returncode == 0
    assert "is not the one" in cuebook("conversation", "list", cwd=folder, CUEBOOK_KEY_SECRET="other").stderr
    file = {"CUEBOOK_KEY_FILE": str(tmp_path / "key")}
    assert "does not exist. Copy it from another machine" in cuebook("conversation", "list", cwd=folder, **file).stderr


@pytest.mark.slow
async def test_a_copied_project_verifies_with_its_keys(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*next(iter(SECRET.items())))
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "cuebook.toml").touch()
    async with Cuebook.open(tmp_path / "ann", worker=False) as cue:
        await cue.ask(Ask("I am allergic to walnuts.", "c1", user="ann"))
        await cue.ask(Ask("I like figs.", "c2", user="bob"))
        await cue.memory.forget(user="bob")
        key = await cue.keys.new("editor", user="ann")
        [receipt] = await cue.memory.receipts()
    done = cuebook("db", "copy", "ann", postgres_url, cwd=tmp_path, **SECRET)
    assert (done.returncode, "the digests are equal" in done.stdout) == (0, True), done.stderr
    async with Cuebook.open(project(tmp_path / "server", postgres_url), worker=False) as cue:
        assert (await cue.audit.verify()).ok
        assert await cue.memory.receipts() == [receipt]
        caller = await cue.keys.admit(key.token)
        assert (caller.role, caller.user) == ("editor", "ann")
        assert [each.id for each in await cue.conversations.list()] == ["c1"]
    back = cuebook("db", "copy", postgres_url, "back.db", cwd=tmp_path, **SECRET)
    assert back.returncode == 0, back.stderr
    keys = [tmp_path / "back.db.key", tmp_path / "ann/.cuebook/cuebook.db.key"]
    assert len({each.read_bytes().splitlines()[0] for each in keys}) == 1
    again = cuebook("db", "copy", "ann", postgres_url, cwd=tmp_path, **SECRET)
    assert (again.returncode, "The target is not empty" in again.stderr) == (1, True)
    other = cuebook("db", "copy", "back.db", "without.db", "--without-keys", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    assert not (tmp_path / "without.db.key").exists()


async def test_a_source_that_is_in_use_is_recognized(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "cuebook.toml").touch()
    async with Cuebook.open(tmp_path, worker=False) as cue:
        await cue.ask(Ask("I like figs.", "c1", user="bob"))
        assert is_in_use(str(tmp_path))
    assert not is_in_use(str(tmp_path))
    with psycopg.connect(postgres_url):
        assert is_in_use(postgres_url)


def test_a_database_has_one_key(postgres_url: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "ann", postgres_url)
    assert cuebook("db", "init", cwd=folder, **SECRET).returncode == 0
    file = {"CUEBOOK_KEY_FILE": str(tmp_path / "key")}
    for command in (("db", "init"), ("conversation", "list")):
        refused = cuebook(*command, cwd=folder, **file)
        assert (refused.returncode, "was set up with another key" in refused.stderr) == (1, True)


@pytest.mark.slow
def test_a_copy_goes_to_a_database_without_tables(new_postgres_url: Callable[..., str], tmp_path: Path) -> None:
    url, folder = new_postgres_url(tables=False), tmp_path / "ann"
    folder.mkdir()
    missing = cuebook("db", "copy", "nosuch.db", url, cwd=tmp_path, **SECRET)
    assert (missing.returncode, "There is no database" in missing.stderr) == (1, True)
    assert [each.name for each in tmp_path.iterdir()] == ["ann"]
    (folder / "cuebook.toml").touch()
    mistyped = cuebook("db", "copy", "ann", url.replace("://", ":/"), cwd=tmp_path, **SECRET)
    assert (mistyped.returncode, "a URL that begins with 'postgresql:/'" in mistyped.stderr) == (1, True)
    cuebook("memory", "add", "The printer is on floor 3.", cwd=folder)
    done = cuebook("db", "copy", "ann", url, cwd=tmp_path, **SECRET)
    assert (done.returncode, "the digests are equal" in done.stdout) == (0, True), done.stderr
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE copying (source TEXT)")
        connection.execute("INSERT INTO copying VALUES ('other')")
    other = cuebook("db", "copy", "ann", url, cwd=tmp_path, CUEBOOK_KEY_SECRET="other")
    assert (other.returncode, "an unfinished copy of another source" in other.stderr) == (1, True)
    assert cuebook("db", "migrate", url, cwd=tmp_path, **SECRET).returncode == 1
    for command in (("db", "check", url), ("doctor", "-C", str(project(tmp_path / "bob", url)))):
        assert "has not finished. Repeat `cuebook db copy`" in cuebook(*command, cwd=tmp_path, **SECRET).stdout
    refused = cuebook("conversation", "list", "-C", "bob", cwd=tmp_path, **SECRET)
    assert "has not finished. Repeat `cuebook db copy`" in refused.stderr


@pytest.mark.parametrize("password", ["pa%ss", "pa ss", "pa@ss", "pa/ss", "[pass"])
def test_an_invalid_url_shows_no_password(tmp_path: Path, password: str) -> None:
    url = f"postgresql://ann:{password}@127.0.0.1:1/cue"
    done = cuebook("db", "check", url, cwd=tmp_path)
    assert done.returncode == 1
    assert password not in done.stdout + done.stderr
    assert "valid URL" in done.stderr or "Cannot connect" in done.stderr
    shown = cuebook("config", cwd=tmp_path, CUEBOOK_DATABASE_URL=url)
    assert password not in shown.stdout


def test_a_folder_of_a_server_needs_no_quotes(tmp_path: Path) -> None:
    done = cuebook("db", "start", "a&b c", cwd=tmp_path)
    assert (done.returncode, "has special characters" in done.stderr) == (1, True)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"Cannot connect to the database at /.*: No such file or directory\. Check"):
        PostgresDatabase(f"postgresql://postgres@/cuebook?host={tmp_path}")
    with pytest.raises(BackendError, match=r"Cannot connect to the database at 127\.0\.0\.1:1: Connection refused\. C"):
        PostgresDatabase("postgresql://127.0.0.1:1/cue")
    with pytest.raises(NotFound, match="There is no PostgreSQL server in"):
        check_folder(tmp_path / "none")
    assert not stop(tmp_path / "none").running
    assert not status(tmp_path / "none").running
    (tmp_path / "file").touch()
    done = cuebook("db", "start", str(tmp_path), cwd=tmp_path)
    assert "has other files. Choose a new folder" in done.stderr


def test_an_upgrade_without_changes_waits_for_no_server(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as server:
        server.execute("SELECT count(*) FROM post")  # its transaction locks the table
        assert upgrade(f"{postgres_url}&options=-clock_timeout%3D1000") == (VERSION, VERSION)
        server.execute("ALTER POLICY tenant ON post USING (true)")
        server.execute("ALTER TABLE turn DISABLE ROW LEVEL SECURITY")
        server.commit()
        upgrade(postgres_url)
        query = "SELECT tablename, qual FROM pg_policies WHERE tablename IN ('post', 'turn')"
        policies = dict(server.execute(query).fetchall())
        assert "cuebook.tenant" in policies["post"]
        assert policies["post"] == policies["turn"]
        query = "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE relname = 'turn'"
        assert server.execute(query).fetchall() == [(True, True)]
