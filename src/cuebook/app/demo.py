"""`cuebook demo`: a long conversation goes through the whole pipeline, turn by turn.

And what was remembered is measured.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.app import gold
from cuebook.app.book import Cuebook
from cuebook.app.gold import Asked, Fact, Survival
from cuebook.app.replay import Call, RecordedUpstream, ReplayClock, ReplayDice, Said, calls_of, said_of
from cuebook.app.transcripts import Transcript, read_transcripts
from cuebook.assembly.cache import CacheRule, CacheSimulator, Chunk, Totals, rule_named
from cuebook.config import Config, Settings, StoreConfig
from cuebook.engine.answer import Head
from cuebook.engine.desk import chunks_of
from cuebook.engine.request import Call as Request
from cuebook.records.digest import digest_of
from cuebook.records.memory import Item, Summary
from cuebook.records.turn import Ask, Window

#: The provider rule the demo is charged by.
RULE = "openai-breakpoints"
#: Hits a question may look at.
HITS = 10

Progress = Callable[[int, int, str], None]


class Cost(Struct, frozen=True, kw_only=True):
    """What prompts cost over a whole conversation.

    Tokens sent, and simulated cost in units of one uncached input token.
    """

    calls: int
    tokens: int
    last_tokens: int
    cost: float
    read_share: float


class ReplayReport(Struct, frozen=True, kw_only=True):
    """What a replayed conversation came to."""

    title: str
    posts: int
    days: float
    ours: Cost
    everything: Cost
    summary: Summary | None
    items: tuple[Item, ...]
    ended: int
    survival: Survival | None
    asked: tuple[Asked, ...]
    rule: str
    rendered: int
    identical: int
    evidence: Mapping[str, float] = {}


def shipped() -> tuple[Transcript, list[Fact]]:
    """Give the conversation that ships with Cuebook, written for it, and its gold list."""
    folder = resources.files("cuebook.app").joinpath("demo_data")
    [transcript] = read_transcripts(folder.joinpath("conversation.json").read_text("utf-8"), name="conversation.json")
    facts = gold.read_facts(json.loads(folder.joinpath("gold.json").read_text("utf-8")))
    return transcript, facts


async def run_demo(file: Path | None = None, *, progress: Progress = lambda *_: None) -> list[ReplayReport]:
    """Replay the shipped conversation, or those of a file.

    Each gets a book of its own on SQLite that is gone afterwards.
    """
    if file is None:
        transcript, facts = shipped()
        return [await replay(transcript, facts, progress=progress)]
    found = read_transcripts(file)
    return [await replay(transcript, (), progress=progress) for transcript in found]


async def replay(transcript: Transcript, facts: Sequence[Fact], *, progress: Progress) -> ReplayReport:
    """Replay one conversation through the whole pipeline, one model call after another, and measure."""
    stage = Stage()
    posts = said_of(transcript)
    with tempfile.TemporaryDirectory(prefix="cuebook-demo-", ignore_cleanup_errors=True) as folder:
        config = Config(settings=Settings(store=StoreConfig(url=str(Path(folder) / "demo.db"))))
        opened = Cuebook.open(config, clock=stage.clock, dice=stage.dice, upstream=stage.upstream, worker=False)
        async with opened as book:
            meter = Meter(book, transcript, rule_named(RULE))
            calls = calls_of(posts)
            for number, call in enumerate(calls, 1):
                progress(number, len(calls), transcript.conversation)
                await stage.play(book, transcript, call, meter)
                await book.work()
            await book.settle(conversation=transcript.conversation)
            return await _report(book, transcript, posts, facts, meter)


class Stage:
    """The recorded world: clock, ids and answers."""

    def __init__(self) -> None:
        self.clock, self.dice, self.upstream = ReplayClock(), ReplayDice(), RecordedUpstream()

    async def play(self, book: Cuebook, transcript: Transcript, call: Call, meter: "Meter") -> None:
        """Send what is new; the recorded answer comes back, and both are kept under their own ids."""
        self.clock.at(call.new[-1].when)
        if call.answer is None or call.answer.role != "assistant":
            await self._listen(book, transcript, call, meter)
            return
        self.dice.ids.extend([post.id for post in call.new] + [call.answer.id])
        self.upstream.answers.append(call.answer.message)
        body = msgspec.json.encode({"model": "recorded", "messages": [post.message for post in call.new]})
        name, user = transcript.conversation, transcript.user
        request = Request(body=body, headers={}, conversation=name, user=user, server_history=True)
        async for piece in book.relay(request):
            if isinstance(piece, Head):
                self.clock.at(call.answer.when)
        conversation = await book.conversations.get(name)
        shown = await book.turns.replay(name, conversation.turns)
        meter.measure(call, shown.window)
        meter.replayed(shown.verdict)

    async def _listen(self, book: Cuebook, transcript: Transcript, call: Call, meter: "Meter") -> None:
        """People talk among themselves: build the prompt that would have been sent, then store what was said."""
        text = str(call.new[-1].message.get("content") or "")
        if text:
            window = await book.assemble(Ask(text, transcript.conversation, user=transcript.user))
            meter.measure(call, window)
        posts = [post.posted() for post in (*call.new, *([call.answer] if call.answer else []))]
        await book.append(transcript.conversation, posts, user=transcript.user)


class Meter:
    """Adds up what each prompt cost, and what sending everything would have."""

    def __init__(self, book: Cuebook, transcript: Transcript, rule: CacheRule) -> None:
        self._count = book.desk.count
        self._transcript = transcript
        self.ours, self.everything = Totals(), Totals()
        self.last_ours = self.last_everything = 0
        self.identical = self.rendered = 0
        self._cache, self._whole = CacheSimulator(rule), CacheSimulator(rule)
        self._history: list[Chunk] = []
        self._query = -1
        self._asked = 0

    def measure(self, call: Call, window: Window | None) -> None:
        """Take in one model call."""
        now = call.new[-1].when
        if window is not None:
            use = self._cache.request(self._chunks(window), now)
            self.ours = self.ours.plus(use)
            self.last_ours = window.tokens
        previous = self._query
        self._history.extend(_chunk(self._count, post) for post in call.new)
        self._query = len(self._history) - 1
        marks = (previous, self._query)
        marked = [msgspec.structs.replace(each, marked=n in marks) for n, each in enumerate(self._history)]
        use = self._whole.request(marked, now)
        self.everything = self.everything.plus(use)
        self.last_everything = use.input_tokens
        if call.answer is not None:
            self._history.append(_chunk(self._count, call.answer))

    def _chunks(self, window: Window) -> list[Chunk]:
        """Give a window's chunks, the query of the call before marked too where no turn was opened for it."""
        known = {block.message for block in window.blocks if block.seq and block.seq == self._asked}
        self._asked = next((block.seq for block in window.blocks if block.kind == "query"), 0)
        chunks = chunks_of(window, tools="")
        return [msgspec.structs.replace(each, marked=each.marked or each.digest in known) for each in chunks]

    def replayed(self, verdict: str) -> None:
        """Take in whether a prompt rendered again was the same."""
        self.rendered += 1
        self.identical += verdict == "identical"

    def costs(self) -> tuple[Cost, Cost]:
        """Say what ours and sending everything came to."""
        return _cost(self.ours, self.last_ours), _cost(self.everything, self.last_everything)


