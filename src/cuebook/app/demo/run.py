"""Run `cuebook demo`: replay a long conversation through the whole pipeline, turn by turn, and measure its memory."""

import asyncio
import secrets
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import reduce
from importlib import resources
from itertools import dropwhile
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from cuebook.app import gold
from cuebook.app.cuebook import Cuebook
from cuebook.app.gold import Fact, GoldSurvival, QuestionResult
from cuebook.app.memories.search import listed_items
from cuebook.app.replay import (
    RecordedCall,
    RecordedPost,
    ReplayDice,
    advance_to,
    calls_of,
    is_dated,
    is_system,
    posts_of,
    recorded_answer,
)
from cuebook.app.reports.profiles import ProfileFigures
from cuebook.app.setup import embedded_postgres
from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.app.transcripts.transcript import Transcript
from cuebook.config import SERVERS, Config, ConfigSections, MemoryConfig, SecretsConfig, StoreConfig
from cuebook.engine.proxy.request import RelayCall as Request
from cuebook.engine.proxy.wire import Head
from cuebook.engine.turn.compare import chunks_of
from cuebook.errors import BackendError
from cuebook.records.answer import added, as_answer
from cuebook.records.answer import to_wire as answer_to_wire
from cuebook.records.conversation import digest_of
from cuebook.records.conversation_answers import summary_state
from cuebook.records.memory import Item, Scope, Summary
from cuebook.records.memory_answers import item_entry
from cuebook.records.turn import Ask, Window
from cuebook.storage.database.postgres import upgrade
from cuebook.testing.doubles import FrozenClock
from cuebook.testing.upstream import ScriptedUpstream
from cuebook.window.cache import CacheChunk, CacheSimulator, CacheUse
from cuebook.window.models import CacheRule, rule_named
from cuebook.window.post_forms import weigh
from cuebook.wire.chat_messages import read_message

# ---- the meter ------------------------------------------------------------------------------------------------------


class PromptCost(Struct, frozen=True, kw_only=True, rename="camel"):
    """The cost of a conversation's prompts: tokens sent, and simulated cost in units of one uncached input token."""

    calls: int
    tokens: int
    last_tokens: int
    cost: float
    read_share: float


class Meter:
    """Adds up the cost of each prompt, and the cost of sending the full history."""

    def __init__(self, count: Callable[[str], int], rule: CacheRule) -> None:
        self._count = count
        self.rule = rule
        self.ours: list[CacheUse] = []
        self.everything: list[CacheUse] = []
        self.replays: list[str] = []  # the verdicts of replayed prompts
        self._cache, self._whole = CacheSimulator(rule), CacheSimulator(rule)
        self._history: list[CacheChunk] = []
        self._query = -1
        self._asked = 0

    def measure(self, call: RecordedCall, window: Window | None) -> None:
        """Count one model call."""
        now = call.new[-1].when
        if window is not None:
            self.ours.append(self._cache.request(self._chunks(window), now))
        previous = self._query
        self._history.extend(self._chunk(post) for post in call.new)
        self._query = len(self._history) - 1
        marks = (previous, self._query)
        marked = [msgspec.structs.replace(each, marked=n in marks) for n, each in enumerate(self._history)]
        self.everything.append(self._whole.request(marked, now))
        if call.answer is not None:
            self._history.append(self._chunk(call.answer))

    def _chunks(self, window: Window) -> list[CacheChunk]:
        """Return a window's chunks; mark the previous call's query too if no turn was opened for it."""
        known = {block.message for block in window.blocks if block.seq and block.seq == self._asked}
        self._asked = next((block.seq for block in window.blocks if block.kind == "query"), 0)
        chunks = chunks_of(window, tools="")
        return [msgspec.structs.replace(each, marked=each.marked or each.digest in known) for each in chunks]

    def _chunk(self, post: RecordedPost) -> CacheChunk:
        """Return a message with its tokens as a window counts them: a picture's do not depend on its bytes."""
        return CacheChunk(weigh(post.message, self._count), digest_of(msgspec.json.encode(post.message)), post.role)


def _cost(uses: Sequence[CacheUse]) -> PromptCost:
    totals = reduce(added, uses, CacheUse())
    last = uses[-1].input_tokens if uses else 0
    return as_answer(PromptCost, totals, calls=totals.requests, tokens=totals.input_tokens, last_tokens=last)


#: The provider cache rule that the demo's cost is computed with.
RULE = "openai-breakpoints"
#: Maximum number of hits per question.
HITS = 10
#: Maximum number of questions per conversation: a search takes 20 to 60 ms.
QUESTIONS = 120
#: The fixed database key: fences are derived from it and from ids, and counted with each prompt.
KEY = bytes(range(32))
#: The database of a replay, in its folder.
FILE = "demo.db"
#: The compaction profile of a replay.
PROFILE = "standard"

