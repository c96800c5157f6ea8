"""A book whose server asks for keys, as tests call it: one client per key."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from shared_app import app_of

from cuebook import Cuebook
from cuebook.records.key import Role

BASE = "http://127.0.0.1"


class Keyed:
    """A served book, and clients that show keys made in it."""

    def __init__(self, cue: Cuebook) -> None:
        self.cue = cue
        self._transport = httpx.ASGITransport(app_of(cue))
        self._clients: list[httpx.AsyncClient] = []

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        """Give a client that sends a key as an OpenAI client does."""
        shown = {"authorization": f"Bearer {token}"} if token is not None else {}
        made = httpx.AsyncClient(transport=self._transport, base_url=BASE, headers=shown | headers)
        self._clients.append(made)
        return made

    async def holder(
        self, role: Role, user: str | None = None, *, organizations: Sequence[str] = (), tenant: str = "default"
    ) -> httpx.AsyncClient:
        """Make a key, and give a client that shows it."""
        made = await self.cue.of(tenant).keys.new(role, user=user, organizations=organizations)
        return self.client(made.token)

    async def aclose(self) -> None:
        for each in self._clients:
            await each.aclose()


@asynccontextmanager
async def served(**given: Any) -> AsyncIterator[Keyed]:
    """Serve a book in memory."""
    async with Cuebook.open(**given) as cue:
        keyed = Keyed(cue)
        try:
            yield keyed
        finally:
            await keyed.aclose()
