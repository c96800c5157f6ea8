"""In which pieces a transcript is stored, so that a long one shows progress and one cut short goes on."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from cuebook.app.transcripts.posts import Given, id_of
from cuebook.app.transcripts.transcript import Transcript
from cuebook.ports.store import ROOT

#: Posts stored in one transaction.
SIZE = 500


class Batch(Struct, frozen=True, kw_only=True):
    """Consecutive posts and the post the first one follows, None for the head, ROOT for none."""

    posts: tuple[Given, ...]
    parent: str | None


def batches_of(transcript: Transcript, known: Collection[str] = (), *, size: int = SIZE) -> Iterator[Batch]:
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
            yield Batch(posts=tuple(batch), parent=parent)
            batch = []
        if not batch:
            parent = ROOT if follows is None and previous is not None else follows
        batch.append(post)
        previous, was_known = id_, is_known
    if batch:
        yield Batch(posts=tuple(batch), parent=parent)
