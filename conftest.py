"""Parts of the suite, and tests of the documentation: every Python and console block of README.md and docs/ runs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

#: Folders that only `make test-all` runs. Single slow tests are marked with `@pytest.mark.slow`.
SLOW_FOLDERS = ("chaos", "page")


def run_console(example: Example) -> str | None:
    """Run the lines after `$ ` as one script in a new folder. The block fails with its first failing line."""
    script = "\n".join(line[2:] for line in example.parsed.splitlines() if line.startswith("$ "))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603
            ["bash", "-euo", "pipefail", "-c", script],  # noqa: S607
            cwd=folder,
            env={**os.environ, "PATH": path, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    return f"{script}\nexited {done.returncode}\n{done.stdout}{done.stderr}" if done.returncode else None


class Part:
    """Collects one of several parts of the fast test files, of equal size. README.md is in each: pytest needs it.

    Neighbors import the same libraries, so a part is a range of the sorted files. Those of the server are last, so
    that of two parts only one imports it and the libraries of its clients.
    """

    def __init__(self, root: Path, number: int, count: int) -> None:
        files = [file for file in root.glob("tests/**/test_*.py") if file.parent.name not in SLOW_FOLDERS]
        files.sort(key=lambda file: (file.parent.name in ("conventions", "interfaces"), file))
        ends = list(accumulate(file.stat().st_size for file in files))
        self._files = {
            file for file, end in zip(files, ends, strict=True) if (end - 1) * count // ends[-1] == number - 1
        }
        self._has_documents = number == 1

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        collectors = yield
        mine = file_path in self._files or (self._has_documents and file_path.suffix == ".md")
        return collectors if mine or parent.session.isinitpath(file_path) else []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that scripts/test uses to run parts at the same time."""
    parser.addoption("--part", metavar="N/COUNT", help="Run the N-th of COUNT parts of the test files.")


def pytest_configure(config: pytest.Config) -> None:
    """Collect one part of the files if `--part` names it."""
    if part := config.getoption("--part"):
        number, count = map(int, part.split("/"))
        config.pluginmanager.register(Part(config.rootpath, number, count))
        _stay_on_one_core(number, count)


def _stay_on_one_core(number: int, count: int) -> None:
    """Give each part its own core, where the system can. Waking a thread on another core costs a tenth more."""
    if hasattr(os, "sched_setaffinity") and len(cores := sorted(os.sched_getaffinity(0))) >= count:
        os.sched_setaffinity(0, {cores[number - 1]})


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark slow folders and examples that start processes, and run the examples of a document in order.

    Later examples build on earlier ones, whatever order the tests are in. The same is true of tests marked `in_order`.
    """
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
    examples = [item for item in items if isinstance(item, SybilItem)]
    starting = {item.path for item in examples if "subprocess.Popen" in str(item.example.parsed)}
    for item in examples:
        if item.path in starting or item.example.region.evaluator is run_console:
            item.add_marker(pytest.mark.slow)
    yield
    places = [place for place, item in enumerate(items) if isinstance(item, SybilItem) or "in_order" in item.keywords]
    ordered = sorted((items[place] for place in places), key=lambda item: (str(item.path), _line(item), item.name))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _line(item: pytest.Item) -> int:
    return item.location[1] or 0


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser(), CodeBlockParser(language="console", evaluator=run_console)],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    exclude="docs/reference/*.md",  # generated; tests/interfaces/test_api_examples.py runs their examples
).pytest()