Progress = Callable[[int, int, str], None]


class ReplayReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The results of a replayed conversation."""

    title: str
    posts: int
    days: float | None  # None if no post has a time
    ours: PromptCost
    everything: PromptCost
    summary: Summary | None
    items: tuple[Item, ...]
    ended: int
    survival: GoldSurvival | None
    asked: tuple[QuestionResult, ...]
    questions: int  # in all; of many only some are asked
    rule: CacheRule
    rendered: int
    identical: int
    profiles: tuple[ProfileFigures, ...]  # of the same calls, as in the shadow report; () without calls


def shipped() -> tuple[Transcript, list[Fact]]:
    """Return the built-in conversation, written for Cuebook, and its gold list."""
    folder = resources.files("cuebook.app.demo").joinpath("data")
    [transcript] = read_transcripts(folder.joinpath("conversation.json").read_text("utf-8"), name="mara.json")
    return transcript, gold.read_facts(folder.joinpath("gold.json").read_bytes(), name="gold.json")


async def run_demo(
    file: Path | None = None,
    *,
    progress: Progress = lambda *_: None,
    folder: Path | None = None,
    database: Callable[[], str] = lambda: FILE,
    model: str = "",
) -> list[ReplayReport]:
    """Replay the built-in conversation, or those of a file.

    Each uses a temporary SQLite database, or all are stored in one in `folder` (`demo_config(folder)` opens it).
    `database` returns another database for each replay, such as `new_database(server)`. `model` is recorded as the
    answering model, so that the answers have a price.
    """
    found = [shipped()]
    if file is not None:
        found = [(each, gold.facts_of(each.questions)) for each in read_transcripts(file)]
    return [
        await replay(each, facts, progress=progress, folder=folder, database=database(), model=model)
        for each, facts in found
    ]


async def replay(
    transcript: Transcript,
    facts: Sequence[Fact],
    *,
    progress: Progress,
    folder: Path | None = None,
    database: str = FILE,
    model: str = "",
) -> ReplayReport:
    """Replay one conversation through the whole pipeline, call by call, and return the measurements."""
    stage = Stage(model)
    with demo_folder() if folder is None else nullcontext(folder) as place:
        cuebook = Cuebook.open(
            demo_config(place, database), clock=stage.clock, dice=stage.dice, upstream=stage.upstream, worker=False
        )  # the jobs run between the calls, by the recorded clock
        async with cuebook as cue, _worker(cue, stage.clock, place, database) as work:
            meter = Meter(cue.services.count, rule_named(RULE))
            calls = calls_of(posts_of(transcript))
            for number, call in enumerate(calls, 1):
                progress(number, len(calls), transcript.conversation)
                await stage.play(cue, transcript, call, meter)
                await work(None)
            await work(transcript.conversation)
            return await _report(cue, transcript, facts, meter)


@asynccontextmanager
async def _worker(
    cue: Cuebook, clock: FrozenClock, folder: Path, database: str
) -> AsyncIterator[Callable[[str | None], Awaitable[object]]]:
    """Yield a function that runs due jobs, or settles a conversation: a worker process does for a server's database."""
    if not database.startswith(SERVERS):
        yield lambda conversation: cue.settle(conversation=conversation) if conversation else cue.work()
        return
    command = (sys.executable, "-m", "cuebook.app.demo.worker", str(folder), database)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    pipe, answers = cast("asyncio.StreamWriter", process.stdin), cast("asyncio.StreamReader", process.stdout)

    async def work(conversation: str | None) -> None:
        pipe.write(msgspec.json.encode([clock.now(), conversation]) + b"\n")
        if not await answers.readline():
            msg = "The demo's worker process has ended. See its error above."
            raise BackendError(msg)

    try:
        yield work
    finally:
        pipe.close()
        await process.wait()


