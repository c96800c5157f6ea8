"""An empty database file for tests: creating its tables takes 10 ms of processor time, writing a copy none."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cuebook.storage.database.sqlite_files import prepare
from cuebook.storage.database.transaction import Failpoints


@cache
def _content() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cuebook.db"
        prepare(str(file), synchronous="OFF", failpoints=Failpoints()).close()
        return file.read_bytes()


def write_empty_database(file: Path) -> None:
    """Write a database without rows, unless there is one."""
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_content())
