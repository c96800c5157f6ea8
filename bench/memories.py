"""Benchmark of memory search: recall, precision and empty answers on four sets.

Each set has about 38 memories of two users and 60 questions, 12 of which need no memory. `developer` and `novelist`
were used in development; `private` and `workshop` (in German) were not. Their authors did not know Cuebook's rules.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.measure import Figure, Run
from cuebook import Cuebook
from cuebook.app.evaluate.compare import local_embedders

SETS = Path(__file__).with_name("memory_sets")
HITS = 10


def memories(run: Run) -> Iterator[Figure]:
    """Report recall, precision and empty answers, with the default cutoff and with `minShare` 0."""
    _ = run
    for file in sorted(SETS.glob("*.json")):
        questions = json.loads(file.read_text())
        for embedder in ("none", *local_embedders()):
            default, without = asyncio.run(_answers(questions, embedder))
            name = "words" if embedder == "none" else f"words and {embedder}"
            yield Figure(what=f"{file.stem}, {name}", ours=default, against=f"minShare 0: {without}")


async def _answers(content: dict[str, list[dict[str, Any]]], embedder: str) -> tuple[str, str]:
    """Store the memories, ask all questions, and return both reports."""
    async with Cuebook.open(arguments={"embedder.provider": embedder}) as cue:
        ids: dict[str, str] = {}
        subjects: dict[str, str] = {}
        for each in content["memories"]:
            subject = subjects[each["id"]] = subjects.get(each.get("supersedes", ""), each["id"])
            stored = await cue.memory.add(each["text"], key=subject, user=each["user"])
            ids[stored.id] = each["id"]
        await cue.settle()
        reports = []
        for cutoff in ({}, {"min_share": 0.0}):
            answers = []
            for each in content["questions"]:
                hits = await cue.memory.search(each["query"], user=each["user"], scopes=["user"], limit=HITS, **cutoff)
                answers.append(({ids[hit.memory_id] for hit in hits}, set(each["relevant"])))
            reports.append(_report(answers))
        return reports[0], reports[1]


def _report(answers: list[tuple[set[str], set[str]]]) -> str:
    """Return the mean recall and precision of the questions that need memories, and the share of the others without."""
    asked = [(hits, wanted) for hits, wanted in answers if wanted]
    recall = fmean(len(hits & wanted) / len(wanted) for hits, wanted in asked)
    precision = fmean(len(hits & wanted) / len(hits) if hits else 0.0 for hits, wanted in asked)
    empty = fmean(not hits for hits, wanted in answers if not wanted)
    return f"recall {recall:.2f}, precision {precision:.2f}, unrelated without a hit {empty:.2f}"