@contextmanager
def demo_folder() -> Iterator[Path]:
    """Yield a temporary folder for a demo's project."""
    with tempfile.TemporaryDirectory(prefix="cuebook-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def demo_server() -> Iterator[str]:
    """Yield the URL of a temporary PostgreSQL server. Raises InvalidInput if it is not installed."""
    embedded_postgres.package()
    with demo_folder() as folder:
        folder.chmod(0o755)  # the server may run as another user
        try:
            yield embedded_postgres.start(folder / "postgres").url or ""
        finally:
            embedded_postgres.stop(folder / "postgres")


def new_database(server: str) -> str:
    """Create a database with empty tables on a server, and return its URL."""
    import psycopg

    name = f"demo_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = urlsplit(server)._replace(path=f"/{name}").geturl()
    upgrade(url)
    return url


def demo_config(folder: Path, database: str = FILE) -> Config:
    """Return the settings of a demo, independent of the working directory."""
    (folder / "demo.key").write_text(KEY.hex(), "ascii")
    settings = ConfigSections(
        store=StoreConfig(url=database),
        memory=MemoryConfig(profile=PROFILE),
        secrets=SecretsConfig(key_file="demo.key"),
    )
    return Config(settings=settings, folder=str(folder))


class Stage:
    """The recorded environment: clock, ids, answers, and the client's system text in every call."""

    def __init__(self, model: str = "") -> None:
        self.clock, self.dice, self.upstream = FrozenClock(0.0), ReplayDice(), ScriptedUpstream()
        self._model, self._asked = model, "recorded"
        self._system: list[Mapping[str, Any]] = []
        self._history: list[Mapping[str, Any]] = []

    def begin(self, persona: str) -> None:
        """Start another conversation, which a persona answers."""
        self._system, self._history, self._asked = [], [], persona

    async def play(self, cue: Cuebook, transcript: Transcript, call: RecordedCall, meter: Meter) -> None:
        """Send the whole history, as clients do, and store the new messages and the recorded answer under their ids."""
        advance_to(self.clock, call.new[-1].when)
        if call.answer is None or call.answer.role != "assistant":
            await self._listen(cue, transcript, call, meter)
            return
        posts = list(dropwhile(is_system, call.new))
        self._system += [post.message for post in call.new[: len(call.new) - len(posts)]]
        self.dice.ids.extend([post.id for post in posts] + [call.answer.id])
        self.upstream.say(recorded_answer(call.answer.message, self._model))
        self.upstream.requests.clear()
        self._history += [post.message for post in posts]
        body = msgspec.json.encode({"model": self._asked, "messages": [*self._system, *self._history]})
        self._history.append(call.answer.message)
        name, user = transcript.conversation, transcript.user
        request = Request(body=body, headers={}, conversation=name, user=user)
        async for piece in cue.relay(request):
            if isinstance(piece, Head):
                advance_to(self.clock, call.answer.when)
        conversation = await cue.conversations.get(name)
        shown = await cue.turns.replay(name, conversation.turns)
        meter.measure(call, shown.window)
        meter.replays.append(shown.verdict)

    async def _listen(self, cue: Cuebook, transcript: Transcript, call: RecordedCall, meter: Meter) -> None:
        """Handle a conversation among people: build the prompt that would have been sent, then store the messages."""
        text = read_message(call.new[-1].message).message
        if text and not self._system:  # an unanswered last question had no prompt
            window = await cue.assemble(Ask(text, transcript.conversation, user=transcript.user))
            meter.measure(call, window)
        new = (*call.new, *([call.answer] if call.answer else []))
        self._history += [post.message for post in new]
        posts = [post.posted() for post in new]
        await cue.append(transcript.conversation, posts, user=transcript.user)


async def _report(cue: Cuebook, transcript: Transcript, facts: Sequence[Fact], meter: Meter) -> ReplayReport:
    name, told = transcript.conversation, not transcript.questions
    items = await listed_items(cue.services, Scope(), name, ended=True)
    summary = await cue.services.store.summary(Scope(), name)
    current = [item for item in items if item.valid_to is None]
    markdown = summary.markdown if summary else ""
    question_results = []
    for fact in gold.some([fact for fact in facts if fact.current], QUESTIONS):
        hits = await cue.memory.search(fact.question, conversation=name, user=transcript.user, limit=HITS)
        question_results.append(gold.asked(fact, summary=markdown, items=current, hits=hits))
    times = [post.when for post in posts_of(transcript)]
    profiles = (await cue.shadow.report(name)).replay.profiles
    return ReplayReport(
        title=transcript.title or name,
        posts=len(times),
        days=(max(times) - min(times)) / 86_400 if is_dated(transcript) else None,
        ours=_cost(meter.ours),
        everything=_cost(meter.everything),
        summary=summary,
        items=tuple(current),
        ended=len(items) - len(current),
        survival=gold.survival(facts, current, markdown) if facts and told else None,
        asked=tuple(question_results),
        questions=sum(fact.current for fact in facts),
        rule=meter.rule,
        rendered=len(meter.replays),
        identical=meter.replays.count("identical"),
        profiles=profiles if any(each.calls for each in profiles) else (),
    )


def to_wire(report: ReplayReport) -> dict[str, Any]:
    """Return a report as a JSON object, its parts in the shapes of the HTTP API."""
    dated = report.days is not None
    summary = answer_to_wire(summary_state(report.summary)) if report.summary else None
    items = [answer_to_wire(item_entry(item, report.title)) for item in report.items]
    if not dated:  # the times were invented for the replay
        summary = summary and summary | {"updatedAt": None, "summaryUptoTimestamp": None}
        items = [item | {"validFrom": None} for item in items]
    data: dict[str, Any] = msgspec.to_builtins(report)
    return data | {"summary": summary, "items": items, "rule": report.rule.name}
