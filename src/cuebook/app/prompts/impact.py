"""Measure the impact of a prompt change: rebuild the windows of recent turns that used the prompt, with the change."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import fmean

from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.replay.recorded_turn import read_recorded
from cuebook.engine.replay.redecide import OtherVersion, WindowDiff, concerns, redecide
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.conversation import Conversation
from cuebook.records.expression import counted
from cuebook.records.memory import Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import Block, Turn, Window

#: Default and maximum number of turns to measure.
TURNS, MOST_TURNS = 50, 200
#: Number of newest turns that are searched for the prompt.
LOOKED_AT = 1_000
#: Maximum number of turns listed per difference: the newest.
NAMED = 20
#: Number of conversations loaded at a time.
_PAGE = 50

#: The difference in a turn's window, and the turn if the caller may see it.
Placed = tuple[WindowDiff, "TurnAt | None"]
#: A block in only one of two windows: its kind and its tokens.
Gone = tuple[str, int]
_PLURALS = {"memory": "memories", "summary": "summaries"}
_ORDER = ("memory", "post", "summary")


class Tokens(Struct, frozen=True):
    """Tokens with the old version and with the new one, and the difference: new minus old."""

    before: int
    after: int
    change: int


class TurnAt(Struct, frozen=True, rename={"conversation": "conversationId"}):
    """A turn of a conversation."""

    conversation: str
    turn: int


class BlockChanges(Struct, frozen=True, kw_only=True):
    """Blocks of a kind that were removed from or added to windows."""

    kind: str
    turns: int  # affected
    share: float  # of the measured turns
    total: int  # blocks
    mean: float  # blocks per affected turn
    tokens: int  # in all
    at: tuple[TurnAt, ...] = ()  # the newest of these turns, NAMED at most


class Reason(Struct, frozen=True):
    """Why something could not be done, and the number of turns affected."""

    reason: str
    turns: int


class Impact(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect that a version would have had on the windows of the last turns that used its prompt.

    Tokens are means over the measured turns, or those of the text itself if no turn was measured.
    """

    summary: str = ""  # the whole result in one sentence
    turns: int  # measured
    looked_at: int  # turns that were searched
    share: float  # of turns in which more is left out, or the window is refused
    prompt: Tokens = field(name="tokens")  # the prompt and all prompts that depend on it, rendered
    window: Tokens  # excluding refused turns
    left_out: tuple[BlockChanges, ...]
    let_in: tuple[BlockChanges, ...]
    shortened: int  # posts that would newly be compressed or cut
    shortened_at: tuple[TurnAt, ...]  # in these turns, the newest, NAMED at most
    prefix_kept: float  # share of leading bytes that stay the same, 0..1: usable from a provider's cache
    refused: int  # turns that would fail: required content does not fit their window
    refused_at: tuple[TurnAt, ...]  # the newest, NAMED at most
    reproduced: int  # turns whose window was reproduced byte for byte
    unsaid: tuple[Reason, ...]  # why the new version could not be rendered, and was left out itself
    missed: tuple[Reason, ...]  # turns that could not be rebuilt


async def measure(
    services: Services, before: Version, after: Version, *, tokens: Tokens, turns: int, user: str | None
) -> Impact:
    """Measure a change on the last `turns` turns that used the prompt. `tokens` are those of the two whole texts.

    Builds two or three windows per turn and stores nothing. With `user`, only turns of their conversations are listed.
    """
    branches = frozenset({before.branch, after.branch})
    one, other = OtherVersion(before, branches), OtherVersion(after, branches)
    results, looked_at = await _turns_with(services, other, turns)
    diffs: list[Placed] = []
    missed: Counter[str] = Counter()
    for conversation, turn in results:
        try:
            recorded = await read_recorded(services, Scope(), conversation, turn)
        except NotFound:
            missed["erased"] += 1
            continue
        try:
            diff = await redecide(services, Scope(), recorded, versions=[other], before=one)
        except InvalidInput:
            missed["its window does not hold the version before either"] += 1
            continue
        named = user is None or user in (conversation.user, *conversation.participants)
        diffs.append((diff, TurnAt(conversation.id, turn.n) if named else None))
    return _sum(diffs, tokens, missed, looked_at)


# ---- which turns ----------------------------------------------------------------------------------------------------


async def _turns_with(
    services: Services, change: OtherVersion, most: int
) -> tuple[list[tuple[Conversation, Turn]], int]:
    """Return the newest turns that used the prompt, newest first, and the number of turns searched.

    Loads the last `most` turns of each conversation.
    """
    results: list[tuple[Conversation, Turn]] = []
    looked_at, cursor = 0, None
    while True:
        page = await services.store.conversations(Scope(), limit=_PAGE, cursor=cursor)
        for conversation in page.items:
            if len(results) >= most and conversation.updated_at < results[most - 1][1].created_at:
                return results[:most], looked_at  # conversations changed earlier have no newer turns
            if looked_at >= LOOKED_AT:
                return results[:most], looked_at
            turns = await _last(services, conversation, most)
            looked_at += len(turns)
            results += [
                (conversation, each) for each in turns if await concerns(services, change, each.steps[0].manifest)
            ]
            results.sort(key=lambda each: each[1].created_at, reverse=True)
        if page.next is None:
            return results[:most], looked_at
        cursor = page.next


async def _last(services: Services, conversation: Conversation, most: int) -> list[Turn]:
    if not conversation.turns:
        return []
    try:
        turns = await services.store.turns(Scope(), conversation.id, last=most)
    except NotFound:  # deleted meanwhile
        return []
    return [each for each in turns if each.steps]


