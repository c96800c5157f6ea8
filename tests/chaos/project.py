"""A project of fault tests, on either database: its settings, its processes and its bytes."""

import os
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from cuebook import Cuebook
from cuebook.config import Config, build
from storage.audit import audit
from storage.databases import content_of, database_files, on_server, wait_until_unused


class Project(Struct, frozen=True):
    """A folder, and the `store.url` of its database."""

    folder: Path
    url: str = "cuebook.db"

    @property
    def on_server(self) -> bool:
        """Return whether the database is on a PostgreSQL server."""
        return on_server(self.url)

    @property
    def database(self) -> str:
        """Return the path or URL of the database."""
        return self.url if self.on_server else str(self.folder / self.url)

    def config(self, **arguments: object) -> Config:
        """Return the settings, and those of `arguments`: `work_lease_s` is work.lease_s."""
        settings = {name.replace("_", ".", 1): value for name, value in arguments.items()}
        return build(arguments={"store.url": self.url, **settings}, folder=str(self.folder))

    def open(self, *, worker: bool = False, **options: object) -> Cuebook:
        """Return the Cuebook of this project, without background jobs."""
        return Cuebook.open(self.config(), worker=worker, **options)  # type: ignore[arg-type]

    def command(self, program: Path, *arguments: str) -> list[str]:
        """Return the command of a process of this project."""
        return [sys.executable, str(program), str(self.folder), self.url, *arguments]

    def run_until_killed(self, program: Path, failpoint: str, *arguments: str) -> list[str]:
        """Run a process that a failpoint kills. Return its lines. Blocks."""
        done = subprocess.run(
            self.command(program, *arguments), env={**os.environ, "CUEBOOK_FAILPOINT": failpoint}, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == -9, done.stderr
        wait_until_unused(self.database)
        return done.stdout.split("\n")[:-1]

    def audit(self) -> list[str]:
        """Return the problems of the database's rows and pages."""
        return audit(self.database, integrity=True)

    def files_with(self, *words: str) -> set[str]:
        """Return the files that contain a word, relative to the folder; "database" for those of the database."""
        database = set(database_files(self.database))
        needles = [word.lower().encode() for word in words]
        return {
            "database" if file in database else str(file.relative_to(self.folder))
            for file in {*database, *(file for file in self.folder.rglob("*") if file.is_file())}
            if any(needle in content_of(file).lower() for needle in needles)
        }
