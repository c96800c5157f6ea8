"""The documentation is a test: every Python block and every console block of README.md and docs/ runs."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser


def run_console(example: Example) -> str | None:
    """Run the lines behind `$ ` as one script in a fresh folder; the first that fails fails the block."""
    script = "\n".join(line[2:] for line in example.parsed.splitlines() if line.startswith("$ "))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603
            ["bash", "-euo", "pipefail", "-c", script],  # noqa: S607
            cwd=folder,
            env={**os.environ, "PATH": path, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    return f"{script}\nexited {done.returncode}\n{done.stdout}{done.stderr}" if done.returncode else None


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser(), CodeBlockParser(language="console", evaluator=run_console)],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
).pytest()
