"""How other libraries come into a run: each into an environment of its own, thrown away with the run's folder."""

import subprocess
import sys
from pathlib import Path


def install(folder: Path, *packages: str) -> str | None:
    """Put packages into an environment of their own; None where that does not work."""
    uv = Path(sys.executable).with_name("uv")
    python = str(folder / "bin" / "python")
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
