"""Fixtures of the fault tests: databases and projects of both kinds, and the table of what was counted."""

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fault_table import FaultCount, fault_table
from msgspec import structs
from project import Project

from cuebook.storage.database.postgres_key import stored_key
from storage.databases import KINDS, NOT_SYNCED

SECRET = "a long secret"  # of tests


@pytest.fixture(params=KINDS)
def database_kind(request: pytest.FixtureRequest) -> str:
    """Return each kind of database in turn."""
    kind: str = request.param
    return kind


@pytest.fixture
def new_database(request: pytest.FixtureRequest, database_kind: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that creates a database and returns its path or URL.

    Workers create missing tables, with `tables=False` all of them. With `synced=False`, commits do not wait for a disk,
    and a file is in memory if the machine has a file system there.
    """
    if database_kind == "postgresql":
        create = request.getfixturevalue("new_postgres_url")

        def create_on_server(*, synced: bool = True, tables: bool = True) -> str:
            url = create(tables=tables)
            return url if synced else f"{url}{'&' if '?' in url else '?'}{NOT_SYNCED}"

        yield create_on_server
        return
    memory, number = Path("/dev/shm"), iter(range(1 << 30))  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield lambda *, synced=True, tables=True: str(
            Path(tmp_path if synced else folder) / f"cuebook-{next(number)}.db"
        )


@pytest.fixture
def project(
    request: pytest.FixtureRequest, database_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """Return a new project, on each database in turn. Processes of a test inherit the environment with its secret."""
    if database_kind == "sqlite":
        return Project(tmp_path)
    url = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("CUEBOOK_KEY_SECRET", SECRET)
    stored_key(url, SECRET, new=bytes(32))
    return Project(tmp_path, url)


@pytest.fixture
def record_fault(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that adds counts of a test to the table."""

    def record(fault: str, counts: Mapping[str, int], *, runs: int = 1, database: str = "") -> None:
        kind = database or request.getfixturevalue("database_kind")
        names = ("acknowledged", "lost", "doubled", "gaps")
        row = FaultCount(fault, kind, runs, *(counts.get(name, 0) for name in names))
        request.node.user_properties.append(("fault", structs.asdict(row)))

    return record


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table of the tests that ran."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, ())]
    counts = [row for each in reports if each.when == "call" for name, row in each.user_properties if name == "fault"]
    if counts:
        terminalreporter.write_line("\n" + "\n".join(fault_table(counts)))
