"""Find the post that a resent history continues: by the chained digest of a stored path, or by alignment.

Each post has a chained digest over its path. If all messages but the last ones are a stored path, an index lookup finds
it. Any other history is aligned with the stored tree by the longest common run.

A run is a series of messages stored one after another in the tree. The longest run selects the branch, and the messages
after it are new, with two exceptions. If the middle of a history was cut out, it continues with a run further down the
same branch. If the messages before or between runs are at least as many as the posts there, these posts were edited:
the history continues before them as a new branch. Fewer messages than posts mean that the client dropped posts or
replaced them with a summary, which is no edit: such messages are inserted as a side branch before the run.

A provider's compaction item stands for the messages before it: it determines the branch however much was left out.

Alignment only determines where messages are stored. The window has all messages of the client, in their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.resent_answers import LEAST, contains_summary, is_rewritten
from cuebook.engine.turn.utility_frames import has_known_frame
from cuebook.interfaces.store import Alignment, Insertion, PathQuery, PostSpot, StoredPath
from cuebook.memory.rolling import RELAY
from cuebook.records.conversation import ASSISTANT, TOOL, Conversation, Draft, chain
from cuebook.records.turn import Ask, Turn
from cuebook.wire.chat_messages import ResentMessage
from cuebook.wire.responses_answers import may_be_ours
from cuebook.wire.responses_items import is_compaction

#: Newest answers searched for a history without a conversation id.
ANCHORS = 32
#: Seconds for which a call may belong to a conversation that its client created and filled just before.
LISTED_S = 60.0
#: Last answers among which such a summary is searched, and newest conversations of all users looked up for them.
LAST_ANSWERS = 8
LOOKED = 200
#: Least length of a run further down: a single "ok" does not determine a position.
TAIL = 2
#: Most new messages after a stored path that is found by its chained digest.
NEW = 8


class HistoryPosition(Struct, frozen=True, kw_only=True):
    """Where a request continues its conversation, and its new posts."""

    ask: Ask  # the request's; on a side branch without its text, for which nothing is recalled
    drafts: tuple[Draft, ...] = ()
    parent: int | None = None  # the post they follow; None: the head of a conversation, or its start
    insertions: tuple[Insertion, ...] = ()  # new posts between stored ones, which the drafts do not follow
    new: tuple[int, ...] = ()  # message number of each draft, then of each inserted one
    seqs: Mapping[int, int] = {}  # message number -> the stored post with the same content
    is_side_branch: bool = False  # continues no path: stored apart, without observations; always parallel
    parallel: bool = False  # another turn of the conversation is running, and this one does not wait for its end
    waiting_turn: Turn | None = None  # the open turn that waits for these tool results
    live: Draft | None = None  # the new post as sent, if the stored one has redacted secrets

    def moves_head(self, head: int) -> bool:
        """Return whether the turn continues the conversation's path, whose last post is `head`.

        A parallel turn does so only if it continues posts newer than those: a branch that the client preferred.
        """
        continues = bool(self.drafts) and (self.parent or 0) > head
        return not self.parallel or (continues and not self.is_side_branch)

    def messages_by_seq(self, last_seq: int) -> dict[int, int]:
        """Return the message number of each post of the request, stored or to be stored after `last_seq`."""
        stored = {seq: number for number, seq in self.seqs.items()}
        return stored | {last_seq + 1 + n: number for n, number in enumerate(self.new)}


class Continuation(Struct, frozen=True):
    """The position of new messages, and the stored posts of the others.

    New messages follow the stored post `parent` (0: the root, None: the head). `seqs` maps message numbers to posts.
    Posts on a side branch are stored apart and move no head. `matched` messages are on the branch of the history, an
    answer among them if `answered`. Messages after an edit are new even if they are equal. `gaps` are the new messages
    before runs, by the stored post that they follow.
    """

    conversation: Conversation
    parent: int | None = 0
    first_new: int = 0
    seqs: dict[int, int] = {}
    gaps: tuple[tuple[int, range], ...] = ()
    is_side_branch: bool = False
    matched: int = 0
    answered: bool = False
    paths: tuple[StoredPath, ...] | None = None  # those of the conversation that equal the start of the history


async def name_conversation(services: Services, request: TurnRequest) -> TurnRequest:
    """Return a request with its conversation: the one that its history continues, or a new one.

    A utility call gets a conversation of its own, also where it names one. It reads and writes no memory.
    """
    continuation = None
    if not (request.ask.conversation or request.only_new):
        continuation = await _recognize(services, request)
    if request.utility_sign and await _is_utility(services, request, continuation):
        earlier = continuation.conversation if continuation else None
        name = earlier.id if earlier and earlier.utility else services.dice.new_id("util")
        ask = replace(request.ask, conversation=name, text="", memory_control=None, organization=None, utility=True)
        return replace(request, ask=ask)
    if request.ask.conversation:
        return request
    name = continuation.conversation.id if continuation else services.dice.new_id("conv")
    paths = continuation.paths if continuation else ()
    return replace(request, ask=replace(request.ask, conversation=name), paths=paths)


async def _is_utility(services: Services, request: TurnRequest, continuation: Continuation | None) -> bool:
    """Return whether a request that looks like a utility call is one: it continues no stored path.

    The first request of a conversation that the client names needs a known template.
    """
    if request.utility_sign == "declared":
        return True
    if continuation is not None:  # an earlier attempt of the same request, if it is one
        return continuation.conversation.utility and not continuation.answered
    begins = False
    if request.ask.conversation:
        digests = [each.digest for each in request.history]
        alignments = await services.store.align(request.scope, digests, conversation=request.ask.conversation)
        begins = not (alignments and alignments[0].conversation.last_seq)
        if not begins and not continue_at(alignments[0]).is_side_branch:
            return False
    if begins or request.utility_sign in ("format", "template"):
        return request.utility_sign == "template" or not begins
    return await has_known_frame(services, request)


async def align_history(services: Services, request: TurnRequest, *, is_busy: bool = False) -> HistoryPosition:
    """Return where a request with a named conversation continues it. Raises InvalidInput.

    `is_busy`: another of its turns is running.
    """
    ask, history, writer = request.ask, request.history, services.writer
    if (posted := request.posted) is not None:  # one new post after the head
        where: Any = {"id": request.post_id or services.dice.new_id("post"), "now": services.clock.now()}
        where |= {"persona": None, "user": ask.user}
        draft, live = writer.posted(posted, **where), None
        if draft.message != posted.message or draft.parts != posted.parts:  # stored text has secrets redacted
            live = replace(writer, redactor=None).posted(posted, **where)
            draft = replace(draft, tokens=max(draft.tokens, live.tokens))
        return HistoryPosition(ask=ask, drafts=(draft,), live=live)
    new = Continuation(Conversation(id=ask.conversation, user=ask.user), request.parent)
    if request.only_new:
        return await _position(services, request, new)
    answers = _answers(request)
    paths = request.paths
    if paths is None:
        paths = await _paths(services, request, conversation=ask.conversation)
    continuation = None
    if paths:
        continuation = continue_path(max(paths, key=lambda path: (path.leads_to_head, path.seqs[-1])), answers)
    elif request.paths is None:
        digests = [each.digest for each in history]
        alignments = await services.store.align(request.scope, digests, conversation=ask.conversation)
        stored = bool(alignments and alignments[0].conversation.last_seq)
        continuation = continue_at(alignments[0], answers, states=_states(request)) if stored else None
    if continuation is not None:
        position = await _position(services, request, continuation)
        return replace(position, parallel=is_busy) if position.waiting_turn is None and is_busy else position
    ask = replace(ask, mode=RELAY)  # a conversation whose client resends its whole history
    return await _position(services, replace(request, ask=ask), new)


async def _position(services: Services, request: TurnRequest, continuation: Continuation) -> HistoryPosition:
    """Return the position of a request's messages, with drafts of the new ones."""
    draft = partial(draft_of, services, request, owner=continuation.conversation.user)
    drafts = tuple(map(draft, request.history[continuation.first_new :]))
    gaps = [(at, [request.history[n] for n in numbers]) for at, numbers in continuation.gaps]
    waiting = None
    if not continuation.is_side_branch and continuation.parent != 0 and all(each.role == TOOL for each in drafts):
        caller = continuation.parent if drafts else _caller(request, continuation.seqs)
        if drafts or caller is not None:
            waiting = await _waiting(services, request, parent=continuation.parent, caller=caller)
    inserted = (n for _, numbers in continuation.gaps for n in numbers)
    return HistoryPosition(
        ask=replace(request.ask, text="") if continuation.is_side_branch else request.ask,
        drafts=drafts,
        parent=continuation.parent,
        insertions=tuple((at, tuple(map(draft, messages))) for at, messages in gaps),
        new=(*range(continuation.first_new, len(request.history)), *inserted),
        seqs=continuation.seqs,
        is_side_branch=continuation.is_side_branch,
        parallel=continuation.is_side_branch,
        waiting_turn=waiting,
    )


