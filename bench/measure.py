"""Measurement tools: alternating rounds, medians, and ratios of two sides of one run."""

import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

Round = Callable[[], float]  # runs one round and returns the seconds (or another quantity) of one operation
AsyncRound = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Sample:
    """The results of the rounds of one side."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Figure:
    """One line of the report: two sides, their ratio, and its target."""

    what: str
    ours: str
    against: str = ""
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    bar: float | None = None
    least: bool = False  # the target is a minimum of the ratio, not a maximum
    unit: str = "×"
    note: str = ""

    @property
    def verdict(self) -> str:
        """Return whether the target is met; empty without a target."""
        if self.bar is None or self.ratio is None:
            return ""
        met = self.ratio >= self.bar if self.least else self.ratio <= self.bar
        return "met" if met else "MISSED"


@dataclass
class Run:
    """One benchmark run: its options, and the folders of its files."""

    quick: bool
    peers: bool
    disk: Path
    fast: Path  # on tmpfs if available
    stores: dict[tuple[int, int], Path] = field(default_factory=dict)  # posts, words -> the store created for them

    def rounds(self, usual: int) -> int:
        """Return the number of rounds; fewer with `--quick`."""
        return max(5, usual // 5) if self.quick else usual

    @property
    def many(self) -> int:
        """The number of posts in the largest store."""
        return 20_000 if self.quick else 100_000


@contextmanager
def run_in_folders(*, quick: bool, peers: bool) -> Iterator[Run]:
    """Yield a run with two temporary folders: one on the disk, one in memory."""
    memory = "/dev/shm"  # noqa: S108  # the name of Linux's tmpfs
    usable = os.path.isdir(memory) and os.access(memory, os.W_OK)  # noqa: PTH112
    with (
        tempfile.TemporaryDirectory(prefix="cuebook-bench-") as disk,
        tempfile.TemporaryDirectory(prefix="cuebook-bench-", dir=memory if usable else None) as fast,
    ):
        yield Run(quick=quick, peers=peers, disk=Path(disk), fast=Path(fast))


def interleave(rounds: int, sides: Mapping[str, Round]) -> dict[str, Sample]:
    """Run the rounds of all sides in turn, with a rotating start. The first round is a warm-up."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in _in_turn(list(sides), number):
            values[name].append(sides[name]())
    return {name: Sample(tuple(each[1:])) for name, each in values.items()}


async def interleave_async(rounds: int, sides: Mapping[str, AsyncRound]) -> dict[str, Sample]:
    """Run asynchronous rounds like `interleave`."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in _in_turn(list(sides), number):
            values[name].append(await sides[name]())
    return {name: Sample(tuple(each[1:])) for name, each in values.items()}


def _in_turn(names: list[str], number: int) -> list[str]:
    first = number % len(names)
    return names[first:] + names[:first]


def compared(
    what: str,
    ours: Sample,
    name: str,
    against: Sample,
    *,
    bar: float | None = None,
    inverse: bool = False,
    note: str = "",
) -> Figure:
    """Return two sides as a figure: the ratio ours/theirs, or with `inverse` our speedup."""
    above, below = (against, ours) if inverse else (ours, against)
    ratios = [one / other for one, other in zip(above.values, below.values, strict=True) if other]
    return Figure(
        what=what,
        ours=shown(ours.median),
        against=f"{name} {shown(against.median)}",
        ratio=above.median / below.median,
        spread=quartiles(ratios) if ratios else None,
        bar=bar,
        least=inverse,
        note=note,
    )


def quartiles(values: Iterable[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]


def cpu(times: int, do: Callable[[], object]) -> float:
    """Return the CPU seconds of one call in this thread, averaged over `times`. Other processes do not count."""
    began = time.thread_time()
    for _ in range(times):
        do()
    return (time.thread_time() - began) / times


def wall(times: int, do: Callable[[], object]) -> float:
    """Return the wall seconds of one call, averaged over `times`."""
    began = time.perf_counter()
    for _ in range(times):
        do()
    return (time.perf_counter() - began) / times


def shown(seconds: float) -> str:
    """Return a time in a readable unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def fsync_seconds(folder: Path, *, times: int = 40) -> float:
    """Return the median seconds of one fdatasync of a new page."""
    took = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def machine(run: Run) -> str:
    """Return a description of the machine."""
    model = "unknown CPU"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    load = os.getloadavg()[0]
    return (
        f"{model}, {cores} cores, load {load:.1f} · Python {sys.version.split()[0]} · SQLite {sqlite3.sqlite_version}"
        f" · disk {_kind(run.disk)} (fdatasync {shown(fsync_seconds(run.disk))}), memory {_kind(run.fast)}"
    )


def _kind(folder: Path) -> str:
    """Return the file system of a folder: that of the longest mount point above it."""
    mounts = Path("/proc/mounts")
    best, kind = "", "unknown"
    for line in mounts.read_text().splitlines() if mounts.exists() else ():
        point, name = line.split()[1:3]
        inside = str(folder).startswith(point.rstrip("/") + "/")
        if inside and len(point) > len(best):
            best, kind = point, name
    return kind
