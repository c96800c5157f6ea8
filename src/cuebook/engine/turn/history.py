"""Find the post that a resent history continues: by the chained digest of a stored path, or by alignment.

Each post has a chained digest over its path. If all messages but the last ones are a stored path, an index lookup finds
it (`continue_path`). Any other history is aligned with the stored tree by the longest common run (`continue_at` in
`alignment`).

Alignment only determines where messages are stored. The window has all messages of the client, in their order.
"""

import html
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.drafts import Posted, PostFactory
from cuebook.engine.core.offload import slices
from cuebook.engine.core.services import Services
from cuebook.engine.turn.alignment import TAIL, Continuation, anchors, continue_at, continue_path, same_conversation
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.utility_frames import has_known_frame
from cuebook.interfaces.store import Insertion, PathQuery, StoredPath
from cuebook.memory.rolling import RELAY
from cuebook.records.conversation import ASSISTANT, TOOL, Conversation, Draft, Post, chain
from cuebook.records.turn import Ask, Turn
from cuebook.wire.chat_messages import MessageContent, ResentMessage, read_call
from cuebook.wire.responses_answers import may_be_ours
from cuebook.wire.responses_items import is_compaction

#: Newest answers searched for a history without a conversation id.
ANCHORS = 32
#: Seconds for which a call may belong to a conversation that its client created and filled just before.
LISTED_S = 60.0
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
    if continuation is None and request.key:
        record = await services.idempotency_record(request.scope, request.key)
        if record is not None:  # a retry
            return replace(request, ask=replace(request.ask, conversation=record.conversation))
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
        size = len(posted.message) + sum(len(part.content) for part in posted.parts)
        draft, live = await services.offload.compute(
            draft_posted, writer, posted, where, size=size, items=len(posted.parts)
        )
        return await _repeated(services, request, HistoryPosition(ask=ask, drafts=(draft,), live=live))
    new = Continuation(Conversation(id=ask.conversation, user=ask.user), request.parent)
    if request.only_new:
        return await _repeated(services, request, await _position(services, request, new))
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
    draft = partial(_drafts, services, request, owner=continuation.conversation.user)
    drafts = await draft(request.history[continuation.first_new :])
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
        insertions=tuple([(at, await draft(messages)) for at, messages in gaps]),
        new=(*range(continuation.first_new, len(request.history)), *inserted),
        seqs=continuation.seqs,
        is_side_branch=continuation.is_side_branch,
        parallel=continuation.is_side_branch,
        waiting_turn=waiting,
    )


async def _repeated(services: Services, request: TurnRequest, position: HistoryPosition) -> HistoryPosition:
    """Return the position of a request that may repeat one with its Idempotency-Key, whose posts are stored.

    Its step has no complete answer: the posts are answered again as a sibling branch. If the conversation has continued
    meanwhile, that is a side branch. Any other request keeps its position.
    """
    scope, name = request.scope, request.ask.conversation
    record = await services.idempotency_record(scope, request.key) if request.key else None
    if record is None or record.conversation != name:
        return position
    step = (await services.store.turn(scope, name, record.turn)).steps[record.step - 1]
    first = step.base + 1 - len(request.history) - (request.posted is not None)
    stored = await services.store.posts_in(scope, name, [(first, step.base)])
    if step.state not in ("failed", "interrupted") or len(stored) <= step.base - first:  # or erased
        return position
    newest = [post.seq for post in await services.store.posts(scope, name, last=2)]
    return replace(
        position,
        drafts=(),
        parent=step.base,
        new=(),
        seqs={number: first + number for number in range(len(request.history))},
        parallel=newest[-1:] != [step.base] and newest != [step.base, step.reply_seq],
        waiting_turn=None,
    )


