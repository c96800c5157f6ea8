"""Promoted posts become long-term memories: an item each, when the pass comes that puts them under a summary (T7)."""

from collections.abc import Iterable, Sequence

from cuebook.assembly.tokens import cut
from cuebook.engine.desk import Desk
from cuebook.engine.drafts import unlearned
from cuebook.memory.compress import compress
from cuebook.memory.subject import item_id
from cuebook.records.conversation import TOOL, Post
from cuebook.records.memory import Item, Scope

#: Tokens of a promoted post's item: its first and last line and its facts.
LONGEST = 200


async def promoted(
    desk: Desk, scope: Scope, conversation: str, posts: Sequence[Post], held: Iterable[Item]
) -> list[Item]:
    """Give items of the posts that are promoted and that no item tells of yet.

    Their trust is the assistant's at the most: a whole post stays in its conversation, whoever said it.
    """
    stands = await desk.store.tuning.tuned(scope, conversation) if desk.tunes else None
    if stands is None:
        return []
    told = {source for item in held for source in item.sources}
    chosen = [post for post in posts if post.seq in stands.tuning.promoted and post.id not in told]
    return [_item(desk, post) for post in chosen if post.message and not unlearned(post.role, post.message)]


def _item(desk: Desk, post: Post) -> Item:
    text = cut(compress(post.message) or post.message, LONGEST, count=desk.count)
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
