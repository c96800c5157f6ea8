"""How a transcript gets into a book: piece by piece, each durable, and on from where it stopped when cut short."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from cuebook.app.blocking import BlockingCuebook
from cuebook.app.transcripts.posts import Given, id_of
from cuebook.app.transcripts.transcript import Transcript
from cuebook.errors import NotFound
from cuebook.interfaces.store import ROOT

# ---- batches --------------------------------------------------------------------------------------------------------


#: Posts stored in one transaction.
SIZE = 500


class PostBatch(Struct, frozen=True, kw_only=True):
    """Consecutive posts and the post the first one follows, None for the head, ROOT for none."""

    posts: tuple[Given, ...]
    parent: str | None


def batches_of(transcript: Transcript, known: Collection[str] = (), *, size: int = SIZE) -> Iterator[PostBatch]:
    """Cut a transcript where a post does not follow the one before it, where `known` ids (stored already) begin or end.

    Known posts come too: appending them changes nothing, and says so if their content is another.
    """
    batch: list[Given] = []
    parent: str | None = None
    previous: str | None = None
    was_known = False
    for post in transcript.posts:
        id_ = id_of(post)
        follows = transcript.parents.get(id_, previous) if transcript.parents else previous
        is_known = id_ in known
        if batch and (follows != previous or is_known != was_known or len(batch) >= size):
            yield PostBatch(posts=tuple(batch), parent=parent)
            batch = []
        if not batch:
            parent = ROOT if follows is None and previous is not None else follows
        batch.append(post)
        previous, was_known = id_, is_known
    if batch:
        yield PostBatch(posts=tuple(batch), parent=parent)


class StoreProgress(Struct, frozen=True, kw_only=True):
    """How far a transcript is: posts done with, and those of them that were new."""

    done: int = 0
    stored: int = 0
    last_seq: int = 0


def store_transcript(
    book: BlockingCuebook,
    transcript: Transcript,
    *,
    conversation: str | None = None,
    user: str | None = None,
    persona: str | None = None,
    time_zone: str | None = None,
) -> Iterator[StoreProgress]:
    """Store a transcript under a name, its own by default, telling how far it is after each piece.

    `time_zone` is whose days it was said on. What is stored already stays as it is. The head is the transcript's own,
    unless the conversation holds more than the transcript does. Raises Conflict where an id is taken by other content.
    """
    name, user = conversation or transcript.conversation, user or transcript.user
    persona, time_zone = persona or transcript.persona, time_zone or transcript.time_zone
    known = _known(book, name, user)
    done = stored = last_seq = 0
    for batch in batches_of(transcript, known):
        appended = book.append(name, batch.posts, user=user, persona=persona, parent=batch.parent, time_zone=time_zone)
        done, stored, last_seq = done + len(batch.posts), stored + appended.stored, appended.last_seq
        yield StoreProgress(done=done, stored=stored, last_seq=last_seq)
    if transcript.head and stored and known <= set(map(id_of, transcript.posts)):
        book.conversations.move_head(name, transcript.head, user=user)


def _known(book: BlockingCuebook, name: str, user: str | None) -> set[str]:
    try:
        return {post.id for post in book.conversations.posts(name, user=user, branches=True)}
    except NotFound:
        return set()
