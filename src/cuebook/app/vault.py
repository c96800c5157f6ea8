"""The vault as the book's owner sees it: counts, values on demand, another key, the end (docs/design/010)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from cuebook.app.compose import outside
from cuebook.app.keys import record_of
from cuebook.backends.box import Box, box_from_file, make_key_file, new_key
from cuebook.config import Config
from cuebook.engine.desk import Desk
from cuebook.errors import InvalidInput
from cuebook.records.memory import DEFAULT_TENANT, Scope
from cuebook.records.vault import Census, Kept

#: Conversations a list names at the most.
MOST = 1000


class Revealed(Struct, frozen=True, kw_only=True):
    """A secret of a conversation: its token, the post it came with, and what stood there, each spelling once."""

    token: str
    post: str
    values: tuple[str, ...]


class Rotated(Struct, frozen=True):
    """How many rows were sealed anew, and how many could not be opened and were left."""

    sealed: int
    unreadable: int


class Vault:
    """The vault of one tenant of a book."""

    def __init__(self, desk: Desk, config: Config, tenant: str = DEFAULT_TENANT) -> None:
        self._desk = desk
        self._config = config
        self._scope = Scope(tenant)

    async def census(self) -> Census:
        """Count what is kept."""
        return await self._desk.store.vault.census(self._scope)

    async def list(self, *, limit: int = 50) -> Sequence[Kept]:
        """Count what is kept of each conversation, the newest first. Raises InvalidInput."""
        if not 0 < limit <= MOST:
            msg = f"limit: {limit}; give a number from 1 to {MOST:,}"
            raise InvalidInput(msg, where="limit")
        return await self._desk.store.vault.list(self._scope, limit=limit)

    async def reveal(self, conversation: str, *, user: str | None = None, by: str = "") -> Sequence[Revealed]:
        """Give what was replaced in a conversation's posts, oldest first; the audit says that it was asked for.

        Raises NotFound, and InvalidInput where the vault is off.
        """
        told = record_of(self._desk, f"vault:{conversation}", "revealed", by=by, said={"conversation": conversation})
        scope = Scope(self._scope.tenant, user)
        found = await self._desk.store.vault.reveal(scope, conversation, audit=[told])
        return [
            Revealed(token=secret.token, post=post, values=tuple(dict.fromkeys(secret.values)))
            for post, secret in found
        ]

    async def clear(self, conversation: str | None = None, *, by: str = "") -> int:
        """Give up what is kept of a conversation, or of all: tokens stay. Answers with rows. Raises NotFound."""
        about = "*" if conversation is None else conversation
        told = record_of(self._desk, f"vault:{about}", "cleared", by=by, said={"conversation": about})
        return await self._desk.store.vault.clear(self._scope, conversation, audit=[told])

    async def rotate(self, key_file: str | Path) -> Rotated:
        """Seal everything, of all tenants, with the key in a file; from then on the settings must name it.

        Raises InvalidInput where the vault is off, the file holds no key, or lies in the store's folder.
        """
        box = await asyncio.to_thread(_new_box, self._config, key_file)
        return Rotated(*await self._desk.store.vault.rotate(box))


def _new_box(config: Config, key_file: str | Path) -> Box:
    return box_from_file(outside(config, Path(key_file).expanduser()))


def make_key(config: Config, file: str | Path | None) -> str:
    """Make a key: in a new file, its owner's alone, whose path is answered, or as text.

    Raises Conflict where the file is there, InvalidInput where it lies in the store's folder.
    """
    if file is None:
        return new_key()
    place = outside(config, Path(file).expanduser().resolve())
    make_key_file(place)
    return str(place)


def census_shape(census: Census) -> dict[str, Any]:
    """Give counts as JSON shows them."""
    return {
        "on": census.on,
        "key": census.key or None,
        "secrets": census.secrets,
        "posts": census.posts,
        "conversations": census.conversations,
        "families": dict(census.families),
        "unreadable": census.unreadable,
    }


def kept_shape(kept: Kept) -> dict[str, Any]:
    """Give a conversation's counts as JSON shows them."""
    return {
        "conversation": kept.conversation,
        "userId": kept.user,
        "secrets": kept.secrets,
        "posts": kept.posts,
    }
