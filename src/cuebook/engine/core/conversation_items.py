"""Load the items of a conversation: the current ones, one by its id, and items in the form of memories."""

from collections.abc import Collection, Iterable, Sequence

from cuebook.engine.core.services import Services
from cuebook.memory.compress import compress, without_accounts
from cuebook.memory.corrections import corrected
from cuebook.memory.owner_memories import shared_fields
from cuebook.memory.quotes import quotes_of
from cuebook.memory.recall import unlearned
from cuebook.memory.supersede import merge, unmarked
from cuebook.memory.tokenizer import item_id, normal
from cuebook.records.conversation import ASSISTANT, SYSTEM, TOOL, Conversation, Post
from cuebook.records.erasure import GONE
from cuebook.records.memory import ITEM, Correction, Item, Line, Memory, Scope, Source
from cuebook.window.tokens import cut

#: Posts after the last summary that are scanned for items: the size of one pass.
UNREAD = 48


async def items_at_head(services: Services, scope: Scope, conversation: str) -> list[Item]:
    """Return a conversation's current items, ended ones too, with items of the newest UNREAD unsummarized posts. Raises
    NotFound.
    """
    written = await services.store.memories.corrections(scope, conversation)
    summary = await services.store.summary(scope, conversation)
    items = await services.store.items(scope, conversation, ended=True)
    items = corrected(items, written, since=summary.corrected if summary else 0)
    reach = summary.upto_seq if summary else 0
    posts = await services.store.posts(scope, conversation, last=UNREAD + 1)
    own = own_senders(await services.store.conversation(scope, conversation), [post.sender for post in posts])
    before = [line_of(post) for post in posts if post.seq <= reach][-1:]
    entries = quotes_of([line_of(post, own) for post in posts if post.seq > reach], before=before)
    current = unmarked([item for item in items if item.valid_to is None])
    kept, added = merge(current, corrected(entries, written, news=True))
    past = [item for item in items if item.valid_to is not None]
    unread = [post for post in posts if post.seq > reach]
    raised = await promoted(services, scope, conversation, unread, [*kept, *added])
    return sorted([*kept, *added, *corrected(raised, written, news=True), *past], key=lambda item: (item.seq, item.id))


def parted(name: str) -> tuple[str, str] | None:
    """Split an item's name into conversation and id. Return None for the name of a memory."""
    if not name.startswith(ITEM):
        return None
    conversation, _, id_ = name.removeprefix(ITEM).rpartition(":")
    return conversation, id_


def named_id(conversation: str, item: str) -> str:
    """Return the name of an item by its id."""
    return f"{ITEM}{conversation}:{item}"


async def item_of(services: Services, scope: Scope, name: str) -> tuple[str, Item] | None:
    """Return the conversation and item of a name, valid items first, or None.

    Raises NotFound for an unknown conversation or another user's.
    """
    conversation, id_ = parted(name) or ("", "")
    items = [each for each in await items_at_head(services, scope, conversation) if each.id == id_]
    best = min(items, key=lambda each: each.valid_to is not None, default=None)
    return None if best is None else (conversation, best)


def as_memory(conversation: str, item: Item, written: tuple[Correction, ...] = ()) -> Memory:
    """Return an item as a memory of its conversation."""
    supersedes = named_id(conversation, item.supersedes) if item.supersedes else None
    ended_by = named_id(conversation, item.superseded_by) if item.superseded_by else None
    return Memory(
        **shared_fields(item) | {"id": named_id(conversation, item.id), "supersedes": supersedes},
        kind="conversation",
        owner=conversation,
        ended_by=ended_by,
        written=normal(item.text) in {normal(each.text) for each in written},
        sources=tuple(Source(conversation, post) for post in item.sources),
    )


def own_senders(conversation: Conversation, speakers: Sequence[str]) -> frozenset[str]:
    """Return the names under which a conversation's user sends: their id, `user`, or else that of the first sender."""
    own = frozenset(name for name in (conversation.user, "user", "User") if name is not None)
    others = (ASSISTANT, TOOL, SYSTEM, conversation.persona)
    first = next((name for name in speakers if name not in others), None)
    return own if first is None or not own.isdisjoint(speakers) else own | {first}


def line_of(post: Post, own: Collection[str] | None = None) -> Line:
    """Return a post as an input line of memory extraction, without recalled text, card numbers and IBANs.

    `own` are the names of the conversation's user; None if it does not matter who sent it.
    """
    return Line(
        id=post.id,
        seq=post.seq,
        role=TOOL if post.role != ASSISTANT and post.result_of else post.role,
        speaker=post.sender,
        text="" if post.state == GONE or unlearned(post.role, post.message) else without_accounts(post.message),
        when=post.created_at,
        round=post.round,
        calls=bool(post.calls),
        own=own is None or post.sender in own,
    )


# ---- Promoted posts -------------------------------------------------------------------------------------------------


#: Tokens of a promoted post's item: its first and last line and its facts.
LONGEST = 200


async def promoted(
    services: Services, scope: Scope, conversation: str, posts: Sequence[Post], items: Iterable[Item]
) -> list[Item]:
    """Return items for the promoted posts that have none yet.

    Their trust is at most the assistant's. A whole post stays in its conversation, whoever wrote it.
    """
    last = await services.store.tuning.tuned(scope, conversation) if services.config.optimizer.enabled else None
    if last is None:
        return []
    values = {source for item in items for source in item.sources}
    chosen = [post for post in posts if post.seq in last[0].promoted and post.id not in values]
    return [_item(services, post) for post in chosen if post.message and not unlearned(post.role, post.message)]


def _item(services: Services, post: Post) -> Item:
    text = cut(compress(post.message) or post.message, LONGEST, count=services.count)
    return Item(
        id=item_id("facts", text),
        category="facts",
        text=text,
        sources=(post.id,),
        trust="tool" if post.role == TOOL or post.result_of else "assistant",
        valid_from=post.created_at,
        seq=post.seq,
        weight=0.5,
    )
