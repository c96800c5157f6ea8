"""What is read off a path: its rounds, those as one role saw them, and the notes roles leave each other (seed 003).

Nothing is copied: posts are frozen, so every view holds the path's own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.errors import InvalidInput
from cuebook.records.conversation import ASSISTANT, Part, Post, Round, RoundState, SharedEntry
from cuebook.records.portable import shared_entry_from_dict


def rounds_of(posts: Sequence[Post], states: Mapping[int, RoundState]) -> list[Round]:
    """Group a path's posts, oldest first, by the round they belong to; `states` is keyed by a round's seq.

    Posts before the first round (a client's system text) are round 0, which is there only if they are; its query is
    empty. So is the query of a round whose opening post is not among `posts`. A round without a stored state, as posts
    made elsewhere have it, is finished once an assistant has spoken in it, and created until then; round 0 is finished.
    """
    grouped: dict[int, list[Post]] = {}
    for post in posts:
        grouped.setdefault(post.round, []).append(post)
    return [
        Round(
            id=f"round-{seq}",
            seq=seq,
            user_query=next((post.message for post in members if post.seq == seq), ""),
            state=states.get(seq) or ("finished" if not seq or _answered(members) else "created"),
            posts=tuple(members),
        )
        for seq, members in grouped.items()
    ]


def _answered(posts: Iterable[Post]) -> bool:
    return any(post.role == ASSISTANT for post in posts)


def role_rounds(rounds: Iterable[Round], role: str, *, include_failed: bool = False) -> list[Round]:
    """Return each round with only the posts the role sent or received; a round without any stays, empty (D)."""
    seen: list[Round] = []
    for round_ in rounds:
        if round_.state == "failed" and not include_failed:
            continue
        posts = tuple(post for post in round_.posts if role in (post.sender, post.recipient))
        if len(posts) == len(round_.posts):
            seen.append(round_)
        else:
            seen.append(Round(
                id=round_.id, seq=round_.seq, user_query=round_.user_query, state=round_.state, posts=posts
            ))  # fmt: skip
    return seen


def shared_entries(
    rounds: Sequence[Round], *, entry_type: str | None = None, include_failed: bool = False
) -> list[SharedEntry]:
    """Return the entries that hold now, in the order they were last written, each with its sender.

    A sender's later entry of a type replaces its earlier one of the same scope. Scope `conversation` always holds;
    `round` holds only in the last round, and there hides the same sender's `conversation` entry of that type, which
    is back in the next round. When the last round has failed, no `round` entry holds, unless failed ones count.
    """
    held: dict[tuple[str, str, str], SharedEntry] = {}
    last = len(rounds) - 1
    for at, round_ in enumerate(rounds):
        if round_.state == "failed" and not include_failed:
            continue
        for post in round_.posts:
            for entry in _entries(post):
                if entry_type in (None, entry.type) and (at == last or entry.scope == "conversation"):
                    key = (post.sender, entry.type, entry.scope)
                    held.pop(key, None)
                    held[key] = entry
    return [
        entry
        for (sender, kind, scope), entry in held.items()
        if scope == "round" or (sender, kind, "round") not in held
    ]


def _entries(post: Post) -> Iterable[SharedEntry]:
    for part in post.parts:
        if part.type == "shared_memory_entry" and (entry := _entry(part)) is not None:
            yield msgspec.structs.replace(entry, sender=post.sender, id=entry.id or part.id)


def _entry(part: Part) -> SharedEntry | None:
    """Read an entry from `extra` (D keeps it there, a dict after a reload), else from JSON content, else None."""
    if isinstance(part.extra, SharedEntry):
        return part.extra
    for data in (part.extra, _loaded(part.content)):
        if isinstance(data, dict):
            try:
                return shared_entry_from_dict({"content": part.content, **data})
            except InvalidInput:
                continue
    return None


def _loaded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