def draft_of(services: Services, request: TurnRequest, message: ResentMessage, *, owner: str | None) -> Draft:
    """Return the draft of a client's message. `owner` is the conversation's user."""
    return services.writer.message(
        message.raw,
        message.content,
        id=services.dice.new_id("post"),
        user=request.ask.user,
        now=services.clock.now(),
        owner=owner,
        clean=not message.secret,
    )


async def _waiting(services: Services, request: TurnRequest, *, parent: int | None, caller: int | None) -> Turn | None:
    """Return the turn that waits for the results of the calls in post `caller`, by default the head."""
    path_query = PathQuery(conversation=request.ask.conversation, parent=parent, use_summary=False)
    scene = await services.store.scene(request.scope, path_query)
    turn = scene.waiting_turn
    return turn if turn is not None and turn.reply_seq == (caller or scene.parent) else None


def _caller(request: TurnRequest, seqs: Mapping[int, int]) -> int | None:
    """Return the post whose calls the stored results at the end of a history answer, or None."""
    number = last = len(request.history) - 1
    while number >= 0 and request.history[number].role == TOOL:
        number -= 1
    return seqs.get(number) if number < last else None


def _answers(request: TurnRequest) -> frozenset[int]:
    return frozenset(n for n, each in enumerate(request.history) if each.role == ASSISTANT)


