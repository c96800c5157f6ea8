"""Prints measures of size, wording and cost of the source, one per line."""

import ast
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "cuebook"
VERBS = ("Give", "Gives", "Tell", "Tells", "Say", "Says")
PARTICIPLES = frozenset(
    "told heard given said known found kept held meant opened placed shown spent taken whose own once again".split()
)
#: Phrases of earlier texts that read like a translation. Texts must not contain them.
PHRASES = (
    "what was said", "what was told", "the model was told", "you risk nothing", "in front of your model",
    "what it notices", "when the past is", "what one tells", "narrower", "if it had been otherwise",
    "beside another turn", "rendered again", "what was tuned", "nobody changed it", "opens nothing",
    "kept nowhere", "looks at it", "speaks first", "cannot be had", "everything a book needs", "is due behind",
    "with everything remembered", "what points at", "how often it had", "of this user; of", "there is no such",
)  # fmt: skip
MOST_WORDS = 30
TABLE = re.compile("CREATE TABLE")
#: The pattern that a module uses to parse the message of msgspec's decoder.
DECODER_SENTENCE = re.compile(r'" - at `')


SERVER = """
import asyncio
from cuebook import Config, Cuebook
from cuebook.server.app import create_app

async def main():
    async with Cuebook.open(Config()) as cue:
        create_app(cue)

asyncio.run(main())
"""


#: Prints how many functions and files of the package one `ask` and one `/v1` call pass through. A first pair of calls
#: warms the process up, so that work done once does not count. The second pair uses a fresh database.
TURN = """
import asyncio, json, sys, threading
from cuebook import Ask, Cuebook
from cuebook.app.cuebook import RelayCall

touched, tracing = set(), False

def trace(frame, event, _):
    code = frame.f_code
    if tracing and event == "call" and "/src/cuebook/" in code.co_filename and not code.co_name.startswith("<"):
        touched.add((code.co_filename, code.co_qualname))

async def calls():
    global tracing
    async with Cuebook.open(worker=False) as cue:
        tracing = calls.warm
        await cue.ask(Ask("Hello", "one"))
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).encode()
        async for _ in cue.relay(RelayCall(body=body, headers={}, conversation="two")):
            pass
        tracing = False

threading.setprofile(trace)
sys.setprofile(trace)
for calls.warm in (False, True):
    asyncio.run(calls())
print(len(touched), len({name for name, _ in touched}))
"""


def tracked(pattern: str) -> list[Path]:
    """Return the files git tracks or would track; generated ones are ignored by git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [path for line in listed if line and (path := ROOT / line).exists()]


def cpu_ms(*command: str, runs: int = 5) -> float:
    """Return the least CPU time of a process, in milliseconds."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime)"
    )
    command = (sys.executable, "-c", program, *command)
    spent = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(runs))
    return 1000 * min(map(float, spent))


def size(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, object]]:
    """Yield the measures of size."""
    folders = Counter(path.parent for path in trees)
    largest, most = folders.most_common(1)[0]
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    methods = sum(any(isinstance(each, functions) for each in node.body) for node in classes)
    yield "product lines, without generated code", sum(len(path.read_text("utf-8").splitlines()) for path in trees)
    yield "modules", len(trees)
    yield "modules in the largest folder", f"{most} ({largest.relative_to(PACKAGE)}/)"
    yield "classes", len(classes)
    yield "classes with methods", methods
    sources = [path for path in tracked("src") if path.suffix in {".py", ".sql"}]
    yield "sources of the schema", sum(bool(TABLE.search(path.read_text("utf-8"))) for path in sources)
    yield (
        "document checkers",
        sum(bool(DECODER_SENTENCE.search(path.read_text("utf-8"))) or path.name == "validate.py" for path in trees),
    )


def words(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, object]]:
    """Yield the measures of names and wording."""
    places: dict[str, set[Path]] = defaultdict(set)
    bare, opening, documented, lazy = 0, 0, 0, 0
    for path, tree in trees.items():
        bare += path.stem in PARTICIPLES
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(path)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                bare += node.name in PARTICIPLES
                lazy += sum(
                    isinstance(each, ast.ImportFrom) and (each.module or "").startswith("cuebook")
                    for each in ast.walk(node)
                )
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node)
                documented += text is not None
                opening += text is not None and text.split(maxsplit=1)[0].strip(",.") in VERBS
    yield "class names with two or more meanings", sum(len(paths) > 1 for paths in places.values())
    yield "functions and modules named with a bare participle", bare
    yield "docstrings that open with Give, Tell or Say", f"{opening} of {documented}"
    yield "imports of our own modules inside functions", lazy
    texts = [path for pattern in ("README.md", "docs/*.md", "src") for path in tracked(pattern)]
    joined = [path.read_text("utf-8").lower() for path in texts if path.suffix in {".md", ".py", ".html"}]
    yield "phrases that read like a translation", sum(text.count(phrase) for text in joined for phrase in PHRASES)
    pages = [path for path in texts if path.suffix == ".md" and "src" not in path.relative_to(ROOT).parts]
    every = [sentence for path in pages for sentence in prose(path)]
    long = sum(len(sentence.split()) > MOST_WORDS for sentence in every)
    yield (
        f"sentences over {MOST_WORDS} words in README and docs",
        f"{long} of {len(every)} ({100 * long / len(every):.1f} %)",
    )


def prose(path: Path) -> Iterator[str]:
    """Yield the sentences of a page, without code and tables."""
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. )", text):
        if not block.lstrip().startswith(("|", "#", "!", "<")):
            yield from (each for each in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split())) if each)


def turn() -> Iterator[tuple[str, object]]:
    """Yield the measure of what a reader of one turn has to follow."""
    ran = subprocess.run([sys.executable, "-c", TURN], capture_output=True, text=True, check=True)
    names, files = ran.stdout.split()
    yield "names, files that one ask and one /v1 call touch", f"{names}, {files}"


def costs() -> Iterator[tuple[str, object]]:
    """Yield the measures of time. Each is CPU time, so a busy machine changes them little."""
    recorded = ROOT / ".cache" / "test-cpu-seconds"
    yield "make test, CPU seconds", recorded.read_text("utf-8").strip() if recorded.exists() else "run make test first"
    bare = cpu_ms(sys.executable, "-c", "")
    yield "import cuebook, CPU ms", round(cpu_ms(sys.executable, "-c", "import cuebook") - bare, 1)
    yield "server start, CPU ms", round(cpu_ms(sys.executable, "-c", SERVER) - bare)


def main() -> None:
    """Print all measures."""
    began = time.monotonic()
    trees = {path: ast.parse(path.read_text("utf-8")) for path in tracked("src/cuebook") if path.suffix == ".py"}
    for name, value in (*size(trees), *words(trees), *turn(), *costs()):
        print(f"{name:<58} {value}")
    print(f"({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
