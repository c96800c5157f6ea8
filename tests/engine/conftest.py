"""Make the helper modules of this folder importable, freeze the clock, and give an empty database of each kind."""

import sys
from pathlib import Path

import pytest

from cuebook.storage.database.postgres_key import stored_key
from cuebook.testing import FrozenClock

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path or URL of an empty database, with a key."""
    if request.param == "sqlite":
        return str(tmp_path / "cuebook.db")
    server: str = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("CUEBOOK_KEY_SECRET", "a long secret")
    stored_key(server, "a long secret", new=bytes(32))
    return server
