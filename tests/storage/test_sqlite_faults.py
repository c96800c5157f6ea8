"""Fault tests of databases, most of them of SQLite files: full disks, missing permissions, failing writes."""

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from cuebook.errors import BackendError, InvalidInput, StoreFull
from cuebook.interfaces.store import Batch, PathQuery
from cuebook.records.conversation import Part
from cuebook.records.memory import Scope
from cuebook.storage.database.sqlite_writer import Writer
from cuebook.storage.database.transaction import Failpoints
from cuebook.storage.store import open_store, sqlite_store
from storage.audit import audit
from storage.contract.memory import item, result
from storage.contract.turns import answer, begin, end
from storage.databases import mounted, on_server
from storage.makers import draft, drafts, opening

OWNER = Scope()
NOW = 1_700_000_000.0
NOBODY = 65534
#: A text that no database can compress.
LARGE = random.Random(1).randbytes(250_000).hex()


def batch(*said, conversation="c", now=NOW):
    return Batch(conversation=conversation, drafts=said, now=now)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cuebook.db"


@pytest.fixture(autouse=True)
def python_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # the programs below import storage.makers


@pytest.fixture
async def store(path):
    store = sqlite_store(str(path), synchronous="OFF")
    yield store
    await store.aclose()


async def in_writer(store, run):
    """Run a function on the writing connection, between two batches."""
    return await asyncio.wrap_future(store.database._writer.submit(run))  # noqa: SLF001 - the test is about the writer


async def writer_blocked(store):
    """Block the writer until released: requests made meanwhile form one batch."""
    let_go, busy = threading.Event(), threading.Event()

    def hold(_connection):
        busy.set()
        let_go.wait(20)

    task = asyncio.ensure_future(in_writer(store, hold))
    await asyncio.to_thread(busy.wait)
    return let_go, task


# ---------------------------------------------------------------- group commit


async def test_sixteen_concurrent_appends_take_two_commits(store):
    before = store.database.commits
    await asyncio.gather(*(store.append(OWNER, batch(draft(f"x{n}", "hi"), conversation=f"c{n}")) for n in range(16)))
    assert store.database.commits - before <= 2


async def test_waiting_requests_are_one_commit(store):
    let_go, task = await writer_blocked(store)
    calls = [asyncio.ensure_future(store.append(OWNER, batch(draft(f"x{n}", "hi")))) for n in range(200)]
    await asyncio.sleep(0)
    before = store.database.commits
    let_go.set()
    answers = await asyncio.gather(*calls)
    await task
    assert store.database.commits - before == 2, "one commit for the running request, and one for all waiting requests"
    assert sorted(each.last_seq for each in answers) == list(range(1, 201))


async def test_a_failed_request_does_not_affect_its_batch(store):
    await store.append(OWNER, batch(draft("taken", "one")))
    let_go, task = await writer_blocked(store)

    def broken(connection):
        connection.execute("INSERT INTO blob VALUES ('half', x'01', x'02')")
        raise KeyError("internal error")

    calls = []
    for n in range(8):
        calls.append(asyncio.ensure_future(store.append(OWNER, batch(draft(f"x{n}", "hi")))))
        calls.append(asyncio.ensure_future(store.append(OWNER, batch(draft(f"y{n}", "hi"), draft("taken", "other")))))
        calls.append(asyncio.ensure_future(in_writer(store, broken)))
    await asyncio.sleep(0)
    let_go.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    await task
    assert [type(each).__name__ for each in answers] == ["Appended", "Conflict", "KeyError"] * 8
    assert [post.id for post in await store.posts(OWNER, "c")] == ["taken", *(f"x{n}" for n in range(8))]
    assert (await in_writer(store, lambda c: c.execute("SELECT count(*) FROM blob WHERE tenant = 'half'").fetchone()))[
        0
    ] == 0


