"""Runs the rows asked for and prints each as it is done. Always ends with 0: a figure is read, not passed."""

import argparse
import time
from collections.abc import Callable, Iterator

from bench.append import append, durable, growth
from bench.assemble import assemble
from bench.cache import cache
from bench.load import load
from bench.measure import Figure, Run, machine, run_in_folders
from bench.recall import recall
from bench.redundancy import redundancy, relevance
from bench.relay import relay
from bench.shadow import shadow
from bench.start import start
from bench.turn import turn
from bench.vectors import vectors

Row = Callable[[Run], Iterator[Figure]]

ROWS: dict[str, tuple[str, Row]] = {
    "append": ("Append one post (SQLite, in memory, synchronous=FULL; CPU)", append),
    "durable": ("16 concurrent durable appends (SQLite, on disk, synchronous=FULL)", durable),
    "growth": ("Append as a conversation grows", growth),
    "load": ("Load the last 30 posts", load),
    "assemble": ("Assemble a full window, no summary (CPU)", assemble),
    "turn": ("A whole turn but for the model (in memory, synchronous=FULL)", turn),
    "relay": ("The server on loopback beside a bare one (its CPU)", relay),
    "shadow": ("Time to the first token through shadow mode, 32 streams at once", shadow),
    "cache": ("The provider's cache over 60 turns of an agent, simulated", cache),
    "redundancy": ("Redundancy: repeated messages by exact Jaccard ≥ 0.9 (CPU)", redundancy),
    "relevance": ("Relevance re-scoring of all posts (CPU)", relevance),
    "vectors": ("Vectors of one scope searched", vectors),
    "recall": ("What memory finds, without a model, with and without embeddings", recall),
    "import": ("import cuebook", start),
}


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)}; all without")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and a smaller store")
    parser.add_argument("--peers", action="store_true", help="also against other libraries, installed for the run")
    given = parser.parse_args()
    unknown = [name for name in given.rows if name not in ROWS]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; there are {', '.join(ROWS)}")
    began = time.monotonic()
    with run_in_folders(quick=given.quick, peers=given.peers) as run:
        print(machine(run), flush=True)
        for name in given.rows or ROWS:
            title, row = ROWS[name]
            print(f"\n{name}: {title}", flush=True)
            before = time.monotonic()
            for figure in row(run):
                print(_line(figure), flush=True)
            print(f"   {time.monotonic() - before:.0f} s", flush=True)
    print(f"\n{time.monotonic() - began:.0f} s in all")


def _line(figure: Figure) -> str:
    parts = [f"   {figure.what:<52} {figure.ours:>9}"]
    if figure.against:
        parts.append(f"{figure.against:<44}")
    if figure.ratio is not None:
        ratio = f"{figure.ratio:.3g}{figure.unit}"
        if figure.spread:
            ratio += f" [{figure.spread[0]:.3g}-{figure.spread[1]:.3g}]"
        parts.append(f"{ratio:<20}")
    if figure.bar is not None:
        parts.append(f"bar {'≥' if figure.least else '≤'} {figure.bar:g}: {figure.verdict}")
    if figure.note:
        parts.append(figure.note)
    return "  ".join(parts).rstrip()


if __name__ == "__main__":
    main()
