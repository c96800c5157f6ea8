"""What a book without a model answers with: recalled posts, and before one whose statement ended, what holds now."""

from collections.abc import Sequence

from msgspec.structs import replace

from cuebook.engine.desk import Desk
from cuebook.engine.items import items_at_head
from cuebook.records.memory import Hit, Item, Scope

#: What ends a sentence, as far as a question needs to be told from what stands before it.
_ENDS = (". ", "! ", "? ", "\n")


async def as_it_holds(desk: Desk, scope: Scope, conversation: str, quotes: Sequence[Hit]) -> tuple[Hit, ...]:
    """Give what was recalled, best first: what holds now before a post that said otherwise. A question answers none."""
    said = [hit for hit in quotes if not _is_question(hit.text)]
    if not any(hit.kind == "post" for hit in said):
        return tuple(said)
    items = await items_at_head(desk, scope, conversation)
    found: dict[str, Hit] = {}
    for hit in said:
        for each in _now(items, hit.memory_id.removeprefix("post:")):
            id_ = f"post:{each.sources[-1]}"
            found.setdefault(id_, next((known for known in said if known.memory_id == id_), _hit(each, hit)))
        found.setdefault(hit.memory_id, hit)
    return tuple(found.values())


def _now(items: Sequence[Item], post: str) -> list[Item]:
    """Give what took the place of all that a post said; nothing where something of it still holds."""
    told = [each for each in items if post in each.sources]
    if not told or any(each.valid_to is None for each in told):
        return []
    newest = {_followed(items, each) for each in told}
    return [each for each in items if each in newest and each.valid_to is None and each.sources]


def _followed(items: Sequence[Item], item: Item) -> Item:
    """Follow an item to the one that holds in its place, or as far as it is known."""
    for _ in items:
        after = [each for each in items if each.supersedes == item.id and each.seq > item.seq]
        if not after:
            break
        item = after[-1]
    return item


def _hit(item: Item, of: Hit) -> Hit:
    """Give an item as a hit of the post it comes from: said by who said what it ended."""
    id_ = item.sources[-1]
    return replace(
        of, memory_id=f"post:{id_}", text=item.text, sources=(id_,), timestamp=item.valid_from, seq=item.seq, why="now"
    )


def _is_question(text: str) -> bool:
    text = text.strip()
    return text.endswith("?") and not any(end in text for end in _ENDS)
