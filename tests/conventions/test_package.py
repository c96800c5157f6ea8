"""Test of the wheel: it contains every file that Cuebook needs, and works outside the source tree."""

import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from cuebook.app.setup.project_templates import templates

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_wheel_works_outside_the_source_tree(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    [wheel] = tmp_path.glob("cuebook-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUEBOOK_")}
    environment["PYTHONPATH"] = str(tmp_path / "site")

    def run(*arguments: str, stdin: str = "") -> str:
        command = [sys.executable, "-m", "cuebook", *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [sys.executable, "-c", "import cuebook; print(cuebook.__file__)"]
    place = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert place.startswith(str(tmp_path))
    run("init", "project")
    assert len([each for each in (tmp_path / "project").rglob("*") if each.is_file()]) == len(templates())
    run("-C", "project", "chat", "--conversation", "c1", stdin="The ferry leaves at 9:45.\n")
    assert "9:45" in run("-C", "project", "memory", "search", "ferry", "--conversation", "c1")
    command = [sys.executable, "-m", "cuebook", "-C", "project", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1].rstrip("/")
            page = read(f"{address}/")
            assets = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css|svg|woff2)[^"]*)"', page)
            assert assets, page[:500]
            assert all(read(f"{address}{each}") for each in assets)
        finally:
            process.terminate()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310
        return str(answer.read().decode("utf-8", "replace"))
