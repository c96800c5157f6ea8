"""Where a resent history continues what is stored: by its longest common run (DESIGN §3)."""

from collections.abc import Sequence

from msgspec import Struct

from cuebook.ports.store import Alignment


class Continuation(Struct, frozen=True):
    """The stored post new messages follow, and which of the messages are stored (message number -> seq)."""

    parent: int
    first_new: int
    seqs: dict[int, int]
    length: int  # messages of the run
    whole: bool  # the run begins at a root with the first message
    alignment: Alignment


def continue_at(alignment: Alignment) -> Continuation | None:
    """Give the longest run of messages that lie one behind another in the tree; None where none lies there at all.

    An edit in the middle (every later message resent in its place) continues before the edit, so that it becomes a branch; a
    history that was trimmed or replaced in front continues at its longest run. Of equal runs the one that ends later wins, then
    the one nearest the head.
    """
    best = _longest(alignment)
    if best is None:
        return None
    length, last, seq = best
    prefix, root_end = _prefix(alignment)
    if _edited_in_place(alignment, prefix, root_end):
        length, last, seq = prefix, prefix - 1, root_end
    if last < 0:
        return Continuation(parent=0, first_new=0, seqs={}, length=0, whole=False, alignment=alignment)
    seqs = {}
    for number in range(last, last - length, -1):
        seqs[number] = seq
        seq = alignment.parents[seq]
    return Continuation(
        parent=seqs[last],
        first_new=last + 1,
        seqs=seqs,
        length=length,
        whole=last - length + 1 == 0 and seq == 0,
        alignment=alignment,
    )


def _longest(alignment: Alignment) -> tuple[int, int, int] | None:
    """(length, last message, its seq) of the best run."""
    head = alignment.conversation.head
    before: dict[int, int] = {}
    best: tuple[int, int, bool, int] | None = None
    for number, seqs in enumerate(alignment.places):
        here = {seq: before.get(alignment.parents[seq], 0) + 1 for seq in seqs}
        for seq, length in here.items():
            rank = (length, number, seq == head, seq)
            if best is None or rank > best:
                best = rank
        before = here
    return (best[0], best[1], best[3]) if best else None


def _prefix(alignment: Alignment) -> tuple[int, int]:
    """How many first messages lie one behind another from a root on, and the last one's seq; (0, 0) for none."""
    heads = {0}
    count = last = 0
    for seqs in alignment.places:
        heads = {seq for seq in seqs if alignment.parents[seq] in heads}
        if not heads:
            break
        count, last = count + 1, max(heads)
    return count, last


def _edited_in_place(alignment: Alignment, prefix: int, root_end: int) -> bool:
    """Whether, behind one changed message, the next one lies just where it would without the change: an edit, not a trim."""
    places = alignment.places
    if prefix + 1 >= len(places) or places[prefix]:
        return False
    return any(alignment.parents[seq] == root_end + 1 for seq in places[prefix + 1])


def same_conversation(found: Sequence[Alignment], *, new_from: int) -> Continuation | None:
    """Of several conversations the one a history without an id continues: the longest run, one that ends at a leaf, the newest.

    A run counts only if it holds an answer, so that two users' "hi" stay two conversations; the caller sends digests of answers as
    anchors. `new_from` is the first message behind the newest answer.
    """
    best: tuple[tuple[int, int, float], Continuation] | None = None
    for alignment in found:
        continuation = continue_at(alignment)
        if continuation is None or continuation.first_new < min(1, new_from):
            continue
        leaf = int(continuation.parent in alignment.leaves)
        rank = (continuation.length, leaf, alignment.conversation.updated_at)
        if best is None or rank > best[0]:
            best = (rank, continuation)
    return best[1] if best else None


def digest_list(digests: Sequence[bytes], roles: Sequence[str], *, most: int) -> list[bytes]:
    """Digests of the newest answers, newest first: what a conversation is looked for by."""
    return [digest for digest, role in zip(reversed(digests), reversed(roles), strict=True) if role == "assistant"][
        :most
    ]