def _states(request: TurnRequest) -> frozenset[int]:
    return frozenset(n for n, each in enumerate(request.history) if is_compaction(each.raw))


async def _recognize(services: Services, request: TurnRequest) -> Continuation | None:
    """Return the path that a history without a conversation id continues, or None."""
    history, answers = request.history, _answers(request)
    digests = [each.digest for each in history]
    sought = anchors(digests, answers, most=ANCHORS)
    if not sought and request.retried:  # a retry after an unanswered call: its conversation has only these messages
        same = [
            path
            for path in await _paths(services, request, conversation=None, whole=True)
            if not may_be_ours(path.conversation.id) and path.conversation.last_seq == len(history)
        ]
        if same:
            return _recognized(max(same, key=lambda path: path.conversation.updated_at), same, answers)
    if request.lists and history[-1].role != ASSISTANT:
        since = services.clock.now() - LISTED_S
        listed = [
            path
            for path in await _paths(services, request, conversation=None, whole=True)
            if may_be_ours(path.conversation.id)
            and path.seqs[-1] == path.conversation.head
            and path.conversation.updated_at >= since
        ]
        if len(listed) == 1:  # several equal conversations are ambiguous
            return _recognized(listed[0], listed, answers)
    if not sought:
        return await _summarized(services, request)
    paths = [
        path
        for path in await _paths(services, request, conversation=None)
        if not may_be_ours(path.conversation.id) and answers & set(range(len(path.seqs)))
    ]
    if paths:  # an answer matches, so that two users' "hi" stay separate
        best = max(paths, key=lambda path: (path.seqs[-1] == path.conversation.head, path.conversation.updated_at))
        return _recognized(best, paths, answers)
    alignments = await services.store.align(request.scope, digests, conversation=None, anchors=sought)
    unnamed = [each for each in alignments if not may_be_ours(each.conversation.id)]
    found = same_conversation(unnamed, answers, states=_states(request))
    return found or await _rewritten(services, request, min(answers)) or await _summarized(services, request)


