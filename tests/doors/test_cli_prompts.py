"""A prompt's life by command line alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cuebook.cli.main import run

ID = "persona/brief"


@pytest.fixture
def cuebook(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run commands in a fresh project; answers with the exit code and what was printed."""
    monkeypatch.setenv("COLUMNS", "160")

    def one(*arguments: str) -> tuple[int, str]:
        code = run(list(arguments))
        said = capsys.readouterr()
        return code, said.out + said.err

    assert one("init", str(tmp_path / "book"))[0] == 0
    monkeypatch.chdir(tmp_path / "book")
    return one


def test_a_prompts_life(cuebook, tmp_path):
    code, said = cuebook("prompt", "new", ID, "--section", "body=Be brief with $who.", "--param", "who")
    assert (code, said.strip()) == (0, f"prompt:{ID}@main:1 (1.0.0)")
    assert cuebook("prompt", "test", ID, "--param", "who=Ann")[1].strip() == "Be brief with Ann."
    code, said = cuebook("prompt", "test", ID)
    assert code == 1
    assert "'who'" in said
    cuebook("prompt", "new", ID, "--section", "body=Be very brief with $who.")
    code, said = cuebook("prompt", "diff", ID, "1", "2")
    assert code == 0
    assert "-Be brief with $who." in said
    assert "+Be very brief with $who." in said
    assert cuebook("prompt", "branch", ID, "warm")[0] == 0
    assert cuebook("prompt", "new", ID, "--branch", "warm", "--section", "body=Be warm.")[0] == 0
    code, said = cuebook("prompt", "observe", ID, "--sentiment", "1", "--outcome", "success")
    assert said.startswith("score 1.000; edge weight 0.550")
    code, said = cuebook("prompt", "select", ID, "--seed", "3", "--explain")
    assert code == 0
    assert "0.550" in said
    assert cuebook("prompt", "label", ID, "production")[1].strip() == f"production → {ID}@main:2"
    code, said = cuebook("prompt", "rollback", ID, "--reason", "too brief")
    assert f"version 1 of {ID} is active on main" in said
    log = cuebook("prompt", "log", ID)[1]
    assert [word in log for word in ("rollback", "label", "branch", "write")] == [True] * 4
    assert ID in cuebook("prompt", "list", "--prefix", "persona/")[1]
    assert cuebook("audit", "verify")[0] == 0
    with closing(sqlite3.connect(next((tmp_path / "book").rglob("*.db")))) as file:
        file.execute(
            "UPDATE audit_record SET body = CAST(replace(CAST(body AS TEXT), ?, 'x') AS BLOB) WHERE seq = 8", [ID]
        )
        file.commit()
    code, said = cuebook("audit", "verify")
    assert code == 1
    assert "record 8 is not as it was written" in said


def test_files_and_book_are_two_forms_of_one_thing(cuebook):
    assert cuebook("prompt", "list")[1].count("_meta/") == 4, "pushed when the project was opened"
    assert cuebook("prompt", "pull")[0] == 0
    file = Path("prompts/_meta/concise.md")
    before = file.read_bytes()
    assert cuebook("prompt", "drift")[0] == 0
    file.write_bytes(before.replace(b"---\n", b"---\n", 1) + b"\nAlways.\n")
    assert cuebook("prompt", "push", "--dry-run")[0] == 0
    assert cuebook("prompt", "show", "_meta/concise")[1].rstrip().endswith("Always.")
    cuebook("prompt", "new", "_meta/concise", "--section", "body=One line.")
    assert cuebook("prompt", "drift")[0] == 1
    assert cuebook("prompt", "pull")[0] == 0
    assert b"One line." in file.read_bytes()
    assert cuebook("prompt", "drift")[0] == 0


@pytest.mark.parametrize("odd", ["../etc", "con", "a//b", "%2e%2e/x", "Ä"])
def test_odd_ids_are_refused_in_a_line(cuebook, odd):
    code, said = cuebook("prompt", "new", odd, "--section", "body=x")
    assert code == 1
    assert len(said.strip().splitlines()) == 1