def draft_posted(writer: PostFactory, posted: Posted, where: Mapping[str, Any]) -> tuple[Draft, Draft | None]:
    """Return the draft of a new post, and the one of its own text if the stored text has secrets redacted."""
    draft = writer.posted(posted, **where)
    if draft.message == posted.message and draft.parts == posted.parts:
        return draft, None
    live = replace(writer, redactor=None).posted(posted, **where)
    return replace(draft, tokens=max(draft.tokens, live.tokens)), live


def draft_of(services: Services, request: TurnRequest, message: ResentMessage, *, owner: str | None) -> Draft:
    """Return the draft of a client's message. `owner` is the conversation's user."""
    where = {"user": request.ask.user, "now": services.clock.now(), "owner": owner}
    return draft_messages(services.writer, [(services.dice.new_id("post"), message)], where)[0]


def draft_messages(
    writer: PostFactory, messages: Sequence[tuple[str, ResentMessage]], where: Mapping[str, Any]
) -> tuple[Draft, ...]:
    """Return the drafts of a client's messages, given by new id."""
    return tuple(
        writer.message(each.raw, each.content, id=id_, clean=not each.secret, **where) for id_, each in messages
    )


async def _drafts(
    services: Services, request: TurnRequest, messages: Sequence[ResentMessage], *, owner: str | None
) -> tuple[Draft, ...]:
    drafts: tuple[Draft, ...] = ()
    amount = {"size": sum(len(each.raw) for each in messages), "items": len(messages)}
    where = {"user": request.ask.user, "now": services.clock.now(), "owner": owner}
    new = [(services.dice.new_id("post"), each) for each in messages]
    for part in slices(new):
        drafts += await services.offload.compute(draft_messages, services.writer, part, where, **amount)
    return drafts


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


# ---- Answers that a client changed ----------------------------------------------------------------------------------
# Both comparisons ignore layout: they compare letters and digits in lower case. So prefixes, wrapped lines, other
# quotation marks, indentation and markup change nothing.

#: Last answers among which a summary is searched, and newest conversations of all users looked up for them.
LAST_ANSWERS = 8
LOOKED = 200
#: Letters of a piece of a summary that is sought in the message. Headings that many summaries share are shorter.
PIECE: Final = 40
#: Least share of the pieces, and least letters, of a resent summary. Measured in `tests/unit/test_resent_answers.py`:
#: a third of a summary in any layout has a share of 0.31 or more, another text with a sentence of it at most 0.05.
SHARE: Final = 0.2
LEAST: Final = 150
#: Letters of a message that are searched.
SEARCHED: Final = 100_000
#: Least share of an answer's words that its rewritten form has.
WORDS: Final = 0.8
_WORD: Final = re.compile(r"\w+")


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
        if await services.offload.run(len(text), partial(contains_summary, text, answer)):
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


def contains_summary(text: str, summary: str) -> bool:
    """Return whether a message contains enough of a summary, in whatever layout."""
    whole, sought = letters(text[:SEARCHED]), letters(summary)
    share = share_of(sought, whole)
    return share >= SHARE and share * len(sought) >= LEAST


def share_of(sought: str, whole: str) -> float:
    """Return the share of the pieces of some letters that others contain."""
    pieces = range(max(0, len(sought) - PIECE + 1))
    there = {whole[n : n + PIECE] for n in range(max(0, len(whole) - PIECE + 1))}
    return sum(sought[n : n + PIECE] in there for n in pieces) / len(pieces) if pieces else 0.0


def letters(text: str) -> str:
    """Return the letters and digits of a text in lower case, without character references."""
    return "".join(_WORD.findall(html.unescape(text).casefold())).replace("_", "")


def is_rewritten(answer: Post, content: MessageContent) -> bool:
    """Return whether a message says an answer's text and calls in another form, such as calls written as text."""
    calls = [read_call(part) for part in answer.calls]
    words = _words(answer.message, *(call.arguments for call in calls)) or _words(*(call.name for call in calls))
    again = _words(content.message, *(part.content for part in content.parts))
    return bool(words) and len(words & again) >= WORDS * len(words)


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in _WORD.findall((text or "").casefold())}
