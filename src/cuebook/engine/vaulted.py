"""What a step asks of the vault: the values of the posts it may say, where tokens stand in them."""

from collections.abc import Iterator

from msgspec.structs import replace

from cuebook.engine.desk import Desk
from cuebook.engine.plan import Wish
from cuebook.ports.store import Scene
from cuebook.records.conversation import PathPost
from cuebook.records.credentials import TOKEN, TOKEN_START
from cuebook.records.memory import Scope

_POST = "post:"
_START = TOKEN_START.encode()


async def with_opened(desk: Desk, scope: Scope, scene: Scene, wish: Wish) -> Wish:
    """Give a wish with what the vault keeps of what may stand in the window."""
    if not desk.store.vault.on or scene.conversation is None:
        return wish
    posts = set(_holding(scene, wish))
    tokens = set(TOKEN.findall(scene.summary.markdown)) if scene.summary else set()
    if not posts and not tokens:
        return wish
    opened = await desk.store.vault.opened(scope, scene.conversation.id, posts=posts, tokens=tokens)
    return replace(wish, opened=opened)


def _holding(scene: Scene, wish: Wish) -> Iterator[str]:
    """Give the ids of posts with tokens in them."""
    yield from (post.id for post in scene.path if _holds(post))
    yield from (each.id for each in scene.found.found if TOKEN_START in each.text)
    for text in wish.frozen or ():
        if text.source.startswith(_POST) and TOKEN_START in text.text:
            yield text.source.removeprefix(_POST)


def _holds(post: PathPost) -> bool:
    return (
        TOKEN_START in (post.message or "")
        or TOKEN_START in (post.small or "")
        or _START in (post.parts or b"")
        or _START in (post.wire or b"")
    )
