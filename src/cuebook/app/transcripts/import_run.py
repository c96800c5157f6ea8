"""Survey what a file or a folder contains, and import it: only what is new, one file at a time."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.memories.writing import OF_A_USER
from cuebook.app.transcripts.account_exports import ForeignMemory
from cuebook.app.transcripts.posts import time_of
from cuebook.app.transcripts.sources import read_sources
from cuebook.app.transcripts.store import store_transcript
from cuebook.app.transcripts.transcript import Transcript
from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.memory.owner_memories import memory_id
from cuebook.records.answer import Time
from cuebook.records.memory import Place

MEM0 = "mem0"


class SourceCounts(Struct, rename="camel", omit_defaults=True):
    """The findings of one program: counts, the first and last time, and the people that it names."""

    source: str
    conversations: int = 0
    posts: int = 0
    memories: int = 0
    first: Time | None = None
    last: Time | None = None
    users: list[str] = field(default_factory=list)

    def add(self, times: list[float], user: str | None) -> None:
        """Extend the dates and the people."""
        known = [each for each in (self.first, self.last) if each is not None] + times
        if known:
            self.first, self.last = Time(min(known)), Time(max(known))
        if user and user not in self.users:
            self.users.append(user)


class Survey(Struct, rename="camel", kw_only=True):
    """The contents of a path, by program, and its parts that cannot be imported."""

    found: list[SourceCounts] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # unreadable records, with file and position
    left_out: Counter[str] = field(default_factory=Counter)  # records that are no messages, by kind
    conversations: dict[str, tuple[set[str], float]] = field(default_factory=dict)  # their users and first time

    @property
    def posts(self) -> int:
        """Return the number of posts."""
        return sum(each.posts for each in self.found)

    @property
    def memories(self) -> int:
        """Return the number of memories."""
        return sum(each.memories for each in self.found)


class ImportProgress(Struct, rename="camel", kw_only=True):
    """The progress of an import: posts and memories processed, how many were new, and what was refused."""

    posts: int = 0
    stored_posts: int = 0
    conversations: int = 0  # with new posts
    memories: int = 0
    stored_memories: int = 0
    refused: list[str] = field(default_factory=list)  # posts, conversations and memories, with the reason


def survey(path: Path, *, user: str | None = None) -> Survey:
    """Return what a path contains. `user` owns all of it. Raises InvalidInput if there is no such file."""
    found: dict[str, SourceCounts] = {}
    result = Survey()
    for file in read_sources(path):
        result.skipped += file.skipped
        result.left_out.update(file.left_out)
        for each in file.transcripts:
            counts = found.setdefault(each.source, SourceCounts(each.source))
            counts.conversations, counts.posts = counts.conversations + 1, counts.posts + len(each.posts)
            times = [time for post in each.posts if (time := time_of(post)) is not None]
            counts.add(times, user or each.user)
            users, first = result.conversations.get(each.conversation, (set(), float("inf")))
            users |= {name for name in (user or each.user,) if name}
            result.conversations[each.conversation] = users, min([first, *times])
        for memory in file.memories:
            counts = found.setdefault(MEM0, SourceCounts(MEM0))
            counts.memories += 1
            counts.add([memory.when] if memory.when is not None else [], user or memory.user)
    result.found = sorted(found.values(), key=lambda each: each.source)
    return result


def import_sources(cue: BlockingCuebook, path: Path, *, user: str | None = None) -> Iterator[ImportProgress]:
    """Store what a path contains and yield the progress. A second run adds nothing, and a grown file only the new."""
    progress = ImportProgress()
    for file in read_sources(path):
        for transcript in file.transcripts:
            yield from _store(cue, transcript, progress, user=user)
        for memory in file.memories:
            _remember(cue, memory, progress, user=user)
            yield progress


def _store(
    cue: BlockingCuebook, transcript: Transcript, progress: ImportProgress, *, user: str | None
) -> Iterator[ImportProgress]:
    name, before, stored = transcript.conversation, progress.posts, progress.stored_posts

    def refuse(post: str, error: InvalidInput) -> None:
        progress.refused.append(f"{name}: post {post}: {str(error).removeprefix('posts[0]: ')}")

    try:
        for step in store_transcript(cue, transcript, user=user, skip=refuse):
            progress.posts, progress.stored_posts = before + step.done, stored + step.stored
            yield progress
    except (Conflict, InvalidInput, NotFound) as error:
        progress.refused.append(f"{name}: {error}")
        progress.posts = before + len(transcript.posts)
        yield progress
    progress.conversations += progress.stored_posts > stored


def _remember(cue: BlockingCuebook, memory: ForeignMemory, progress: ImportProgress, *, user: str | None) -> None:
    """Store a memory of another store unless a version that is as new is stored."""
    progress.memories += 1
    owner, key = user or memory.user, f"{MEM0} {memory.id}"
    if not owner:
        progress.refused.append(f"memory {memory.id}: no user. Name the user with --user.")
        return
    try:
        stored = cue.memory.get(memory_id(Place("user", owner), OF_A_USER, key), user=owner)
    except NotFound:
        stored = None
    if stored and (stored.text == memory.text or stored.corrected or (memory.when or 0.0) <= stored.valid_from):
        return
    try:
        cue.memory.add(memory.text, category=OF_A_USER, key=key, user=owner)
        progress.stored_memories += 1
    except (Conflict, InvalidInput) as error:
        progress.refused.append(f"memory {memory.id}: {error}")
