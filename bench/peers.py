"""Installs other libraries for a run: each into its own environment, deleted with the run's folder."""

import os
import subprocess
import sys
from pathlib import Path


def install(folder: Path, *packages: str) -> str | None:
    """Install packages into their own environment, once. Return None if that fails."""
    uv = Path(sys.executable).with_name("uv")
    python = str(folder / "bin" / "python")
    if Path(python).exists():
        return python
    steps = (
        [str(uv), "venv", "--quiet", str(folder)],
        [str(uv), "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *packages],
    )
    try:
        for step in steps:
            subprocess.run(step, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError):
        return None
    return python


def run_peer(python: str, package: str, *arguments: str) -> str | None:
    """Search with another library in its own process (`peer_vectors`). Return its last line, or None if it failed."""
    quiet = {**os.environ, "ANONYMIZED_TELEMETRY": "False"}
    program = str(Path(__file__).with_name("peer_vectors.py"))
    try:
        done = subprocess.run(
            [python, program, package, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
            env=quiet,
        )
    except subprocess.TimeoutExpired:
        return None
    lines = done.stdout.splitlines()
    return lines[-1] if done.returncode == 0 and lines else None
