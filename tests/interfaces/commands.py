"""Test helpers that run the `cuebook` command in a new process or in this one."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuebook.cli import main as cli

CUEBOOK = str(Path(sys.executable).with_name("cuebook"))


def environment(**variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CUEBOOK_", "COV"))}
    inherited.pop("NO_COLOR", None)
    return inherited | {"COLUMNS": "80", "LANG": "C.UTF-8"} | variables


def run_process(
    *arguments: str, cwd: Path, stdin: str | bytes = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process. This costs 0.3 CPU seconds."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [CUEBOOK, *arguments],
        cwd=cwd,
        input=data,
        capture_output=True,
        env=environment(**variables),
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def cuebook(*arguments: str, cwd: Path, stdin: str | bytes = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process with its own input, environment and directory."""
    before, terminal = dict(os.environ), sys.stdin
    out, err = io.StringIO(), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), "utf-8")
    _replace_environment(environment(**variables))
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(list(arguments))
    finally:
        sys.stdin = terminal
        _replace_environment(before)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def _replace_environment(wanted: dict[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


class CommandRunner:
    """Runs the command in this process, in a project directory, without starting Python each time."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        exit_code = cli.run(["-C", str(self.folder), *arguments])
        out, err = self._capsys.readouterr()
        assert (exit_code, err.count("\n")) == (code, 0 if code in (0, 1) and not err else 1), err
        return out if exit_code == 0 or not err else err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


def write_messages(folder: Path, *messages: tuple[str, str], name: str = "talk.json") -> str:
    file = folder / name
    file.write_text(json.dumps([{"role": role, "content": content} for role, content in messages]))
    return str(file)
