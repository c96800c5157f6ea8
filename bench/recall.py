"""Recall benchmark: how many of the posts with the evidence rank first, with and without embeddings.

Two synthetic data sets differ from LoCoMo: chats with long answers, and a transcript full of tool results. A file in
LoCoMo's format (RECALL_DATA) is measured too, and again inside one long conversation of generated posts.
"""

import asyncio
import json
import math
import os
import random
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench.measure import Figure, Run
from bench.recall_chats import chats
from bench.recall_peers import PEERS, Line, Question, found_by_peers, score
from bench.recall_tools import tools
from cuebook import Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.providers.minilm.embedder import MiniLM

_LIMIT, _BUDGET, _BATCH = 50, 1_000, 1_000
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
#: R@10 and rec@1000t below which a kind of data counts as collapsed (docs/design/005).
_FLOORS = {"chats": (85.0, 85.0), "tools": (75.0, 75.0)}
_UNKNOWN = 100  # questions of the other sets
_STRANGERS = 400  # questions of the set's other conversations
_HEADLINE = (1, 2, 3, 4)


def recall(run: Run) -> Iterator[Figure]:
    """Yield the percentage of evidence in the first 10 posts, and within 1000 tokens of hits."""
    sets = {"chats": chats(), "tools": tools(rounds=40 if run.quick else 120)}
    if named := os.environ.get("RECALL_DATA"):
        sets["file"] = json.loads(Path(named).read_text("utf-8"))
    providers = ["none", *([] if MiniLM.missing() else ["minilm"])]
    for name, data in sets.items():
        others = [sample for other, samples in sets.items() if other != name for sample in samples]
        unknown = [text for sample in others for _, text, _ in _questions(sample)]
        for provider in providers:
            yield from asyncio.run(_measured(name, data, provider, unknown[:: -(-len(unknown) // _UNKNOWN)]))
        if name == "file":
            yield from asyncio.run(_among(name, data, run.many))
        if run.peers and not MiniLM.missing():
            yield from _peers(run, name, data)
        else:
            names = ", ".join(peer for peer, _ in PEERS)
            yield Figure(f"{name}: {names}", "", "need --peers" if not run.peers else "need the embeddings extra")


def _strangers(data: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return questions that only another conversation of a set answers, with the names of this one's speakers."""
    found: list[tuple[str, str]] = []
    for sample in data:
        for other in data:
            names = {other["conversation"][key]: sample["conversation"][key] for key in ("speaker_a", "speaker_b")}
            swap = partial(re.sub, "|".join(map(re.escape, names)), lambda name, names=names: names[name[0]])
            asked = _questions(other) if other is not sample else ()
            found += [(sample["sample_id"], swap(text)) for _, text, _ in asked]
    return found[:: max(1, len(found) // _STRANGERS)]


def _peers(run: Run, name: str, data: list[dict[str, Any]]) -> Iterator[Figure]:
    """Yield the figures of other libraries on the same texts with date and speaker, and the same embedder."""
    talks: list[list[Line]] = []
    questions: list[Question] = []
    for scope, sample in enumerate(data):
        talks.append([_line(post) for post in _posts(sample["conversation"])])
        questions += [(kind, scope, text, evidence) for kind, text, evidence in _questions(sample)]
    for peer, found in found_by_peers(run, talks, questions):
        if found is None:
            yield Figure(f"{name}, {peer}", "", "failed")
            continue
        rows = [
            (kind, *score(lines, asked[3], budget=_BUDGET))
            for asked, (kind, lines) in zip(questions, found, strict=True)
        ]
        for at, what in enumerate(("R@10", "rec@1000t"), 1):
            mean = 100 * statistics.mean(row[at] for row in rows)
            yield Figure(f"{name}, {peer}: {what}", f"{mean:.1f}", note=f"{len(rows)} questions")


def _line(post: Posted) -> Line:
    """Return a turn as the other libraries get it: date and speaker before the text."""
    when = datetime.fromtimestamp(post.created_at or 0, UTC)
    return post.id or "", f"[{when:%d %B %Y}] {post.sender}: {post.message}"


def _questions(sample: dict[str, Any]) -> Iterator[tuple[int, str, set[str]]]:
    """Yield the questions that count, with their category and the ids of their evidence."""
    for question in sample["qa"]:
        evidence = {f"D{int(a)}:{int(b)}" for each in question["evidence"] for a, b in _ids(each)}
        if evidence and question["category"] in _HEADLINE:
            yield question["category"], question["question"], evidence


async def _measured(name: str, data: list[dict[str, Any]], provider: str, unknown: list[str]) -> list[Figure]:
    """Return the figures of a set, and the share of unknown questions, those of the other sets, without an answer."""
    arguments = {"embedder.provider": provider, "embedder.timeout_s": 60.0}
    async with Cuebook.open(arguments=arguments, worker=False) as cue:
        for sample in data:
            posts = list(_posts(sample["conversation"]))
            await cue.append(sample["sample_id"], posts, user=sample["sample_id"])
        began = time.perf_counter()
        while provider != "none" and "embedding" in await cue.settle(timeout=60):
            pass
        embedded, rows, took = time.perf_counter() - began, [], []
        for sample in data:
            for kind, question, evidence in _questions(sample):
                began = time.perf_counter()
                place = sample["sample_id"]
                hits = await cue.memory.search(question, conversation=place, user=place, limit=_LIMIT)
                took.append(time.perf_counter() - began)
                rows.append((kind, *_score(hits, evidence)))
        place = data[0]["sample_id"]
        kinds = {
            "other sets": [(place, text) for text in unknown],
            "other conversations, with its names": _strangers(data),
        }
        left = [
            (kind, [not await cue.memory.search(text, conversation=place, user=place) for place, text in questions])
            for kind, questions in kinds.items()
        ]
    empty = [
        Figure(f"{name}, {provider}: empty answers to questions of {kind}", f"{100 * statistics.mean(each):.1f} %")
        for kind, each in left
        if each
    ]
    return [*_figures(name, provider, rows, statistics.median(took), embedded), *empty]


async def _among(name: str, data: list[dict[str, Any]], many: int) -> list[Figure]:
    """Return the figures of a set whose conversations are parts of one of `many` posts, by full text.

    Each other post joins halves of two of the set's sentences. It stands after a session, by one of its speakers. At
    most _STRANGERS questions are asked.
    """
    own = [(n, post) for n, sample in enumerate(data) for post in _posts(sample["conversation"])]
    halves = [words for _, post in own for part in _SENTENCE.split(post.message) if len(words := part.split()) > 1]
    sessions = [list(posts) for _, posts in groupby(own, lambda each: (each[0], each[1].id.partition(":")[0]))]
    dice = random.Random(1)  # noqa: S311  # every run needs the same text
    posts: list[Posted] = []
    for session in sessions:
        posts += [replace(post, id=f"{n}/{post.id}") for n, post in session]
        for _ in range((many - len(own)) // len(sessions)):
            one, other, (_, post) = dice.choice(halves), dice.choice(halves), dice.choice(session)
            text = " ".join(one[: (len(one) + 1) // 2] + other[len(other) // 2 :])
            posts.append(replace(post, message=text, id=""))
    asked = [(n, each) for n, sample in enumerate(data) for each in _questions(sample)]
    rows, took = list[tuple[int, float, float]](), list[float]()
    async with Cuebook.open(worker=False) as cue:
        for first in range(0, len(posts), _BATCH):
            await cue.append(name, posts[first : first + _BATCH], user=name)
        for n, (kind, question, evidence) in asked[:: -(-len(asked) // _STRANGERS)]:
            began = time.perf_counter()
            hits = await cue.memory.search(question, conversation=name, user=name, limit=_LIMIT)
            took.append(time.perf_counter() - began)
            rows.append((kind, *_score(hits, {f"{n}/{each}" for each in evidence})))
    return list(_figures(f"{name}, among {len(posts):,} posts", "none", rows, statistics.median(took), 0.0))


def _figures(
    name: str, provider: str, rows: list[tuple[int, float, float]], took: float, embedded: float
) -> Iterator[Figure]:
    least = _FLOORS.get(name, (0.0, 0.0))
    by = "full text" if provider == "none" else f"with {provider}"
    for at, (what, floor) in enumerate(zip(("R@10", "rec@1000t"), least, strict=True), 1):
        mean = 100 * statistics.mean(row[at] for row in rows)
        kinds = sorted({row[0] for row in rows})
        shares = [f"{kind}: {100 * statistics.mean(row[at] for row in rows if row[0] == kind):.0f}" for kind in kinds]
        note = f"category {', '.join(shares)}; {len(rows)} questions, p50 {1e3 * took:.0f} ms"
        note += f", embedded in {embedded:.0f} s" if provider != "none" else ""
        yield Figure(f"{name}, {by}: {what}", f"{mean:.1f}", ratio=mean, bar=floor, least=True, unit=" %", note=note)


def _ids(text: str) -> list[tuple[str, str]]:
    return re.findall(r"D:?(\d+):(\d+)", text)


def _posts(talk: dict[str, Any]) -> Iterator[Posted]:
    """Yield a conversation's turns as posts, a second between those of a session."""
    names = [name for name in talk if re.fullmatch(r"session_\d+", name)]
    for name in sorted(names, key=lambda each: int(each[8:])):
        told = talk[f"{name}_date_time"].replace(" on ", " ")
        start = datetime.strptime(told, "%I:%M %p %d %B, %Y").replace(tzinfo=UTC)
        for number, turn in enumerate(talk[name]):
            text = turn["text"] + (f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else "")
            when = (start + timedelta(seconds=number)).timestamp()
            yield Posted(sender=turn["speaker"], message=text, id=turn["dia_id"], created_at=when)


def _score(hits: Sequence[Any], evidence: set[str]) -> tuple[float, float]:
    """Return R@10, and the share of evidence in the hits before the first that exceeds the budget."""
    first = set(list(dict.fromkeys(post for hit in hits for post in hit.sources))[:10])
    used, within = 0, set()
    for hit in hits:
        used += hit.tokens or math.ceil(len(hit.text) / 4)
        if used > _BUDGET:
            break
        within.update(hit.sources)
    return len(first & evidence) / len(evidence), len(within & evidence) / len(evidence)
