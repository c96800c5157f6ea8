"""What a turn and its owner need of a vault: values by the posts they came with; counts; another key; the end."""

from collections.abc import Collection, Sequence
from typing import Protocol

from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.vault import Census, Kept, Opened, Secret


class SealingBox(Protocol):
    """A key, and what is sealed with it: texts bound to their place."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    def seal(self, values: tuple[str, ...], place: tuple[str, ...]) -> bytes: ...
    def open(self, body: bytes, place: tuple[str, ...]) -> tuple[str, ...] | None: ...


class VaultStore(Protocol):
    """Keeps sealed what was replaced in posts. Off, it keeps nothing more and opens nothing."""

    @property
    def on(self) -> bool: ...

    async def opened(
        self, scope: Scope, conversation: str, *, posts: Collection[str], tokens: Collection[str]
    ) -> Opened:
        """Give what posts had, by their ids, and what tokens stand for where users said it; of this conversation."""
        ...

    async def reveal(self, scope: Scope, conversation: str, *, audit: Sequence[Record]) -> Sequence[tuple[str, Secret]]:
        """Give all that is kept of a conversation, with the posts' ids; the audit joins the chain. Raises NotFound."""
        ...

    async def census(self, scope: Scope) -> Census: ...
    async def list(self, scope: Scope, *, limit: int) -> Sequence[Kept]: ...

    async def clear(self, scope: Scope, conversation: str | None, *, audit: Sequence[Record]) -> int:
        """Give up what is kept of a conversation, or all of a tenant's. Answers with rows. Raises NotFound."""
        ...

    async def rotate(self, box: SealingBox) -> tuple[int, int]:
        """Seal all anew, of every tenant, in one transaction; answers with how many rows, and how many did not open."""
        ...
