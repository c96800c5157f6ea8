"""Import benchmark: the time of `import cuebook` compared with its required packages, and the modules it loads."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

from bench.measure import Figure, Run, compared, interleave
from bench.peers import install

#: Modules that are loaded at first use, never by `import cuebook`.
_LATER = ("openai", "litestar", "uvicorn", "httpx2", "typer", "rich", "vader")
_TIMED = "import time; began = time.process_time(); import {what}; print(time.process_time() - began)"
#: Importing this name loads the package's modules, which are lazy.
_BOOK = "cuebook; cuebook.Cuebook"
_HEAVIEST = 10
_TIMES = 5  # runs of the import profile; the minimum counts, because only wall time is available


def start(run: Run) -> Iterator[Figure]:
    """Yield the CPU seconds of the import statement in a new interpreter with compiled bytecode."""
    sides = interleave(
        run.rounds(15),
        {"bare": _import("asyncio, json, sqlite3"), "ours": _import("cuebook"), "book": _import(_BOOK)},
    )
    yield compared("import cuebook", sides["ours"], "import asyncio, json, sqlite3", sides["bare"])
    yield compared("from cuebook import Cuebook", sides["book"], "import asyncio, json, sqlite3", sides["bare"])
    yield from _peer(run)
    program = f"import sys, {_BOOK}; print(*[name for name in {_LATER} if name in sys.modules])"
    loaded = _python("-c", program).stdout.strip()
    yield Figure(
        "servers, model clients and runtimes loaded",
        loaded or "none",
        "",
        ratio=float(len(loaded.split())),
        bar=0,
        unit="",
    )
    for name, own, with_its in _heaviest():
        yield Figure(f"   {name}", f"{own / 1e3:.1f} ms", f"{with_its / 1e3:.1f} ms with its imports")


def _peer(run: Run) -> Iterator[Figure]:
    python = install(run.disk / "mem0", "mem0ai") if run.peers else None
    if python is None:
        yield Figure(
            "import cuebook", "", "import mem0: installation failed" if run.peers else "import mem0: needs --peers"
        )
        return
    sides = interleave(
        run.rounds(10), {"theirs": _import("mem0", python), "ours": _import("cuebook"), "book": _import(_BOOK)}
    )
    yield compared("import cuebook", sides["ours"], "import mem0", sides["theirs"], bar=0.1)
    yield compared("from cuebook import Cuebook", sides["book"], "import mem0", sides["theirs"], bar=0.1)


def _import(what: str, python: str = sys.executable) -> Callable[[], float]:
    return lambda: float(_run(python, "-c", _TIMED.format(what=what)).stdout)


def _heaviest() -> list[tuple[str, int, int]]:
    """Return the slowest modules: name, own microseconds, and microseconds including imports."""
    times: dict[str, tuple[int, int]] = {}
    for _ in range(_TIMES):
        lines = _python("-X", "importtime", "-c", f"import {_BOOK}").stderr.splitlines()
        rows = [line.removeprefix("import time:").split("|") for line in lines if line.startswith("import time:")]
        for own, total, name in rows:
            if own.strip().isdecimal():
                least = times.get(name.strip(), (int(own), int(total)))
                times[name.strip()] = (min(least[0], int(own)), min(least[1], int(total)))
    return sorted(((name, *least) for name, least in times.items()), key=lambda row: -row[1])[:_HEAVIEST]


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(sys.executable, *arguments)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    quiet = {**os.environ, "MEM0_TELEMETRY": "False"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=quiet)
