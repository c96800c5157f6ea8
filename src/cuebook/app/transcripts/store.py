"""Import a transcript in durable batches; an interrupted import can be resumed."""

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.transcripts.posts import Given, id_of
from cuebook.app.transcripts.transcript import Transcript
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import ROOT

# ---- batches --------------------------------------------------------------------------------------------------------


#: Number of posts per transaction.
SIZE = 500


#: Consecutive posts, and the parent of the first one: None for the head, ROOT for none.
PostBatch = tuple[Sequence[Given], str | None]


def batches_of(transcript: Transcript, known: Collection[str] = (), *, size: int = SIZE) -> Iterator[PostBatch]:
    """Split a transcript into batches, at branches and at the borders of `known` (already stored) posts.

    Known posts are included: appending them changes nothing, but detects different content.
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
            yield tuple(batch), parent
            batch = []
        if not batch:
            parent = ROOT if follows is None and previous is not None else follows
        batch.append(post)
        previous, was_known = id_, is_known
    if batch:
        yield tuple(batch), parent


class StoreProgress(Struct, frozen=True, kw_only=True):
    """The progress of an import: posts processed, and how many of them were new."""

    done: int = 0
    stored: int = 0
    last_seq: int = 0


def store_transcript(
    cue: BlockingCuebook,
    transcript: Transcript,
    *,
    conversation: str | None = None,
    user: str | None = None,
    persona: str | None = None,
    time_zone: str | None = None,
    skip: Callable[[str, InvalidInput], None] | None = None,
) -> Iterator[StoreProgress]:
    """Store a transcript under a name (default: its own), and yield the progress after each batch.

    `time_zone` sets its calendar days. Stored posts stay unchanged. The head becomes the transcript's, unless the
    conversation has more posts than the transcript. Raises Conflict if an id has other content, and InvalidInput for
    a post that cannot be stored. With `skip`, it is called with such a post's id and error, and the others are stored.
    """
    name, user = conversation or transcript.conversation, user or transcript.user
    persona, time_zone = persona or transcript.persona, time_zone or transcript.time_zone
    known = _known(cue, name, user)
    done = stored = last_seq = 0
    left_out: dict[str, str | None] = {}  # posts that cannot be stored, with their parents
    batches = list(batches_of(transcript, known))
    while batches:
        posts, parent = batches.pop(0)
        while parent in left_out:
            parent = left_out[parent]
        try:
            appended = cue.append(name, posts, user=user, persona=persona, parent=parent, time_zone=time_zone)
        except InvalidInput as error:
            if skip is None:
                raise
            if len(posts) > 1:
                batches[:0] = _one_by_one(posts, parent)
                continue
            left_out[id_of(posts[0])] = parent
            skip(id_of(posts[0]), error)
        else:
            stored, last_seq = stored + appended.stored, appended.last_seq
        done += len(posts)
        yield StoreProgress(done=done, stored=stored, last_seq=last_seq)
    if transcript.head and stored and known <= set(map(id_of, transcript.posts)):
        cue.conversations.move_head(name, transcript.head, user=user)


def _one_by_one(posts: Sequence[Given], parent: str | None) -> list[PostBatch]:
    """Return a batch for each post."""
    return [((post,), parent if n == 0 else id_of(posts[n - 1])) for n, post in enumerate(posts)]


def _known(cue: BlockingCuebook, name: str, user: str | None) -> set[str]:
    try:
        return {post.id for post in cue.conversations.posts(name, user=user, branches="all")}
    except NotFound:
        return set()
