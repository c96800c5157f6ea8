"""Test helpers for a server that requires API keys: one HTTP client per key."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from shared_app import app_of

from cuebook import Cuebook
from cuebook.records.key import Role

BASE = "http://127.0.0.1"


class Keyed:
    """A served app and HTTP clients that send its API keys."""

    def __init__(self, cue: Cuebook) -> None:
        self.cue = cue
        self._transport = httpx.ASGITransport(app_of(cue))
        self._clients: list[httpx.AsyncClient] = []

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        """Return a client that sends the key as an OpenAI client does."""
        auth = {"authorization": f"Bearer {token}"} if token is not None else {}
        made = httpx.AsyncClient(transport=self._transport, base_url=BASE, headers=auth | headers)
        self._clients.append(made)
        return made

    async def client_as(
        self, role: Role, user: str | None = None, *, organizations: Sequence[str] = (), tenant: str = "default"
    ) -> httpx.AsyncClient:
        """Create a key and return a client that sends it."""
        made = await self.cue.of(tenant).keys.new(role, user=user, organizations=organizations)
        return self.client(made.token)

    async def aclose(self) -> None:
        for each in self._clients:
            await each.aclose()


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[Keyed]:
    """Serve an in-memory database and close its clients at the end."""
    async with Cuebook.open(**options) as cue:
        keyed = Keyed(cue)
        try:
            yield keyed
        finally:
            await keyed.aclose()
