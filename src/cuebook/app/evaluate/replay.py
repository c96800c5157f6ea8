"""Replay a transcript into a temporary project, and after each compaction pass check which facts memory retains."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from cuebook.app.cuebook import Cuebook
from cuebook.app.gold import Fact, some
from cuebook.app.memories.search import listed_items
from cuebook.app.replay import RecordedPost, advance_to, calls_of, is_system, posts_of
from cuebook.app.transcripts.transcript import Transcript
from cuebook.memory.facts import FactToken, tokens_of
from cuebook.records.conversation_answers import PostEntry
from cuebook.records.memory import Hit, Scope, Summary
from cuebook.testing.doubles import FrozenClock

# ---- survival -------------------------------------------------------------------------------------------------------


#: Numbers of compactions after which facts are checked, counting from their own.
MARKS = (1, 5, 20)
#: Groups of facts: current gold facts, values in the user's posts, values in the assistant's and tools' posts.
Whose = Literal["gold", "user", "others"]
WHOSE: tuple[Whose, ...] = ("gold", "user", "others")
#: Where a fact is: in the summary or a current item; in an ended item; in a search hit; nowhere.
Fate = Literal["held", "ended", "found", "lost"]


class Survival(Struct, frozen=True, kw_only=True, rename="camel"):
    """Locations of facts after a number of compactions; the same facts at every mark.

    `held`: in the summary or a current item; `ended`: in an item that was superseded; `found`: only in the first hits
    of a search for it; `lost`: nowhere. `dropped` lists facts that were held or ended (gold facts: held, because they
    are current) at the previous mark and no longer are.
    """

    whose: Whose
    compactions: int
    facts: int
    held: int
    ended: int
    found: int
    lost: int
    dropped: tuple[str, ...]


class TrackedFact(Struct, frozen=True):
    """A tracked fact, and the search query for it."""

    whose: Whose
    fact: Fact | FactToken
    query: str

    @property
    def name(self) -> str:
        """Its name in a report."""
        return self.fact.fact if isinstance(self.fact, Fact) else f"{self.fact.value} ({self.fact.sentence})"


#: The fates of the facts of each pass, by the pass and the number of compactions since.
Fates = dict[tuple[int, int], list[tuple[TrackedFact, Fate]]]


def survivals_of(fates: Fates, passes: int, *, first: bool = False) -> tuple[Survival, ...]:
    """Return the sum of all passes that reached the last mark, or of the first pass only."""
    marks = [mark for mark in MARKS if mark <= passes]
    if not marks:
        return ()
    lived = [1] if first else range(1, passes - marks[-1] + 2)
    survivals: list[Survival] = []
    for owner in WHOSE:
        before: Mapping[tuple[int, str], Fate] = {}
        for mark in marks:
            now = {
                (number, tracked_fact.name): fate
                for number in lived
                for tracked_fact, fate in fates.get((number, mark), ())
                if tracked_fact.whose == owner
            }
            if now:
                survivals.append(_survival(owner, mark, now, before))
            before = now
    return tuple(survivals)


def _survival(
    owner: Whose, mark: int, now: Mapping[tuple[int, str], Fate], before: Mapping[tuple[int, str], Fate]
) -> Survival:
    fates = list(now.values())
    current_fates = ("held",) if owner == "gold" else ("held", "ended")  # a current gold fact must not be ended
    return Survival(
        whose=owner,
        compactions=mark,
        facts=len(fates),
        held=fates.count("held"),
        ended=fates.count("ended"),
        found=fates.count("found"),
        lost=fates.count("lost"),
        dropped=tuple(
            key[1] for key, fate in before.items() if fate in current_fates and now.get(key) not in current_fates
        ),
    )


#: Number of search hits in which a fact is looked for that is nowhere else in memory.
HITS = 10
#: Maximum number of facts tracked per pass, evenly spaced.
FACTS: Mapping[Whose, int] = {"user": 12, "others": 4}

Progress = Callable[[int, int, str], None]


class Rehearsal:
    """The replay of one transcript: its posts so far, the passes made, and the fates of the facts they covered."""

    def __init__(self, cue: Cuebook, clock: FrozenClock, transcript: Transcript, facts: Sequence[Fact]) -> None:
        self._cue, self._clock, self._transcript = cue, clock, transcript
        self.heard: list[PostEntry] = []
        self.summary: Summary | None = None
        self.fates: Fates = {}
        self._facts = facts
        self._covered: list[list[TrackedFact]] = []  # the facts each pass covered, in order

    @property
    def covered(self) -> int:
        """Number of posts that the summary covers: the oldest ones."""
        return self.summary.upto_seq if self.summary else 0

    async def run(self, progress: Progress) -> None:
        """Replay all calls, and run pending background jobs after each."""
        name = self._transcript.conversation
        calls = calls_of([post for post in on_path(self._transcript) if not is_system(post)])
        for number, call in enumerate(calls, 1):
            progress(number, len(calls), name)
            posts = [*call.new, *([call.answer] if call.answer else [])]
            advance_to(self._clock, posts[-1].when)
            await self._cue.append(name, [post.posted() for post in posts], user=self._transcript.user)
            self.heard += await self._cue.conversations.posts(name, user=self._transcript.user, last=len(posts))
            await self._cue.work()
            await self._look()
        await self._cue.settle(conversation=name)
        await self._look()

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Search the conversation as its user does."""
        name, user = self._transcript.conversation, self._transcript.user
        return await self._cue.memory.search(query, conversation=name, user=user, limit=limit)

    async def _look(self) -> None:
        """Check the facts whose posts were covered 1, 5 and 20 passes ago, once per pass."""
        summary = await self._cue.services.store.summary(Scope(), self._transcript.conversation)
        before = self.summary.version if self.summary else 0
        if summary is None or summary.version == before:
            return
        self._covered += [list(self._known(self.covered, summary.upto_seq))]
        self._covered += [[] for _ in range(before + 1, summary.version)]  # two passes at once count as one
        self.summary = summary
        items = await listed_items(self._cue.services, Scope(), self._transcript.conversation, ended=True)
        current = [
            *filter(None, summary.markdown.splitlines()),
            *(each.text for each in items if each.valid_to is None),
        ]
        ended = [each.text for each in items if each.valid_to is not None]
        for version in range(before + 1, summary.version + 1):
            for mark in MARKS:
                number = version - mark + 1
                if number >= 1:
                    await self._follow(number, mark, current, ended)

    async def _follow(self, number: int, mark: int, current: Sequence[str], ended: Sequence[str]) -> None:
        """Record where the facts of a pass are: in current texts, in ended ones, in search hits, or nowhere."""
        fates = self.fates.setdefault((number, mark), [])
        for known in self._covered[number - 1]:
            fate: Fate = "lost"
            if any(map(known.fact.in_text, current)):
                fate = "held"
            elif any(map(known.fact.in_text, ended)):
                fate = "ended"
            elif any(known.fact.in_text(hit.text) for hit in await self.search(known.query, HITS)):
                fate = "found"
            fates.append((known, fate))

    def _known(self, start: int, end: int) -> Iterator[TrackedFact]:
        """Yield the facts of the posts that a pass covered."""
        places = {post.id: number for number, post in enumerate(self.heard)}
        for fact in self._facts:
            if fact.current and start <= max((places.get(source, -1) for source in fact.sources), default=-1) < end:
                yield TrackedFact("gold", fact, fact.question)
        for owner, most in FACTS.items():
            posts = [post for post in self.heard[start:end] if (post.role == "user") == (owner == "user")]
            for token in some([token for post in posts for token in tokens_of(post.message)], most):
                yield TrackedFact(owner, token, token.sentence.replace(token.value, " "))


def on_path(transcript: Transcript) -> list[RecordedPost]:
    """Return the posts on the path to a transcript's head, without those of other branches."""
    every = posts_of(transcript)
    if not transcript.parents:
        return every
    recorded_posts = {post.id: post for post in every}
    found: list[RecordedPost] = []
    at: str | None = transcript.head or every[-1].id
    while at in recorded_posts:
        found.append(recorded_posts.pop(at))
        at = transcript.parents.get(at)
    return found[::-1]
