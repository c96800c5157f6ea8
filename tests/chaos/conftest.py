"""Fixtures of the fault tests: a project on each database."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from project import Project

from cuebook.storage.database.postgres import stored_key
from storage.databases import KINDS

SECRET = "a long secret"  # of tests


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a new project, on each database in turn. Processes of a test inherit the environment with its secret."""
    if request.param == "sqlite":
        return Project(tmp_path)
    url = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("CUEBOOK_KEY_SECRET", SECRET)
    stored_key(url, SECRET, new=bytes(32))
    return Project(tmp_path, url)
