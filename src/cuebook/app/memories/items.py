"""A conversation's items as memories: read and corrected by their ids (`item:CONVERSATION:ID`)."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from cuebook.engine.core.conversation_items import as_memory, is_guest, item_of, parted
from cuebook.engine.core.desk import Desk
from cuebook.engine.turn.summary_correction import correct_summary
from cuebook.errors import Denied, NotFound
from cuebook.memory.corrected import corrected, correction_of, says
from cuebook.memory.scopes import owner_of
from cuebook.records.memory import Correction, Item, Memory, Scope


async def get_item(desk: Desk, name: str, user: str | None) -> Memory:
    """Give an item. Raises NotFound, also in another's conversation."""
    conversation, item = await _item(desk, name, user)
    return as_memory(conversation, item, await desk.store.memories.corrections.of(Scope(user=user), conversation))


async def check_item(desk: Desk, name: str, user: str | None) -> None:
    """Refuse a guest, who was let into another's conversation, to change what holds there. Raises Denied, NotFound."""
    conversation, _ = parted(name) or ("", "")
    if conversation and await is_guest(desk, Scope(user=user), conversation):
        msg = f"memory {name!r} is of another's conversation, and its first user's to change"
        raise Denied(msg)


async def correct_item(
    desk: Desk, name: str, text: str, *, user: str | None, also: Callable[[Memory], Awaitable[object]]
) -> Memory:
    """Correct an item in its conversation, and by `also` what its user's memories have of it.

    Raises NotFound, and Denied to a guest.
    """
    conversation, item = await _item(desk, name, user)
    await check_item(desk, name, user)
    scope, store = Scope(user=user), desk.store.memories.corrections
    correction = correction_of(conversation, item.sources, item.text, text)
    for each in await store.said_in(scope, conversation, item.sources):
        if user in (None, owner_of(each.place)) and says(each.text, correction):
            with suppress(NotFound):  # it went meanwhile
                await also(each)
    await store.keep(scope, correction)
    await tell(desk, [correction])
    now = corrected([item], [replace(correction, no=1)])[0]
    return as_memory(conversation, now, await store.of(scope, conversation))


async def tell(desk: Desk, corrections: Sequence[Correction]) -> None:
    """Let conversations tell what was corrected from now on; the work behind does what is left undone here."""
    desk.failpoint("correct.kept")
    for each in corrections:
        await correct_summary(desk, Scope(), each.conversation)


async def _item(desk: Desk, name: str, user: str | None) -> tuple[str, Item]:
    found = await item_of(desk, Scope(user=user), name)
    if found is None:
        msg = f"no memory {name!r}; `cuebook memory list CONVERSATION` names a conversation's"
        raise NotFound(msg)
    return found