def _chunk(count: Callable[[str], int], post: Said) -> Chunk:
    raw = msgspec.json.encode(post.message)
    text = post.message.get("content") or ""
    calls = post.message.get("tool_calls")
    tokens = count(text if isinstance(text, str) else raw.decode()) + (count(json.dumps(calls)) if calls else 0) + 4
    return Chunk(tokens, digest_of(raw), post.role)


def _cost(totals: Totals, last: int) -> Cost:
    return Cost(
        calls=totals.requests,
        tokens=totals.input_tokens,
        last_tokens=last,
        cost=totals.cost,
        read_share=totals.read_share,
    )


async def _report(
    book: Cuebook, transcript: Transcript, posts: Sequence[Said], facts: Sequence[Fact], meter: Meter
) -> ReplayReport:
    name = transcript.conversation
    items = await book.memory.items(name, ended=True)
    summary = await book.memory.summary(name)
    current = [item for item in items if item.valid_to is None]
    ours, everything = meter.costs()
    answers = []
    for fact in facts:
        if fact.current:
            hits = await book.memory.search(fact.question, conversation=name, user=transcript.user, limit=HITS)
            answers.append(gold.asked(fact, hits))
    return ReplayReport(
        title=transcript.title or name,
        posts=len(posts),
        days=(posts[-1].when - posts[0].when) / 86_400 if posts else 0.0,
        ours=ours,
        everything=everything,
        summary=summary,
        items=tuple(current),
        ended=len(items) - len(current),
        survival=gold.survival(facts, current, summary.markdown if summary else "") if facts else None,
        asked=tuple(answers),
        rule=RULE,
        rendered=meter.rendered,
        identical=meter.identical,
        evidence=await _evidence(book, transcript),
    )


async def _evidence(book: Cuebook, transcript: Transcript) -> dict[str, float]:
    """Share of each question's evidence among the first hits, where the file names evidence."""
    shares: list[float] = []
    for question in transcript.questions:
        hits = await book.memory.search(
            question.text, conversation=transcript.conversation, user=transcript.user, limit=HITS
        )
        found = {source for hit in hits for source in hit.sources}
        shares.append(len(found.intersection(question.evidence)) / len(question.evidence))
    return {"questions": float(len(shares)), "recallAt10": sum(shares) / len(shares)} if shares else {}


def to_wire(report: ReplayReport) -> dict[str, Any]:
    """Give a report as JSON."""
    return msgspec.to_builtins(report)  # type: ignore[no-any-return]
