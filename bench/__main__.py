"""Run benchmark rows and print each figure as it is measured. The exit status is always 0."""

import argparse
import time
from collections.abc import Callable, Iterator

from bench.append import append, durable, growth
from bench.assemble import assemble
from bench.blocked import blocked, foreground
from bench.cache import cache
from bench.gateway import gateway
from bench.load import load
from bench.measure import Figure, Run, machine, run_in_folders
from bench.memories import memories
from bench.recall import recall
from bench.redundancy import redundancy, relevance
from bench.relay import relay
from bench.scale import scale
from bench.shadow import shadow
from bench.start import start
from bench.turn import turn
from bench.vectors import vectors

Row = Callable[[Run], Iterator[Figure]]

ROWS: dict[str, tuple[str, Row]] = {
    "append": ("Append one post (SQLite in memory, synchronous=FULL), CPU", append),
    "durable": ("16 concurrent durable appends (SQLite on disk, synchronous=FULL)", durable),
    "growth": ("Append one post to a long conversation, CPU", growth),
    "load": ("Load the last 30 posts of a long conversation", load),
    "assemble": ("Assemble a window of up to 190,000 tokens without a summary, CPU", assemble),
    "turn": ("Overhead of a whole turn: everything except the model", turn),
    "relay": ("HTTP JSON read, and proxy relay of an SSE event, server CPU", relay),
    "shadow": ("Added time to first token, p95, 32 streams, shadow mode and live", shadow),
    "blocked": ("The longest wait of 20 polling clients beside one large request", blocked),
    "foreground": ("A search and a prompt beside the background jobs of imported posts", foreground),
    "gateway": ("Cuebook and other proxies: requests per second, and added time to the first token", gateway),
    "cache": ("The provider's cache: a 60-turn conversation under each provider's rules, simulated", cache),
    "redundancy": ("Redundancy, exact Jaccard ≥ 0.9, CPU", redundancy),
    "relevance": ("Relevance re-scoring, CPU", relevance),
    "vectors": ("Scoped vector search; with --peers also hybrid search", vectors),
    "scale": ("PostgreSQL: turns, two processes, the memories of many owners; with --peers also many servers", scale),
    "recall": ("Retrieval: evidence recall without a model, with and without embeddings", recall),
    "memories": ("Memories of a user: recall, precision and empty answers, for 60 questions each", memories),
    "import": ("Import time of cuebook, CPU", start),
}
_EXAMPLES = """\
examples:
  scripts/bench --quick            run all rows in a few minutes
  scripts/bench append cache       run two rows
  scripts/bench vectors --peers    measure other libraries too
  RECALL_DATA=locomo.json scripts/bench recall --peers    read a data set of your own"""


def main() -> None:
    """Parse the arguments and run the rows."""
    width = max(map(len, ROWS))
    titles = "\n".join(f"  {name:<{width}}  {title}" for name, (title, _) in ROWS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        epilog=f"rows:\n{titles}\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="run this row; default: all rows")
    parser.add_argument("--quick", action="store_true", help="run fewer rounds on smaller stores")
    parser.add_argument("--peers", action="store_true", help="install and measure other libraries too")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.rows if name not in ROWS]
    if unknown:
        parser.error(f"Unknown row {unknown[0]!r}. Available: {', '.join(ROWS)}.")
    began = time.monotonic()
    with run_in_folders(quick=arguments.quick, peers=arguments.peers) as run:
        print(machine(run), flush=True)
        for name in arguments.rows or ROWS:
            title, row = ROWS[name]
            print(f"\n{name}: {title}", flush=True)
            row_began = time.monotonic()
            for figure in row(run):
                print(_line(figure), flush=True)
            print(f"   {time.monotonic() - row_began:.0f} s", flush=True)
    print(f"\n{time.monotonic() - began:.0f} s in total")


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
