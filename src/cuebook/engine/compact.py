"""One compaction pass: reads, derives (by rules, or by a model held to the schema), and stores it if nothing moved meanwhile (R1-R5)."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.desk import Desk
from cuebook.errors import BackendError, Conflict, InvalidInput, NotFound
from cuebook.memory.digest import write
from cuebook.memory.extract import extract
from cuebook.memory.merge import Merged, merge
from cuebook.memory.profiles import CompactionProfile, choose
from cuebook.memory.rolling import COMPACTOR, LOOKAHEAD, backoff_s, between_steps, covered
from cuebook.memory.schema import MEMORY_SCHEMA, Answer, compact, items_of, parse_answer
from cuebook.ports.model import ModelRequest
from cuebook.ports.store import Compacted, CompactionInput
from cuebook.records.conversation import ERROR, Post
from cuebook.records.digest import chain
from cuebook.records.memory import CATEGORIES, NO_MODEL_LABEL, Item, Line, Scope, Summary

#: A model that failed so often in a row is passed over: the rules do the pass, so that memory keeps up.
FAILURES = 3
#: Of what it covers, a summary may take at most this much, else the pass is refused (a summary must shrink).
SHRINK = 0.9
_EMPTY: dict[str, Any] = {category: [] for category in CATEGORIES} | {"tags": []}


class Derived(Struct, frozen=True, kw_only=True):
    """What a pass made."""

    markdown: str
    memory_json: dict[str, object]
    tainted: str
    merged: Merged
    made_by: str


async def compact_once(desk: Desk, scope: Scope, conversation: str, profile: CompactionProfile) -> bool:
    """Do one pass; True if a new summary stands. Failures and refusals postpone the next try, and change nothing else."""
    read = await desk.store.compaction(scope, conversation, limit=profile.most + profile.tail + LOOKAHEAD)
    if read is None:
        return False
    desk.failpoint("compact.read")
    lines = [line_of(post) for post in read.posts]
    end = covered(lines, profile, backlog=read.conversation.backlog)
    if end == 0:
        return await _postpone(desk, read, profile, failed=False)
    posts, lines = read.posts[:end], lines[:end]
    size = sum(post.tokens for post in posts) + (read.previous.tokens if read.previous else 0)
    most = min(profile.max_summary_tokens, int(size * SHRINK))
    try:
        derived = await _derive(desk, read, lines, most)
    except (InvalidInput, BackendError):
        return await _postpone(desk, read, profile, failed=True)
    summary = _summary(desk, read, posts, derived, profile)
    if summary.tokens > size * SHRINK:
        return await _postpone(desk, read, profile, failed=True)
    desk.failpoint("compact.made")
    held = {item.id: item for item in read.items}
    repeated = tuple(item for item in derived.merged.kept if item.id in held and item != held[item.id])
    compacted = Compacted(
        conversation=conversation,
        previous_version=read.previous.version if read.previous else 0,
        summary=summary,
        added=tuple(derived.merged.added),
        ended=tuple(derived.merged.ended),
        repeated=repeated,
        now=desk.clock.now(),
    )
    return await desk.store.save_summary(scope, compacted)


async def _postpone(desk: Desk, read: CompactionInput, profile: CompactionProfile, *, failed: bool) -> bool:
    until = desk.clock.now() + backoff_s(read.failures, profile.cooldown_ms)
    mark = read.conversation.mark
    await desk.store.postpone(read.scope, read.conversation.id, until=until, failed=failed, mark=mark)
    return False


def line_of(post: Post) -> Line:
    """Give a post as memory reads it. What was recalled is never taken in again."""
    return Line(
        id=post.id,
        seq=post.seq,
        role=post.role,
        speaker=post.sender,
        text="" if post.message.startswith(NO_MODEL_LABEL) else post.message,
        when=post.created_at,
        round=post.round,
        tokens=post.tokens,
        calls=bool(post.calls),
        failed=any(part.type == ERROR for part in post.parts),
    )


async def _derive(desk: Desk, read: CompactionInput, lines: Sequence[Line], most: int) -> Derived:
    if desk.work_model is not None and read.failures < FAILURES:
        return await _by_model(desk, read, lines, most)
    return _by_rules(desk, read, lines, most)


def _by_rules(desk: Desk, read: CompactionInput, lines: Sequence[Line], most: int) -> Derived:
    merged = merge(read.items, extract(lines, before=[line_of(read.before)] if read.before else ()))
    previous = read.previous.markdown if read.previous else ""
    items = [*merged.kept, *merged.added, *merged.ended]
    digest = write(items, previous=previous, lines=lines, max_tokens=most, count=desk.count)
    return Derived(
        markdown=digest.markdown, memory_json=digest.memory_json, tainted=digest.tainted, merged=merged, made_by="rules"
    )


async def _by_model(desk: Desk, read: CompactionInput, lines: Sequence[Line], most: int) -> Derived:
    """Ask the model, once more if its answer does not hold; raises InvalidInput when neither does."""
    model = desk.work_model
    if model is None:
        raise BackendError("no model for the work behind")
    known = {line.id for line in lines} | {source for item in read.items for source in item.sources}
    request = ModelRequest(
        messages=_messages(read, lines), purpose="compaction", schema=MEMORY_SCHEMA, max_tokens=most * 2
    )
    failure: InvalidInput | None = None
    for _ in range(2):
        text = "".join([piece.text async for piece in model.stream(request)])
        try:
            answer = parse_answer(text, known=known, max_tokens=most, count=desk.count)
        except InvalidInput as error:
            failure = error
            continue
        return _from_answer(desk, read, lines, answer, model.name)
    raise failure or InvalidInput("the model gave no answer")


def _from_answer(desk: Desk, read: CompactionInput, lines: Sequence[Line], answer: Answer, name: str) -> Derived:
    """Give a model's items are merged as found ones: what it dropped stays remembered, what it changed supersedes."""
    when = lines[-1].when
    merged = merge(read.items, items_of(answer, when=when, lines=lines, held=read.items))
    tainted = [item.text for item in (*merged.kept, *merged.added) if item.trust != "user"]
    markdown = answer.summary_markdown
    if any(
        line.role == "tool" for line in lines
    ):  # a page may have spoken through the model: not for the system prompt
        own = write(
            [*merged.kept, *merged.added],
            previous="",
            lines=lines,
            max_tokens=desk.count(markdown) + 200,
            count=desk.count,
        )
        return Derived(
            markdown=own.markdown, memory_json=answer.memory_json, tainted=markdown, merged=merged, made_by=name
        )
    return Derived(
        markdown=markdown, memory_json=answer.memory_json, tainted="\n".join(tainted[:8]), merged=merged, made_by=name
    )


