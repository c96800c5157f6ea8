"""Tests of opening and closing a database: errors leave no file open."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from itertools import pairwise

import pytest
from turn_helpers import NAME, config, cue_on

from cuebook import Ask, Cuebook
from cuebook.errors import BackendError, CuebookError, InvalidInput
from cuebook.providers.clock_and_ids import SystemClock, database_key
from cuebook.testing import FrozenClock, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream


def writers() -> int:
    return sum(thread.name == "cuebook-writer" for thread in threading.enumerate())


@pytest.mark.parametrize(
    "wrong", [{"work__model": "model"}, {"work__model": "upstream"}, {"upstream__cache_rule": "x"}]
)
async def test_a_refused_config_leaves_no_file_open(tmp_path, wrong):
    before = writers()
    with pytest.raises(InvalidInput):
        async with Cuebook.open(config(tmp_path, **wrong)):
            pass
    assert writers() == before


async def test_an_error_on_closing_still_closes_everything_else(tmp_path):
    class Stuck(ScriptedModel):
        async def aclose(self):
            raise ZeroDivisionError

    class Closed(ScriptedUpstream):
        shut = False

        async def aclose(self):
            self.shut = True

    before, upstream = writers(), Closed()
    with pytest.raises(ZeroDivisionError):
        async with cue_on(tmp_path, model=Stuck(default="x"), upstream=upstream, worker=True):
            pass
    assert (writers(), upstream.shut) == (before, True)


async def test_a_database_opens_once_at_a_time_and_reopens(tmp_path):
    cue = Cuebook.open(config(tmp_path), model=ScriptedModel(default="Noted."), worker=False)
    for n in (1, 2):
        async with cue:
            with pytest.raises(CuebookError, match="already open"):
                await cue.__aenter__()
            assert (await cue.ask(Ask("hi", NAME))).turn == n


async def test_the_first_call_opens_a_database(tmp_path):
    cue = Cuebook(config(tmp_path), model=ScriptedModel(default="Well."))
    with pytest.raises(CuebookError, match="not open yet"):
        cue.memory.verify_receipt  # noqa: B018  # it cannot wait
    with pytest.raises(AttributeError, match="Turns"):
        cue.turns.other  # noqa: B018
    assert [len(each) for each in await asyncio.gather(cue.conversations.list(), cue.memory.search("x"))] == [0, 0]
    assert (await cue.ask(Ask("Hello", NAME))).window.messages == [{"role": "user", "content": "Hello"}]
    await cue.aclose()
    for closed in (lambda: cue.memory, lambda: cue.services):
        with pytest.raises(CuebookError, match="is closed"):
            closed()
    assert writers() == 0


async def test_an_error_of_the_first_call_names_its_cause_each_time(tmp_path):
    cue = Cuebook(config(tmp_path, work__model="upstream"))
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"work\.model"):
            await cue.conversations.list()


@pytest.mark.parametrize(
    "call",
    [
        "asyncio.run((cue := Cuebook(where)).conversations.list())",
        "(cue := BlockingCuebook(where)).conversations.list()",
    ],
)
@pytest.mark.slow
def test_the_end_of_a_program_closes_a_database(tmp_path, call):
    (tmp_path / "cuebook.toml").touch()
    program = f"import asyncio, sys; from cuebook import *; where = sys.argv[1]; {call}"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {each.name for each in (tmp_path / ".cuebook").iterdir()} == {"cuebook.db", "cuebook.db.key"}


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00", b"abc", b"", "schlüssel".encode()])
def test_a_damaged_key_file_is_named_and_unchanged(tmp_path, damage):
    (tmp_path / "key").write_bytes(damage)
    with pytest.raises(BackendError, match="key' is damaged"):
        database_key(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == damage


def test_a_clock_set_back_runs_slowly_until_it_catches_up():
    wall, ticks = FrozenClock(1000.0), FrozenClock(0.0)
    clock = SystemClock(wall.now, ticks.now)
    times = [clock.now()]

    def run(seconds):
        for each in (wall, ticks):
            each.advance(seconds)
        times.append(clock.now())

    run(5)
    wall.advance(-60)
    for _ in range(14):
        run(10)
    wall.advance(3600)
    run(1)
    assert times == [1000, 1005, *range(1010, 1066, 5), 1075, 1085, 4686]
    assert all(after > before for before, after in pairwise(times))


async def test_an_idempotency_key_is_stored_as_a_keyed_digest(tmp_path):
    """Two databases store the same request as different digests, so nobody can guess its secret."""
    digests = set()
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        async with cue_on(tmp_path / folder) as cue:
            for _ in range(2):
                assert (await cue.ask(Ask("my pin is 1234", NAME, idempotency_key="k"))).turn == 1
        with closing(sqlite3.connect(tmp_path / folder / "cuebook.db")) as connection:
            digests.update(connection.execute("SELECT digest FROM idempotency").fetchall())
    assert len(digests) == 2


def test_settings_beside_a_config_are_refused():
    with pytest.raises(InvalidInput, match="arguments: not used with a Config"):
        Cuebook.open(config(), arguments={"model.name": "gpt-5-mini"})
