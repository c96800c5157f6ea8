"""Compares the state of a conversation in a store with the reference, through the port only."""

from typing import Any

from cuebook.errors import NotFound
from cuebook.interfaces.store import PathQuery, Scene
from cuebook.records.memory import Scope
from cuebook.records.turn import Turn as TurnRecord
from cuebook.storage.store import Store
from storage.reference_conversation import ReferenceConversation, Turn

State = dict[str, Any]


async def state_of(store: Store, scope: Scope, conversation: str) -> State | None:
    """Load everything a store returns about a conversation, or None if it does not exist."""
    try:
        row = await store.conversation(scope, conversation)
    except NotFound:
        return None
    summary = await store.summary(scope, conversation)
    return {
        "user": row.user,
        "head": row.head,
        "last_seq": row.last_seq,
        "fence": row.fence,
        "until": row.lease_until,
        "open_round": row.open_round,
        "updated_at": row.updated_at,
        "mark": row.mark,
        "backlog": (row.backlog, row.backlog_tokens),
        "posts": await store.posts(scope, conversation, path=False),
        "path": [post.seq for post in await store.posts(scope, conversation)],
        "turns": [_turn(turn) for turn in await store.turns(scope, conversation, last=row.turns + 1)],
        "rounds": await store.round_states(scope, conversation),
        "summary": (summary.upto_seq, summary.version) if summary else (0, 0),
        "items": await store.items(scope, conversation),
        "all_items": await store.items(scope, conversation, ended=True),
    }


def expected_state(talk: ReferenceConversation) -> State:
    """Return the expected state of a conversation."""
    behind = talk.backlog()
    return {
        "user": talk.user,
        "head": talk.head,
        "last_seq": len(talk.posts),
        "fence": talk.fence,
        "until": talk.until,
        "open_round": talk.open_round,
        "updated_at": talk.updated_at,
        "mark": talk.mark(talk.head)[0],
        "backlog": (len(behind), talk.tokens(behind)),
        "posts": [kept.as_post() for kept in talk.posts],
        "path": talk.path(talk.head),
        "turns": [_expected_turn(turn) for turn in talk.turns],
        "rounds": talk.round_states(),
        "summary": talk.mark(talk.head),
        "items": talk.items(),
        "all_items": talk.items(ended=True),
    }


def differences(found: State | None, expected: State | None) -> list[str]:
    """Return the fields in which two states differ."""
    if found is None or expected is None:
        return [] if found is expected else [f"stored: {found is not None}, expected: {expected is not None}"]
    return [
        f"{name}: {found[name]!r}, expected {expected[name]!r}" for name in expected if found[name] != expected[name]
    ]


def _turn(turn: TurnRecord) -> tuple[Any, ...]:
    steps = [(step.n, step.state, step.reply_seq) for step in turn.steps]
    return (
        turn.n, turn.round, turn.query_seq, turn.state, turn.waiting, turn.reply_seq, turn.metadata, turn.partial,
        steps, turn.closed_at is None,
    )  # fmt: skip


def _expected_turn(turn: Turn) -> tuple[Any, ...]:
    steps = [(step.n, step.state, step.reply) for step in turn.steps]
    partial = turn.steps[-1].partial
    return (
        turn.n, turn.round, turn.query, turn.state, turn.waiting, turn.reply, turn.metadata,
        partial.message if partial else "", steps, turn.state == "running",
    )  # fmt: skip


def check_scene(scene: Scene, talk: ReferenceConversation, look: PathQuery) -> None:
    """Assert that a scene covers each post of its path once, and reads as much as its caps allow."""
    parent = talk.head if look.parent is None else look.parent
    path = talk.path(parent)
    mark, version = _standing(talk, parent, look)
    behind = [seq for seq in path if seq > mark]
    assert (scene.parent, scene.path_count) == (parent, len(path))
    assert (scene.summary.version if scene.summary else 0) == version
    left_out = [seq for gap in scene.unread for seq in range(gap.first, gap.last + 1)]
    assert left_out + [post.seq for post in scene.path] == behind, "each post after the mark is covered exactly once"
    for gap in scene.unread:
        span = [seq for seq in left_out if gap.first <= seq <= gap.last]
        assert (gap.count, gap.tokens) == (len(span), talk.tokens(span))
    expected = _caps(talk, behind, look)
    assert [(post.seq, post.message is not None) for post in scene.path] == expected
    for post in scene.path:
        draft = talk.posts[post.seq - 1].draft
        assert post.path_tokens == talk.tokens(talk.path(post.seq)), "running sums along the path"
        assert (post.tokens, post.small, post.role, post.state) == (draft.tokens, draft.small, draft.role, draft.state)
        assert post.message in (None, draft.message)
        assert post.round == talk.posts[post.seq - 1].round


def _standing(talk: ReferenceConversation, parent: int, look: PathQuery) -> tuple[int, int]:
    """Return seq and version of the summary that precedes the read path."""
    if not look.use_summary:
        return 0, 0
    if look.summary_version is None:
        return talk.mark(parent)
    path = set(talk.path(parent))
    named = [(d.summary.upto_seq, d.version) for d in talk.digests if d.version == look.summary_version]
    return next((each for each in named if each[0] in path), (0, 0))


def _caps(talk: ReferenceConversation, behind: list[int], look: PathQuery) -> list[tuple[int, bool]]:
    """Return the posts that the caps allow, oldest first: (seq, whole)."""
    found: list[tuple[int, bool]] = []
    rest = behind[::-1]
    used, most, after = 0, look.post_tokens or 1 << 60, look.small_after or look.full_tokens
    counted = 0
    while rest and (used + min(most, talk.posts[rest[0] - 1].draft.tokens) <= look.full_tokens or not found):
        draft = talk.posts[rest[0] - 1].draft
        used += min(most, draft.tokens)
        counted += (draft.small_tokens or draft.tokens) if used > after else 0
        found.append((rest.pop(0), True))
    used = counted
    while rest:
        draft = talk.posts[rest[0] - 1].draft
        used += draft.small_tokens or draft.tokens
        if used > look.small_tokens:
            break
        found.append((rest.pop(0), draft.small is None))
    return found[::-1]
