"""Compare search with BM25 and with embeddings alone on test sets: `cuebook eval --recall`.

Every system searches the same posts with the same questions, one conversation at a time.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

from cuebook.app.cuebook import Cuebook
from cuebook.app.evaluate.baselines import BM25, Passage, cosine, cut, passages_in, text_of, whole
from cuebook.app.evaluate.replay import on_path
from cuebook.app.evaluate.sets import QuestionSet, read_sets
from cuebook.app.gold import some
from cuebook.app.replay import RecordedPost, ReplayDice, advance_to, is_system
from cuebook.app.setup.compose import embedder_of
from cuebook.config import Config, ConfigSections, EmbedderConfig, MemoryConfig, StoreConfig
from cuebook.errors import InvalidInput
from cuebook.interfaces import Embedder
from cuebook.memory.evidence import DEPTH, TOKENS, Question
from cuebook.memory.recall_results import MIN_SHARE
from cuebook.testing.doubles import FrozenClock
from cuebook.window.tokens import estimate

#: Each system has an empty database of its own.
_STORE = StoreConfig(url="eval.db")
#: Only posts are searched, without memories and summaries.
_MEMORY = MemoryConfig(user=False, profile="off")
#: Seconds that a query waits for its vector: figures must not depend on the load of the machine.
_PATIENCE_S = 60.0
#: A result: the ids of its posts, and its tokens.
Result = tuple[tuple[str, ...], int]
#: The results of each question of a set, best first.
Results = list[list[Result]]
Progress = Callable[[int, int], None]


class KindRecall(Struct, frozen=True, kw_only=True, rename="camel"):
    """The recall of one kind of question with an answer, as in SystemRecall."""

    kind: str
    questions: int
    at10: float
    within_tokens: float
    nothing: float
    newest_first: float | None


class SystemRecall(Struct, frozen=True, kw_only=True, rename="camel"):
    """The recall of one system on one set. Shares are in [0, 1], and None if no question measures them.

    `at10`: of the evidence, among the first 10 posts. `within_tokens`: of the evidence, in the leading results that fit
    1000 tokens. `hits`: mean number of results. `precision`: of the posts in the results, evidence. `nothing`: of
    the questions with an answer, without a result. `newest_first`: of the questions whose answer changed, the newest
    version before every older one. `left_empty`: of the questions without an answer, without a result.
    """

    system: str
    min_share: float | None
    at10: float | None
    within_tokens: float | None
    hits: float
    precision: float | None
    nothing: float | None
    newest_first: float | None
    left_empty: float | None
    kinds: tuple[KindRecall, ...]


class SetRecall(Struct, frozen=True, kw_only=True, rename="camel"):
    """A test set and the recall of each system on it."""

    name: str
    form: str
    conversations: int
    posts: int
    questions: int  # with an answer
    unanswerable: int
    systems: tuple[SystemRecall, ...]


class _Talk(Struct, frozen=True, kw_only=True):
    """A conversation to search: its posts, and the questions that are asked."""

    name: str
    posts: list[RecordedPost]
    questions: Sequence[Question]


async def compare(
    paths: Sequence[Path],
    *,
    limit: int,
    embedders: Mapping[str, Embedder] | None = None,
    progress: Progress = lambda *_: None,
) -> list[SetRecall]:
    """Measure the recall of each system on the test sets in files and folders.

    `limit` is the maximum number of questions per conversation. `embedders` by name replace those that are installed.
    Raises InvalidInput naming the file.
    """
    sets = [(each, _talks(each, limit)) for each in read_sets(paths)]
    installed = local_embedders() if embedders is None else {}
    embedders = embedders or installed
    asked = sum(len(talk.questions) for _, talks in sets for talk in talks)
    total, done = asked * (4 + 3 * len(embedders)), 0
    total += len(embedders) * sum(len(_texts(talks)) for _, talks in sets)

    def step(count: int = 1) -> None:
        nonlocal done
        done += count
        progress(min(done, total), total)  # search embeds a long query in another form too

    found: list[SetRecall] = []
    try:
        for question_set, talks in sets:
            cached = {name: _Cached(each, step) for name, each in embedders.items()}
            found.append(await _compare(question_set, talks, cached, step))
    finally:
        for each in installed.values():
            await each.aclose()
    return found


def to_wire(sets: Sequence[SetRecall]) -> dict[str, Any]:
    """Return the figures as a JSON object."""
    return {"sets": msgspec.to_builtins(sets)}


def local_embedders() -> dict[str, Embedder]:
    """Return the embedders that are installed and run in this process, by provider."""
    found: dict[str, Embedder] = {}
    for provider in get_args(get_type_hints(EmbedderConfig)["provider"]):
        settings = ConfigSections(embedder=EmbedderConfig(provider=provider))
        try:
            embedder = None if provider == "openai" else embedder_of(Config(settings=settings))
        except InvalidInput:  # its packages are not installed
            continue
        found |= {provider: embedder} if embedder else {}
    return found


class _Cached:
    """An embedder that computes each text once, and reports the number of new texts."""

    def __init__(self, embedder: Embedder, step: Callable[[int], None]) -> None:
        self._embedder, self._vectors, self._step = embedder, dict[str, bytes](), step
        self.name, self.dimension = embedder.name, embedder.dimension
        self.languages, self.akin = embedder.languages, embedder.akin

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, await self._embedder.embed(new), strict=True))
            self._step(len(new))
        return [self._vectors[text] for text in texts]

    async def aclose(self) -> None:
        """Keep the embedder open: it is used again."""


def _texts(talks: Sequence[_Talk]) -> set[str]:
    """Return the texts that an embedder computes."""
    passages = {text for talk in talks for _, text in passages_in(talk.posts)}
    return passages | {question.text for talk in talks for question in talk.questions}


def _talks(question_set: QuestionSet, limit: int) -> list[_Talk]:
    talks = [
        _Talk(
            name=each.conversation,
            posts=[post for post in on_path(each) if not is_system(post) and text_of(post).strip()],
            questions=some(each.questions, limit),
        )
        for each in question_set.transcripts
    ]
    return [talk for talk in talks if talk.questions]


async def _compare(
    question_set: QuestionSet, talks: Sequence[_Talk], embedders: Mapping[str, _Cached], step: Callable[[], None]
) -> SetRecall:
    questions = [question for talk in talks for question in talk.questions]
    systems: list[SystemRecall] = []
    for name, embedder in {"words": None, **embedders}.items():
        for share, found in await _cuebook(talks, embedder, step):
            systems.append(_measured(f"Cuebook, {name}", questions, found, min_share=share))
    for name, prepare in (("BM25", whole), ("BM25, passages", cut)):
        found = []
        for talk in talks:
            index = await asyncio.to_thread(_index, prepare, talk.posts)
            for question in talk.questions:
                found.append(_results(index.search(question.text)))
                step()
        systems.append(_measured(name, questions, found))
    for name, embedder in embedders.items():
        found = []
        for talk in talks:
            ranked = await cosine(embedder, talk.posts, [each.text for each in talk.questions], progress=step)
            found += map(_results, ranked)
        systems.append(_measured(f"vectors, {name}", questions, found))
    return SetRecall(
        name=question_set.name,
        form=question_set.form,
        conversations=len(talks),
        posts=sum(len(talk.posts) for talk in talks),
        questions=sum(bool(each.evidence) for each in questions),
        unanswerable=sum(not each.evidence for each in questions),
        systems=tuple(systems),
    )


async def _cuebook(
    talks: Sequence[_Talk], embedder: _Cached | None, step: Callable[[], None]
) -> list[tuple[float, Results]]:
    """Return what search finds without a cutoff, and with the default one. Each conversation has its own user."""
    clock, shares = FrozenClock(0.0), (0.0, MIN_SHARE)
    settings = ConfigSections(store=_STORE, memory=_MEMORY, embedder=EmbedderConfig(timeout_s=_PATIENCE_S))
    found: list[tuple[float, Results]] = [(share, []) for share in shares]
    with tempfile.TemporaryDirectory(prefix="cuebook-eval-", ignore_cleanup_errors=True) as folder:
        config = Config(settings=settings, folder=folder)  # independent of the working directory
        async with Cuebook.open(config, clock=clock, dice=ReplayDice(), embedder=embedder, worker=False) as cue:
            for talk in talks:
                advance_to(clock, max(post.when for post in talk.posts))
                await cue.append(talk.name, [post.posted() for post in talk.posts], user=talk.name)
            while embedder is not None and "embedding" in await cue.settle(timeout=600.0):
                pass
            for talk in talks:
                for question in talk.questions:
                    for share, results in found:
                        results.append(await _search(cue, talk.name, question.text, share))
                        step()
    return found


async def _search(cue: Cuebook, talk: str, query: str, share: float) -> list[Result]:
    hits = await cue.memory.search(query, conversation=talk, user=talk, limit=DEPTH, min_share=share)
    return [(hit.sources, hit.tokens) for hit in hits]


def _index(prepare: Callable[[Sequence[RecordedPost]], list[Passage]], posts: Sequence[RecordedPost]) -> BM25:
    return BM25(prepare(posts))


def _results(passages: Sequence[Passage]) -> list[Result]:
    return [((each.source,), estimate(each.text)) for each in passages]


def _measured(
    system: str,
    questions: Sequence[Question],
    found: Results,
    *,
    min_share: float | None = None,
) -> SystemRecall:
    """Return the measures of a system. Every question has the same weight."""
    pairs = list(zip(questions, found, strict=True))
    answers = [(question, results) for question, results in pairs if question.evidence]
    kinds = dict.fromkeys(question.kind for question, _ in answers)
    whole = _of_kind("", answers) if answers else None
    return SystemRecall(
        system=system,
        min_share=min_share,
        at10=whole.at10 if whole else None,
        within_tokens=whole.within_tokens if whole else None,
        hits=fmean(len(results) for _, results in pairs),
        precision=_mean(_precision(question, results) for question, results in answers if results),
        nothing=whole.nothing if whole else None,
        newest_first=whole.newest_first if whole else None,
        left_empty=_mean(not results for question, results in pairs if not question.evidence),
        kinds=tuple(_of_kind(kind, [each for each in answers if each[0].kind == kind]) for kind in kinds),
    )


def _of_kind(kind: str, answers: Sequence[tuple[Question, list[Result]]]) -> KindRecall:
    shares = [_recall(question, results) for question, results in answers]
    return KindRecall(
        kind=kind,
        questions=len(answers),
        at10=fmean(at10 for at10, _ in shares),
        within_tokens=fmean(within for _, within in shares),
        nothing=fmean(not results for _, results in answers),
        newest_first=_mean(_is_newest_first(question, results) for question, results in answers if question.outdated),
    )


def _mean(values: Iterator[float]) -> float | None:
    every = list(values)
    return fmean(every) if every else None


def _posts(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(source for sources, _ in results for source in sources))


def _recall(question: Question, results: Sequence[Result]) -> tuple[float, float]:
    evidence, inside, left = set(question.evidence), set[str](), TOKENS
    for sources, tokens in results:
        left -= tokens
        if left < 0:
            break
        inside.update(sources)
    return len(evidence.intersection(_posts(results)[:10])) / len(evidence), len(evidence & inside) / len(evidence)


def _precision(question: Question, results: Sequence[Result]) -> float:
    posts = _posts(results)
    return sum(post in question.evidence for post in posts) / len(posts)


def _is_newest_first(question: Question, results: Sequence[Result]) -> bool:
    """Return whether a post of the newest version is found, before every post of an older one."""
    newest = set(question.evidence).difference(question.outdated)
    first = next((post for post in _posts(results) if post in newest or post in question.outdated), None)
    return first in newest