# ---- sums -----------------------------------------------------------------------------------------------------------


def _sum(placed: Sequence[Placed], written: Tokens, missed: Counter[str], looked_at: int) -> Impact:
    diffs = [each for each, _ in placed]
    fitting = [(each, each.after, at) for each, at in placed if each.after is not None]
    left_out = [(_gone(diff.left_out, after), at) for diff, after, at in fitting]
    let_in = [(_gone(diff.let_in, diff.before), at) for diff, _, at in fitting]
    turns, refused = len(diffs), len(diffs) - len(fitting)
    impact = Impact(
        turns=turns,
        looked_at=looked_at,
        share=round((sum(bool(gone) for gone, _ in left_out) + refused) / turns, 4) if turns else 0.0,
        prompt=_mean([each.prompt_tokens for each in diffs]) if diffs else written,
        window=_mean([(diff.before.tokens, after.tokens) for diff, after, _ in fitting]),
        left_out=_by_kind(left_out, turns),
        let_in=_by_kind(let_in, turns),
        shortened=sum(diff.shortened for diff, _, _ in fitting),
        shortened_at=_newest(at for diff, _, at in fitting if diff.shortened),
        prefix_kept=round(fmean(diff.prefix for diff, _, _ in fitting), 4) if fitting else 1.0,
        refused=refused,
        refused_at=_newest(at for each, at in placed if each.after is None),
        reproduced=sum(each.reproduced for each in diffs),
        unsaid=_reasons(Counter(each.unsaid for each in diffs if each.unsaid)),
        missed=_reasons(missed),
    )
    return replace(impact, summary="; ".join((f"{impact.prompt.change:+,} tokens", *_clauses(impact))))


def _gone(blocks: Sequence[Block], other: Window) -> list[Gone]:
    """Return the posts, the recalled text and the summary among blocks that only one window has.

    A post in full in the other window does not count when it is no longer recalled.
    """
    full = {block.source for block in other.blocks if block.seq and block.form == "full"}
    gone = [("post", block.tokens) for block in blocks if block.seq]
    gone += [
        (each.kind, each.tokens) for each in blocks if not each.seq and each.role == "user" and each.source not in full
    ]
    return gone + [("summary", block.tokens) for block in blocks if block.kind == "summary"]


def _tokens(before: int, after: int) -> Tokens:
    return Tokens(before, after, after - before)


def _mean(pairs: Sequence[tuple[int, int]]) -> Tokens:
    return _tokens(*(round(fmean(side)) for side in zip(*pairs, strict=True))) if pairs else _tokens(0, 0)


def _newest(turns: Iterable[TurnAt | None]) -> tuple[TurnAt, ...]:
    """Return the turns that may be listed, newest first."""
    return tuple(islice((each for each in turns if each is not None), NAMED))


def _by_kind(turns: Sequence[tuple[Sequence[Gone], TurnAt | None]], measured: int) -> tuple[BlockChanges, ...]:
    """Count by kind; memories first, then posts."""
    kinds = {kind for gone, _ in turns for kind, _ in gone}
    changes: list[BlockChanges] = []
    for kind in sorted(kinds, key=lambda kind: (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), kind)):
        blocks = [([tokens for other, tokens in gone if other == kind], at) for gone, at in turns]
        affected = [(tokens, at) for tokens, at in blocks if tokens]
        total = sum(len(tokens) for tokens, _ in affected)
        changes.append(
            BlockChanges(
                kind=kind,
                turns=len(affected),
                share=round(len(affected) / measured, 4),
                total=total,
                mean=round(total / len(affected), 2),
                tokens=sum(sum(tokens) for tokens, _ in affected),
                at=_newest(at for _, at in affected),
            )
        )
    return tuple(changes)


def _reasons(counted: Counter[str]) -> tuple[Reason, ...]:
    return tuple(Reason(reason, turns) for reason, turns in counted.most_common())


# ---- words ----------------------------------------------------------------------------------------------------------


def _clauses(impact: Impact) -> list[str]:
    of = "the last turn" if impact.turns == 1 else f"the last {impact.turns} turns"
    lines = []
    if impact.left_out:
        lines.append(f"leaves out {_parts(impact.left_out, impact.turns)} of {of}")
    if impact.let_in:
        lines.append(f"lets in {_parts(impact.let_in, impact.turns)} of {of}")
    if impact.shortened:
        lines.append(f"shortens {_many(impact.shortened, 'post')} in {of}")
    if impact.refused:
        lines.append(f"does not fit {_percent(impact.refused, impact.turns)} of {of}: they would fail")
    if impact.turns and not lines:
        lines.append(f"leaves out nothing in {of}")
    lines += [f"cannot be rendered in {_many(each.turns, 'turn')} ({each.reason})" for each in impact.unsaid]
    missing = ", ".join(f"{each.turns} {each.reason}" for each in impact.missed)
    if missing:
        lines.append(f"{_many(sum(each.turns for each in impact.missed), 'turn')} not measured ({missing})")
    elif not impact.turns:
        lines.append(
            f"none of the last {_many(impact.looked_at, 'turn')} used it" if impact.looked_at else "no turn is recorded"
        )
    return lines


def _parts(moved: Sequence[BlockChanges], turns: int) -> str:
    return " and ".join(f"{_many(each.mean, each.kind)} in {_percent(each.turns, turns)}" for each in moved)


def _many(count: float, kind: str) -> str:
    return counted(count, kind, _PLURALS.get(kind, ""))


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 1 else "under 1 %"