def _messages(read: CompactionInput, lines: Sequence[Line]) -> tuple[bytes, ...]:
    previous = read.previous
    document = {
        "previous": {
            "summary_markdown": previous.markdown if previous else "",
            "memory_json": previous.memory_json if previous else {},
        },
        "new_turns": [
            {"id": line.id, "role": line.role, "name": line.speaker, "content": line.text}
            for line in lines
            if line.text
        ],
    }
    text = f"Update rolling memory.\n\nINPUT_JSON:\n{json.dumps(document, ensure_ascii=False)}"
    return (
        msgspec.json.encode({"role": "system", "content": COMPACTOR}),
        msgspec.json.encode({"role": "user", "content": text}),
    )


def _summary(
    desk: Desk, read: CompactionInput, posts: Sequence[Post], derived: Derived, profile: CompactionProfile
) -> Summary:
    before = read.previous.path_digest if read.previous else b""
    return Summary(
        version=(read.previous.version if read.previous else 0) + 1,
        upto_seq=posts[-1].seq,
        upto_at=posts[-1].created_at,
        path_digest=chain(before, (post.digest for post in posts)),
        markdown=derived.markdown,
        memory_json=dict(derived.memory_json),
        profile=profile.id,
        made_by=derived.made_by,
        created_at=desk.clock.now(),
        tokens=desk.count(derived.markdown) + desk.count(compact(derived.memory_json)),
        tainted=derived.tainted,
    )


def current_items(items: Sequence[Item]) -> list[Item]:
    """Items that hold now."""
    return [item for item in items if item.valid_to is None]


async def compress_by_hand(desk: Desk, scope: Scope, conversation: str, *, older_than: str, text: str) -> bool:
    """Store a caller's own summary of everything before a post. Raises NotFound, InvalidInput, Conflict while a turn runs."""
    found = await desk.store.conversation(scope, conversation)
    read = await desk.store.compaction(scope, conversation, limit=max(1, found.backlog))
    if read is None:
        msg = f"a round is open in conversation {conversation!r}; compress it when that has ended"
        raise Conflict(msg)
    lines = [line_of(post) for post in read.posts]
    end = next((n for n, post in enumerate(read.posts) if post.id == older_than), -1)
    if end < 0:
        msg = f"no post {older_than!r} behind the last summary of conversation {conversation!r}"
        raise NotFound(msg)
    if end == 0 or not between_steps(lines, end):
        msg = f"older_than: {older_than!r} would part a tool call from its result, or leaves nothing; name another post"
        raise InvalidInput(msg, where="olderThan")
    derived = Derived(
        markdown=desk.writer.clean(text),
        memory_json=read.previous.memory_json if read.previous else _EMPTY,
        tainted=read.previous.tainted if read.previous else "",
        merged=Merged(kept=list(read.items), added=[], ended=[]),
        made_by="caller",
    )
    compacted = Compacted(
        conversation=conversation,
        previous_version=read.previous.version if read.previous else 0,
        summary=_summary(desk, read, read.posts[:end], derived, choose(desk.compaction, None)),
        added=(),
        ended=(),
        repeated=(),
        now=desk.clock.now(),
    )
    return await desk.store.save_summary(scope, compacted)