def _recognized(best: StoredPath, paths: Sequence[StoredPath], answers: frozenset[int]) -> Continuation:
    same = tuple(path for path in paths if path.conversation.no == best.conversation.no)
    return replace(continue_path(best, answers), paths=same)


async def _summarized(services: Services, request: TurnRequest) -> Continuation | None:
    """Return the conversation whose last answer is a summary that the user's messages contain, or None.

    A client asked for that summary to replace its history (`/compact`). It may put words around it and leave parts out.
    """
    said = (each.content for each in request.history if each.role == "user")
    text = "\n".join(part for each in said for part in (each.message, *(part.content for part in each.parts)))
    if len(text) < LEAST:
        return None
    heads = await services.store.answers_at_heads(request.scope, looked=LOOKED, limit=LAST_ANSWERS)
    for conversation, answer in heads:
        if contains_summary(text, answer):
            return Continuation(conversation, is_side_branch=True)
    return None


async def _rewritten(services: Services, request: TurnRequest, first: int) -> Continuation | None:
    """Return the path of a conversation with only one answer, which the client rewrote, or None.

    Message `first` has the new form of that answer. The history continues as an edit, before the answer.
    """
    length, written = first, request.history[first].content
    chained = chain(b"", [each.digest for each in request.history[:length]])
    paths = await services.store.stored_paths(request.scope, [(length, chained)], conversation=None) if length else []
    for path in paths:
        conversation, last = path.conversation, path.seqs[-1]
        if may_be_ours(conversation.id) or conversation.last_seq != last + 1 or conversation.head != last + 1:
            continue
        [answer] = await services.store.posts(request.scope, conversation.id, head=last + 1, last=1)
        if answer.role == ASSISTANT and is_rewritten(answer, written):
            return replace(continue_path(path, frozenset()), answered=True)
    return None


# ---- The chained digest ---------------------------------------------------------------------------------------------


async def _paths(
    services: Services, request: TurnRequest, *, conversation: str | None, whole: bool = False
) -> tuple[StoredPath, ...]:
    """Return the stored paths that equal the history up to its last messages, or with `whole` all of it.

    If the path goes on and several messages are new, alignment must look for a run further down: return none.
    """
    many = len(request.history)
    chains = accumulate(
        (each.digest for each in request.history), lambda start, each: chain(start, [each]), initial=b""
    )
    longest_first = list(enumerate(chains))[:0:-1][: 1 if whole else NEW + 1]
    paths = await services.store.stored_paths(request.scope, longest_first, conversation=conversation)
    return tuple(path for path in paths if many - len(path.seqs) < TAIL or path.seqs[-1] == path.conversation.head)


def continue_path(path: StoredPath, answers: frozenset[int]) -> Continuation:
    """Return the position after a stored path with which a history begins. See `continue_at`."""
    seqs = dict(enumerate(path.seqs))
    answered = bool(answers & seqs.keys())
    return Continuation(
        path.conversation,
        path.seqs[-1],
        len(seqs),
        seqs,
        is_side_branch=not (answered or path.leads_to_head),
        matched=len(seqs),
        answered=answered,
    )