async def test_a_canceled_waiting_request_stores_nothing(store):
    let_go, task = await writer_blocked(store)
    calls = [asyncio.ensure_future(store.append(OWNER, batch(draft(f"x{n}", "hi")))) for n in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.sleep(0)
    let_go.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    await task
    assert isinstance(answers[1], asyncio.CancelledError)
    assert [post.id for post in await store.posts(OWNER, "c")] == ["x0", "x2"]


async def test_cancellation_at_any_time_affects_no_other_request(store):
    async def say(n):
        return await store.append(OWNER, batch(draft(f"x{n}", "hi")))

    for n in range(0, 200, 2):
        impatient = asyncio.ensure_future(say(n))
        patient = asyncio.ensure_future(say(n + 1))
        await asyncio.sleep(0 if n % 4 else 0.0005)
        impatient.cancel()
        await asyncio.gather(impatient, patient, return_exceptions=True)
        assert patient.exception() is None
    posts = await store.posts(OWNER, "c")
    assert [post.seq for post in posts] == list(range(1, len(posts) + 1))
    assert {f"x{n}" for n in range(1, 200, 2)} <= {post.id for post in posts}


async def test_waiting_requests_finish_when_the_store_closes(path):
    store = sqlite_store(str(path), synchronous="OFF")
    let_go, task = await writer_blocked(store)
    call = asyncio.ensure_future(store.append(OWNER, batch(draft("x", "hi"))))
    await asyncio.sleep(0)
    closing_ = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0.05)
    with pytest.raises(BackendError):
        await store.append(OWNER, batch(draft("y", "late")))
    let_go.set()
    await asyncio.gather(call, closing_, task)
    assert call.result().last_seq == 1


# ---------------------------------------------------------------- foreign and unwritable files


def refused(path, kind):
    with pytest.raises(kind) as told:
        sqlite_store(str(path))
    return str(told.value)


def test_a_database_of_a_newer_version_is_rejected_unchanged(path):
    asyncio.run(sqlite_store(str(path)).aclose())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE schema_version SET version = 9999")
        connection.commit()
    before = path.read_bytes()
    assert "newer" in refused(path, InvalidInput)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_rejected_unchanged(path):
    path.write_bytes(b"Dear diary, " * 1000)
    assert "database" in refused(path, BackendError)
    assert path.read_bytes() == b"Dear diary, " * 1000


@pytest.mark.parametrize("table", ["diary", "schema_version"])
def test_a_foreign_database_is_rejected_unchanged(path, table):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table} (version INTEGER)")
        connection.execute(f"INSERT INTO {table} VALUES (0)")  # noqa: S608
        connection.commit()
    before = path.read_bytes()
    assert "to another program" in refused(path, InvalidInput)
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["cuebook.db"]


def test_a_database_without_schema_version_is_rejected(path):
    asyncio.run(sqlite_store(str(path)).aclose())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM schema_version")
        connection.commit()
    assert "damaged" in refused(path, BackendError)


