"""Run `cuebook eval`: evaluate memory quality on your own conversations, without a model.

Each conversation is replayed into a temporary project. After some passes and at the end, the content of memory is
compared with the posts.
"""

import tempfile
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.app import gold
from cuebook.app.cuebook import Cuebook
from cuebook.app.demo.run import shipped
from cuebook.app.evaluate.items import Cleanness, cleanness
from cuebook.app.evaluate.replay import Progress, Rehearsal, Survival, on_path, survivals_of
from cuebook.app.files import read_bytes
from cuebook.app.gold import Fact, GoldSurvival, some
from cuebook.app.memories.search import listed_items
from cuebook.app.replay import ReplayDice
from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.config import Config, ConfigSections, MemoryConfig, StoreConfig
from cuebook.errors import InvalidInput
from cuebook.memory.evidence import DEPTH, EvidenceRecall, Origin, Question, answered, clozes, mean_of, recall
from cuebook.records.answer import added
from cuebook.records.memory import Scope
from cuebook.testing.doubles import FrozenClock

#: Default number of questions per conversation.
QUESTIONS = 200
#: The compaction profile, and the number of posts that it keeps verbatim after the summary.
PROFILE = "standard"


class Evaluation(Struct, frozen=True, kw_only=True, rename="camel"):
    """The memory quality on one conversation, or on all of a file."""

    title: str
    conversations: int
    posts: int
    compactions: int
    recall: EvidenceRecall
    items: Cleanness
    survival: tuple[Survival, ...]
    first_pass: tuple[Survival, ...]  # only the posts of the first pass
    current_facts: GoldSurvival | None  # None without a gold list


async def evaluate(
    file: Path | str | None = None,
    *,
    gold: Path | str | None = None,
    limit: int = QUESTIONS,
    progress: Progress = lambda *_: None,
) -> list[Evaluation]:
    """Evaluate memory on each conversation of a file (default: the built-in conversation).

    `file` has a format that `conversation import` accepts; `gold` lists its facts (see gold.read_facts); `limit` is
    the maximum number of questions per conversation. Each uses a temporary SQLite database. Raises InvalidInput naming
    file and position.
    """
    if limit < 1:
        msg = f"limit: {limit}. Must be 1 or more."
        raise InvalidInput(msg, where="limit")
    results = _found(Path(file) if file is not None else None, Path(gold) if gold is not None else None)
    return [await _evaluate(transcript, facts, limit, progress) for transcript, facts in results]


def together(every: Sequence[Evaluation]) -> Evaluation | None:
    """Return the sum of a file's conversations; None if there is only one."""
    return reduce(_plus, every) if len(every) > 1 else None


def _plus(one: Evaluation, two: Evaluation) -> Evaluation:
    return added(
        one,
        two,
        title="together",
        recall=mean_of(one.recall, two.recall),
        items=added(one.items, two.items),
        survival=_added(one.survival, two.survival),
        first_pass=_added(one.first_pass, two.first_pass),
        current_facts=None,
    )


def _added(one: Sequence[Survival], two: Sequence[Survival]) -> tuple[Survival, ...]:
    """Return the sum of two conversations' rows; omit marks that only one reached: their facts would differ."""
    others = {(each.whose, each.compactions): each for each in two}
    pairs = [(each, others.get((each.whose, each.compactions))) for each in one]
    return tuple(
        added(each, other, whose=each.whose, compactions=each.compactions) for each, other in pairs if other is not None
    )


def to_wire(every: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the figures as a JSON object: `items`, one per conversation, and `together`."""
    whole: dict[str, Any] = msgspec.to_builtins({"items": every, "together": together(every)})
    return whole


def _found(file: Path | None, listed: Path | None) -> list[tuple[Transcript, Sequence[Fact]]]:
    if file is None:
        if listed is not None:
            msg = f"Missing conversation file for the gold list {str(listed)!r}. Pass the file too."
            raise InvalidInput(msg, where="gold")
        return [shipped()]
    transcripts = read_transcripts(file)
    if listed is None:
        return [(transcript, ()) for transcript in transcripts]
    if len(transcripts) > 1:
        msg = f"{file.name}: {len(transcripts)} conversations, but a gold list covers one. Split the file."
        raise InvalidInput(msg, where=str(file))
    [transcript], facts = transcripts, gold.read_facts(read_bytes(listed), name=listed.name)
    ids = {post.id for post in on_path(transcript)}
    for number, fact in enumerate(facts):
        for source in fact.sources:
            if source not in ids:
                problem = f"{transcript.conversation!r} has no post {source!r}. Use the gold list of this file."
                FilePlace(listed.name, f"facts[{number}].sources").refuse(problem)
    return [(transcript, facts)]


async def _evaluate(transcript: Transcript, facts: Sequence[Fact], limit: int, progress: Progress) -> Evaluation:
    clock = FrozenClock(0.0)
    settings = ConfigSections(store=StoreConfig(url="eval.db"), memory=MemoryConfig(profile=PROFILE))
    with tempfile.TemporaryDirectory(prefix="cuebook-eval-", ignore_cleanup_errors=True) as folder:
        config = Config(settings=settings, folder=folder)  # independent of the working directory
        async with Cuebook.open(config, clock=clock, dice=ReplayDice(), worker=False) as cue:
            rehearsal = Rehearsal(cue, clock, transcript, facts)
            await rehearsal.run(progress)
            return await _report(cue, rehearsal, transcript, facts, limit)


async def _report(
    cue: Cuebook, rehearsal: Rehearsal, transcript: Transcript, facts: Sequence[Fact], limit: int
) -> Evaluation:
    summary = rehearsal.summary
    passes = summary.version if summary else 0
    items = [
        each
        for each in await listed_items(cue.services, Scope(), transcript.conversation)
        if each.superseded_by is None
    ]
    return Evaluation(
        title=transcript.title or transcript.conversation,
        conversations=1,
        posts=len(rehearsal.heard),
        compactions=passes,
        recall=await _recall(rehearsal, transcript, facts, limit),
        items=cleanness(items, texts=[post.message for post in rehearsal.heard], facts=facts),
        survival=survivals_of(rehearsal.fates, passes),
        first_pass=survivals_of(rehearsal.fates, passes, first=True),
        current_facts=gold.survival(facts, items, summary.markdown if summary else "") if facts else None,
    )


async def _recall(rehearsal: Rehearsal, transcript: Transcript, facts: Sequence[Fact], limit: int) -> EvidenceRecall:
    """Return the evidence recall. Clozes use only the user's posts that the summary covers and prompts omit."""
    old = rehearsal.heard[: rehearsal.covered]
    values = [(post.id, post.message) for post in old if post.role == "user"]
    asked = [question for question in transcript.questions if question.evidence]
    origin, questions = _questions_of(asked, facts, values)
    evidence_shares = [
        answered(question, await rehearsal.search(question.text, DEPTH)) for question in some(questions, limit)
    ]
    return recall(origin, evidence_shares, there_are=len(questions))


def _questions_of(
    given: Sequence[Question], facts: Sequence[Fact], posts: Sequence[tuple[str, str]]
) -> tuple[Origin, list[Question]]:
    """Return the questions: the file's, else those of the current gold facts, else clozes of `posts` (id and text)."""
    if given:
        return "file", list(given)
    questions = [Question(text=fact.question, evidence=fact.sources) for fact in facts if fact.current and fact.sources]
    return ("gold", questions) if questions else ("cloze", list(clozes(posts)))