def anchors(digests: Sequence[bytes], answers: frozenset[int], *, most: int) -> list[bytes]:
    """Return the digests of the newest answers, newest first, by which a conversation is searched."""
    return [digests[number] for number in sorted(answers, reverse=True)[:most]]


# ---- The longest common run -----------------------------------------------------------------------------------------


class _Run(Struct, frozen=True):
    """Messages `last - length + 1` to `last`, the last of them stored as `seq`."""

    length: int
    last: int
    seq: int

    @property
    def first(self) -> int:
        return self.last - self.length + 1


def continue_at(
    alignment: Alignment,
    answers: frozenset[int] = frozenset(),
    *,
    states: frozenset[int] = frozenset(),
    sure: bool = False,
) -> Continuation:
    """Return the position that a history continues. `answers` are the numbers of its answers.

    A provider's compaction item is unique: a history with a stored one (`states`) continues its branch.

    A history continues a branch if at least half of it is there (with `sure` more than half) with an answer, or if it
    is the start of the branch. Any other history is stored on the side, at the root. So is a call stored on the side
    before without an answer.
    """
    tree, conversation = _AlignmentTree(alignment), alignment.conversation
    run = tree.longest(alignment.places)
    if run is None:
        return Continuation(conversation, is_side_branch=True)
    runs = [*tree.in_front(run), run, *tree.behind(run, answers, states)]
    seqs = {number: seq for each in runs for number, seq in tree.members(each)}
    end, matched = max(seqs), len(seqs)
    answered = bool(answers & seqs.keys())
    is_known = not states.isdisjoint(seqs)
    if (2 * matched < end + 1 + sure and not is_known) or not (answered or tree.begins(seqs) or seqs[end] == tree.head):
        return Continuation(conversation, is_side_branch=True)
    is_side_branch = not answered and not tree.leads_to(seqs[end], tree.head)
    unedited, gaps = tree.unedited(runs)
    last = max(unedited, default=-1)
    return Continuation(
        conversation,
        unedited.get(last, 0),
        last + 1,
        unedited,
        gaps,
        is_side_branch=is_side_branch,
        matched=matched,
        answered=answered,
    )


def same_conversation(
    alignments: Sequence[Alignment], answers: frozenset[int], *, states: frozenset[int] = frozenset()
) -> Continuation | None:
    """Return the conversation that a history without an id continues, or None.

    An answer must match, so that two users' "hi" stay separate. Prefer the conversation with the most matches, then one
    continued at its head, then the most recently used.
    """
    best: tuple[tuple[int, bool, float], Continuation] | None = None
    for alignment in alignments:
        each = continue_at(alignment, answers, states=states, sure=True)
        if not each.answered:
            continue
        conversation = alignment.conversation
        rank = (each.matched, each.parent == conversation.head, conversation.updated_at)
        if best is None or rank > best[0]:
            best = (rank, each)
    return best[1] if best else None


