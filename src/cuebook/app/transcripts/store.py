"""How a transcript gets into a book: piece by piece, each durable, and on from where it stopped when cut short."""

from collections.abc import Iterator

from msgspec import Struct

from cuebook.app.blocking import BlockingCuebook
from cuebook.app.transcripts.batches import batches_of
from cuebook.app.transcripts.posts import id_of
from cuebook.app.transcripts.transcript import Transcript
from cuebook.errors import NotFound


class Stored(Struct, frozen=True, kw_only=True):
    """How far a transcript is: posts done with, those of them that were new, and those left out."""

    done: int = 0
    stored: int = 0
    left_out: int = 0
    last_seq: int = 0


def store_transcript(
    book: BlockingCuebook,
    transcript: Transcript,
    *,
    conversation: str | None = None,
    user: str | None = None,
    persona: str | None = None,
) -> Iterator[Stored]:
    """Store a transcript under a name, its own by default, telling how far it is after each piece.

    What is stored already stays as it is. A post that begins the conversation anew, a second root, cannot be stored
    beside the first: it is left out with all that follows it. Raises Conflict where an id is taken by other content.
    """
    name, user = conversation or transcript.conversation, user or transcript.user
    persona = persona or transcript.persona
    known = _known(book, name, user)
    left_out: set[str] = set()
    done = stored = last_seq = 0
    for batch in batches_of(transcript, known):
        anew = batch.parent is None and done > 0
        done += len(batch.posts)
        if anew or batch.parent in left_out:
            left_out.update(map(id_of, batch.posts))
        else:
            appended = book.append(name, batch.posts, user=user, persona=persona, parent=batch.parent)
            stored, last_seq = stored + appended.stored, appended.last_seq
        yield Stored(done=done, stored=stored, left_out=len(left_out), last_seq=last_seq)
    if not known and transcript.head and transcript.head not in left_out:
        book.conversations.move_head(name, transcript.head, user=user)


def _known(book: BlockingCuebook, name: str, user: str | None) -> set[str]:
    try:
        return {post.id for post in book.conversations.posts(name, user=user, branches=True)}
    except NotFound:
        return set()