def test_any_open_error_is_reported():
    with pytest.raises(ZeroDivisionError):
        Writer(lambda: 1 // 0, Failpoints(), lambda: None)


NEW = """
import asyncio, os, sys
from cuebook.storage.store import sqlite_store
from cuebook.interfaces.store import Batch
from cuebook.records.memory import Scope
from storage.makers import draft

async def main():
    os.umask(int(sys.argv[2], 8))
    store = sqlite_store(sys.argv[1])
    await store.append(Scope(), Batch(conversation="c", drafts=(draft("x", "hello"),), now=1.0))
    print(*sorted(f"{each.name} {each.stat().st_mode & 0o777:o}" for each in os.scandir(os.path.dirname(sys.argv[1]))))
    await store.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize("umask", ["000", *(pytest.param(each, marks=pytest.mark.slow) for each in ("022", "077"))])
def test_a_new_database_is_private_to_its_owner(path, umask):
    command = [sys.executable, "-c", NEW, str(path), umask]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cuebook.db", "600", "cuebook.db-shm", "600", "cuebook.db-wal", "600"]


def test_an_existing_database_keeps_its_permissions(path):
    path.touch()
    path.chmod(0o664)
    done = subprocess.run([sys.executable, "-c", NEW, str(path), "022"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1::2] == ["664"] * 3


def test_a_folder_is_rejected(tmp_path):
    assert "folder" in refused(tmp_path, InvalidInput)


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert "folder" in refused(tmp_path / "file" / "below" / "cuebook.db", BackendError)


async def read_posts(path):
    store = sqlite_store(str(path))
    try:
        return [post.message for post in await store.posts(OWNER, "c")]
    finally:
        await store.aclose()


async def test_a_damaged_file_raises_without_crashing(path):
    store = sqlite_store(str(path))
    await store.append(OWNER, batch(*drafts(*"abcdef")))
    await store.aclose()
    body = bytearray(path.read_bytes())
    body[8192:] = b"\xa5" * (len(body) - 8192)
    path.write_bytes(body)
    with pytest.raises(BackendError, match="damaged"):
        await read_posts(path)


REFUSED = """
import asyncio, os, sys
from cuebook.storage.store import sqlite_store
from cuebook.errors import BackendError
from cuebook.interfaces.store import Batch
from cuebook.records.memory import Scope
from storage.makers import draft

path = sys.argv[1]
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
try:
    open(path, "ab").close()
    print("not refused")
    sys.exit()
except PermissionError:
    pass

async def main():
    try:
        store = sqlite_store(path)
    except BackendError as error:
        print("start:", error)
        return
    print("read:", [post.message for post in await store.posts(Scope(), "c")])
    try:
        await store.append(Scope(), Batch(conversation="c", drafts=(draft("y", "more"),), now=1.0))
    except BackendError as error:
        print("write:", error)
    print("read:", [post.message for post in await store.posts(Scope(), "c")])
    await store.aclose()

asyncio.run(main())
"""


@pytest.fixture
def refusing():
    """Return a function that makes a path unwritable and opens the store in an unprivileged process.

    The path is outside pytest's folder, which each start of pytest closes to other users.
    """
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    path = folder / "private" / "store.db"
    path.parent.mkdir()
    asyncio.run(_store_one(path))

    def look(*, folder, file):
        path.parent.chmod(folder)
        path.chmod(file)
        try:
            command = [sys.executable, "-c", REFUSED, str(path)]
            told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        finally:
            path.parent.chmod(0o755)
        if "not refused" in told:
            pytest.skip("LOUDLY: nothing is refused to this user; a read-only store was not tested")
        return told

    yield look
    shutil.rmtree(folder)


async def _store_one(path):
    store = sqlite_store(str(path))
    await store.append(OWNER, batch(draft("x", "hello")))
    await store.aclose()


def test_a_read_only_file_is_readable_and_explains_failed_writes(refusing):
    told = refusing(folder=0o777, file=0o444)
    assert told.count("read: ['hello']") == 2
    assert "write: The store cannot be opened or written" in told
    assert "Check the permissions" in told


def test_a_read_only_folder_is_reported(refusing):
    told = refusing(folder=0o555, file=0o444)
    assert told.startswith("start: The store cannot be opened or written")
    assert "Check the permissions" in told


# ---------------------------------------------------------------- files that change under an open store


def _replace(path):
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


CHANGES = {
    "removed": Path.unlink,
    "replaced": _replace,
    "the log removed": lambda path: path.with_name(f"{path.name}-wal").unlink(),
    "its index removed": lambda path: path.with_name(f"{path.name}-shm").unlink(),
    "read-only": lambda path: path.chmod(0o444),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_store_whose_file_changes_refuses_writes_at_once(path, store, change):
    await store.append(OWNER, batch(draft("x", "hello")))
    assert (await store.check())["full"] is False
    CHANGES[change](path)
    before = sorted(path.parent.iterdir())
    for call in (store.append(OWNER, batch(draft("y", "lost"))), store.delete(OWNER, "c"), store.check()):
        with pytest.raises(BackendError, match=change.split()[-1]):
            await call
    assert sorted(path.parent.iterdir()) == before, "no empty database takes its place"
    if change == "read-only":
        path.chmod(0o600)
        await store.append(OWNER, batch(draft("y", "stored")))


async def test_a_reader_that_opens_a_removed_file_does_not_create_it(path, store):
    await store.append(OWNER, batch(draft("x", "hello")))
    path.unlink()  # no reader has opened it yet
    with pytest.raises(BackendError, match="The database was removed while it was open"):
        await store.posts(OWNER, "c")
    assert not path.exists()


@pytest.mark.parametrize("call", ["read", "write"])
async def test_an_error_of_a_replaced_file_names_the_cause(path, store, call):
    def fail(_):
        _replace(path)
        raise sqlite3.OperationalError("disk I/O error")

    await store.append(OWNER, batch(draft("x", "hello")))
    with pytest.raises(BackendError, match="The database was replaced while it was open"):
        await getattr(store.database, call)(fail)


# ---------------------------------------------------------------- full disk


async def fill(store, *, size, start=0):
    """Append posts until the store is full. Return the acknowledged ids."""
    stored = []
    for n in range(start, start + 10_000):
        try:
            await store.append(OWNER, batch(draft(f"x{n}", f"{n} " + LARGE[n % 1000 :][:size])))
        except StoreFull:
            return stored
        stored.append(f"x{n}")
    msg = "it is never full"
    raise AssertionError(msg)


async def check_full(store, path, stored, make_room):
    """Check that a full store keeps acknowledged posts, reads, rejects writes, and recovers with free space."""
    assert [post.id for post in await store.posts(OWNER, "c")] == stored
    assert (await store.scene(OWNER, PathQuery(conversation="c", full_tokens=99))).path
    for _ in range(3):
        with pytest.raises(StoreFull):
            await store.append(OWNER, batch(draft("big", LARGE)))
    assert [post.id for post in await store.posts(OWNER, "c")] == stored
    await make_room()
    await store.append(OWNER, batch(draft("after", "there is room again")))
    assert [post.id for post in await store.posts(OWNER, "c")] == [*stored, "after"]
    assert audit(str(path), integrity=True) == []


async def limit(store, pages):
    """Allow the database `pages` more pages than it has."""

    def set_limit(connection):
        count = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {count + pages}")

    await in_writer(store, set_limit)


@pytest.mark.parametrize("size", [100, 20_000])
async def test_a_full_store_keeps_acknowledged_posts(store, path, size):
    await limit(store, 40)
    stored = await fill(store, size=size)
    assert stored

    async def make_room():
        await limit(store, 4000)

    await check_full(store, path, stored, make_room)


async def test_only_the_request_that_fills_the_disk_fails(store, path):
    """SQLite rolls back the whole transaction. The other requests run again, each in its own."""
    await store.append(OWNER, batch(draft("first", "hi")))
    await limit(store, 30)
    let_go, task = await writer_blocked(store)
    calls = []
    for n in range(6):
        calls.append(asyncio.ensure_future(store.append(OWNER, batch(draft(f"x{n}", "hi"), conversation="d"))))
        if n in (1, 4):
            large = batch(draft(f"big{n}", "word " * 100_000))
            calls.append(asyncio.ensure_future(store.append(OWNER, large)))
    await asyncio.sleep(0)
    let_go.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    await task
    assert [type(each).__name__ for each in answers] == [
        "Appended", "Appended", "StoreFull", "Appended", "Appended", "Appended", "StoreFull", "Appended",
    ]  # fmt: skip
    assert [post.id for post in await store.posts(OWNER, "d")] == [f"x{n}" for n in range(6)]
    assert [post.id for post in await store.posts(OWNER, "c")] == ["first"]
    assert audit(str(path), integrity=True) == []


@contextmanager
def in_tablespace(server: str, place: Path) -> Iterator[str]:
    """Create a database whose files are in a folder. Yield its URL."""
    parts = urlsplit(server)
    place.joinpath("data").mkdir()
    shutil.chown(place / "data", Path(parse_qs(parts.query)["host"][0]).owner())
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{place}/data'")
        connection.execute(f"CREATE DATABASE small TEMPLATE {parts.path[1:]} TABLESPACE small")
        yield parts._replace(path="/small").geturl()
        connection.execute("DROP DATABASE small WITH (FORCE)")
        connection.execute("DROP TABLESPACE small")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def small_disk(request) -> Iterator[tuple[str, Path]]:
    """Yield the path or URL of a database on a small disk, and a file whose deletion frees space there."""
    if request.param == "sqlite":
        with mounted("4m") as place:
            ballast = place / "ballast"
            ballast.write_bytes(bytes(1_500_000))
            yield str(place / "cuebook.db"), ballast
        return
    with mounted("64m") as place, in_tablespace(request.getfixturevalue("postgres_server"), place) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        ballast = place / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(place).free - 800_000))
        yield url, ballast


@pytest.mark.parametrize("synchronous", ["FULL", "OFF"])
@pytest.mark.parametrize("size", [100, 20_000])
async def test_a_full_disk_keeps_acknowledged_posts(small_disk, size, synchronous):
    url, ballast = small_disk
    store = open_store(url, synchronous=synchronous)
    try:
        stored = await fill(store, size=size)
        assert stored

        async def make_room():
            ballast.unlink()

        await check_full(store, url, stored, make_room)
        more = [] if on_server(url) else await fill(store, size=size, start=10_000)
        assert more or on_server(url), "the free space is used"
    finally:
        await store.aclose()
    store = open_store(url)
    try:
        assert [post.id for post in await store.posts(OWNER, "c")] == [*stored, "after", *more]
    finally:
        await store.aclose()


async def test_an_unreadable_checkpoint_blocks_no_turn(store):
    for name in ("a", "b"):
        lease = await begin(store, draft("q", name), conversation=name)
        await store.checkpoint(lease, answer(message=f"half {name}"), now=NOW, lease_s=30)
    await in_writer(store, lambda c: c.execute("UPDATE step SET partial = x'c1' WHERE conversation = 1"))
    assert await store.expire(now=NOW + 100) == 2
    assert [(await store.turn(OWNER, name, 1)).state for name in ("a", "b")] == ["interrupted"] * 2
    assert [post.message for post in await store.posts(OWNER, "b")][-1] == "half b"


async def test_a_turn_on_a_full_disk_can_be_closed_later(store):
    lease = await begin(store, draft("q", "ask"))
    await limit(store, 0)
    with pytest.raises(StoreFull):
        await end(store, lease, answer(message="word " * 100_000))
    await limit(store, 4000)
    assert await end(store, lease, answer(message="word " * 100_000)) == 2


# ---------------------------------------------------------------- failing disk

FAILING = """
import asyncio, sys
from cuebook.storage.store import sqlite_store
from cuebook.errors import BackendError
from cuebook.interfaces.store import Batch
from cuebook.records.memory import Scope
from storage.makers import draft

async def main():
    store = sqlite_store(sys.argv[1])
    for n in range(40):
        try:
            await store.append(Scope(), Batch(conversation="c", drafts=(draft(f"x{n}", "hello"),), now=1.0))
        except BackendError as error:
            print("failed", f"x{n}", error, flush=True)
        else:
            print("stored", f"x{n}", flush=True)
    await store.aclose()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_failed_sync_is_reported_and_loses_no_acknowledged_post(path):
    inject = ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=15..20"]
    command = ["strace", "-f", "-qq", "-o", "/dev/null", *inject, sys.executable, "-c", FAILING, str(path)]
    if shutil.which("strace") is None:
        pytest.skip("LOUDLY: there is no strace here; a failing disk was not tested")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    if "PTRACE" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("LOUDLY: no process can be traced here; a failing disk was not tested")
    lines = done.stdout.splitlines()
    stored = [line.split()[1] for line in lines if line.startswith("stored")]
    failed = [line.split()[1] for line in lines if line.startswith("failed")]
    assert len(stored) + len(failed) == 40
    assert failed
    assert stored[-1] == "x39", "it continues when the disk works again"
    posts = asyncio.run(read_ids(path))
    assert [id_ for id_ in posts if id_ in set(stored)] == stored
    assert audit(str(path), integrity=True) == []


async def read_ids(path):
    store = sqlite_store(str(path))
    try:
        return [post.id for post in await store.posts(OWNER, "c")]
    finally:
        await store.aclose()


# ---------------------------------------------------------------- deletion

CANARY = "xyzzyplugh"


def bytes_left(folder: Path, word: str) -> dict[str, int]:
    """Return the files of a folder that contain a word."""
    return {
        each.name: count
        for each in folder.iterdir()
        if (count := each.read_bytes().lower().count(word.lower().encode()))
    }


async def tell_canary(store, conversation):
    """Store a word in every field that can store text."""
    said = [
        draft(f"{CANARY}-{n}", f"{CANARY} said {n} times " + f"{CANARY} " * size, sender=CANARY, small=f"{CANARY}!",
              parts=(Part("text", CANARY, {CANARY: CANARY}),), wire=CANARY.encode())
        for n, size in enumerate((0, 10, 3000))
    ]  # fmt: skip
    await store.append(OWNER, batch(*said, conversation=conversation))
    remembered = item(CANARY, f"likes {CANARY}", subject=CANARY, name=CANARY)
    assert await store.save_summary(OWNER, result(0, 2, conversation, items=(remembered,)))
    scene = await store.scene(OWNER, PathQuery(conversation=conversation))
    lease = await store.open(
        OWNER,
        opening(
            conversation, draft("q", f"{CANARY}?"), expected_head=3, expected_last_seq=3, parent=scene.parent,
            query_seq=4, texts={"0" * 32: f"block {CANARY}"}, metadata={CANARY: CANARY}, idempotency=(CANARY, b"1"),
        ),
    )  # fmt: skip
    await store.checkpoint(lease, answer(message=f"half {CANARY}"), now=NOW, lease_s=30)
    await end(store, lease, answer(message=f"whole {CANARY}"), error=CANARY)


@pytest.mark.parametrize("others", [0, 30])
async def test_a_deleted_conversation_leaves_no_bytes_in_any_file(store, path, others):
    for n in range(others):
        await store.append(OWNER, batch(draft("x", f"other words {n} " * 50), conversation=f"other{n}"))
    await tell_canary(store, f"c-{CANARY}")
    assert bytes_left(path.parent, CANARY)
    counts = await store.delete(OWNER, f"c-{CANARY}")
    assert (counts["posts"], counts["blobs"], counts["conversation"]) == (5, 2, 1)
    assert bytes_left(path.parent, CANARY) == {}
    assert len((await store.conversations(OWNER, limit=99)).items) == others
    assert audit(str(path), integrity=True) == []


async def test_data_deleted_during_a_read_goes_after_the_read(store, path):
    await tell_canary(store, "c")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM post").fetchone()
        async with asyncio.timeout(60):
            await store.delete(OWNER, "c")
        assert await store.expire(now=NOW) == 0
        assert bytes_left(path.parent, CANARY), "the reader still needs it"
    assert await store.expire(now=NOW) == 0
    assert bytes_left(path.parent, CANARY) == {}


KILLED = """
import asyncio, sys
from cuebook.storage.database.transaction import Failpoints
from cuebook.storage.store import sqlite_store
from cuebook.records.memory import Scope

asyncio.run(sqlite_store(sys.argv[1], failpoints=Failpoints("commit.after:kill")).delete(Scope(), "c"))
"""


async def test_data_deleted_before_a_kill_is_gone_after_restart(path):
    """The process is killed after the deletion is committed and before the log is emptied."""
    store = sqlite_store(str(path))
    await tell_canary(store, "c")
    await store.aclose()
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert bytes_left(path.parent, CANARY), "the process was killed before the log was emptied"
    store = sqlite_store(str(path))
    try:
        assert bytes_left(path.parent, CANARY) == {}
        assert (await store.conversations(OWNER, limit=9)).items == ()
    finally:
        await store.aclose()