class _AlignmentTree:
    """An alignment with methods to walk its tree."""

    def __init__(self, alignment: Alignment) -> None:
        self._places = alignment.places
        self._posts = alignment.posts
        self._parents = {seq: post_spot.parent for seq, post_spot in alignment.posts.items()}
        self._runs = alignment.runs
        self.head = alignment.conversation.head
        self._children: dict[int, list[int]] = {}
        for seq, parent in self._parents.items():
            self._children.setdefault(parent, []).append(seq)

    def longest(self, places: Sequence[Sequence[int]], start: int = 0) -> _Run | None:
        """Return the longest run.

        Among equal ones, prefer one from a root with the first message, then the later end, then the head's path, then
        the newest.
        """
        longest: list[_Run] = []
        before: dict[int, int] = {}  # seq -> length of the run that ends there, if longer than 1
        last: frozenset[int] = frozenset()
        for number, seqs in enumerate(places, start):
            here = frozenset(seqs)
            before = {seq: before.get(self._parents[seq], 1) + 1 for seq in self._following(here, last)}
            last = here
            top = max(before.values(), default=1 if here else 0)
            least = longest[0].length if longest else 1
            if top >= least:
                ends = [seq for seq, length in before.items() if length == top] if before else here
                longest = [*(longest if top == least else ()), *(_Run(top, number, seq) for seq in ends)]
        return max(longest, key=self._rank, default=None)

    def _rank(self, run: _Run) -> tuple[bool, int, bool, int]:
        rooted = run.first == 0 and self._posts[run.seq].depth == run.length
        return rooted, run.last, self.leads_to(run.seq, self.head), run.seq

    def _following(self, here: frozenset[int], last: frozenset[int]) -> Iterable[int]:
        """Return the posts among `here` that follow one among `last`, by iterating over the smaller set."""
        if len(here) <= len(last):
            return [seq for seq in here if self._parents[seq] in last]
        return [child for seq in last for child in self._children.get(seq, ()) if child in here]

    def members(self, run: _Run) -> list[tuple[int, int]]:
        """Return a run's messages with their posts, last first."""
        members, seq = [], run.seq
        for number in range(run.last, run.first - 1, -1):
            members.append((number, seq))
            seq = self._parents[seq]
        return members

    def leads_to(self, seq: int, below: int) -> bool:
        """Return whether a post is on the path that ends at another (0: none)."""
        if not below or not seq:
            return not seq
        end, start = below, self._posts[below].run
        while end >= seq:
            if start <= seq:
                return True
            end, start = self._runs[start]
        return False

    def begins(self, seqs: dict[int, int]) -> bool:
        """Return whether a history starts at a root with its first message."""
        return 0 in seqs and self._posts[seqs[0]].depth == 1

    def in_front(self, run: _Run) -> list[_Run]:
        """Return the run from the root before another on its branch, or None."""
        top = self.members(run)[-1][1]
        seq = length = 0
        for number in range(run.first):
            follows = [each for each in self._places[number] if self._parents[each] == seq and self.leads_to(each, top)]
            if not follows or follows[0] == top:
                break
            seq, length = follows[0], number + 1
        return [_Run(length, length - 1, seq)] if length else []

    def behind(self, run: _Run, answers: frozenset[int], states: frozenset[int]) -> list[_Run]:
        """Return the later runs on the branch that continue the history, in order."""
        runs: list[_Run] = []
        while True:
            below = [
                tuple(seq for seq in seqs if seq > run.seq and self.leads_to(run.seq, seq))
                for seqs in self._places[run.last + 1 :]
            ]
            tail = self.longest(below, run.last + 1)
            numbers = range(tail.first, tail.last + 1) if tail is not None else range(0)
            if tail is None or (states.isdisjoint(numbers) and (tail.length < TAIL or answers.isdisjoint(numbers))):
                return runs
            runs.append(tail)
            run = tail

    def unedited(self, runs: Sequence[_Run]) -> tuple[dict[int, int], tuple[tuple[int, range], ...]]:
        """Return the posts of the messages before the first edit, and the new messages between these runs.

        A new message before a run follows the post before that run, and so does one inserted there before.
        """
        remaining: dict[int, int] = {}
        gaps: list[tuple[int, range]] = []
        number, depth = 0, 0
        for run in runs:
            members = self.members(run)
            top = members[-1][1]
            first: PostSpot = self._posts[top]
            between, posts = run.first - number, first.depth - 1 - depth
            if between and between >= posts:
                break
            at = first.parent
            for n in range(number, run.first):
                inserted = next((seq for seq in self._places[n] if self._parents[seq] == at and seq != top), None)
                if inserted is None:
                    gaps.append((at, range(n, run.first)))
                    break
                remaining[n] = at = inserted
            remaining.update(members)
            number, depth = run.last + 1, first.depth - 1 + run.length
        return remaining, tuple(gaps)
