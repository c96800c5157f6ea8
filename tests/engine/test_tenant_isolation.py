"""Property tests of three tenants: none reads another's data, not even where only PostgreSQL's policies protect it."""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turn_helpers import config

from cuebook import Ask, Cuebook, CuebookError, Posted
from cuebook.records.answer import to_wire
from cuebook.storage.database import postgres, postgres_key
from cuebook.storage.database.statements import Statements, load_statements, prepared

SECRET = "a long secret"
TENANTS = ("default", "umb", "acme")
#: A word of each tenant, which no other tenant's answer may contain.
CANARIES = dict(zip(TENANTS, ("Quokka", "Numbat", "Bilby"), strict=True))
WRITES = st.sampled_from(["post", "ask", "know", "prompt", "key", "forget", "settle"])
STEPS = st.lists(st.tuples(st.sampled_from(TENANTS), WRITES), min_size=3, max_size=10)

#: A condition on the tenant of a statement's rows.
_CONDITION = re.compile(r"(?:\b\w+\.)?\btenant = :tenant\b")


async def write(cue: Cuebook, tenant: str, what: str) -> None:
    """Store something of a tenant, always under the same names."""
    mine, word = cue.of(tenant), CANARIES[tenant]
    if what == "post":
        await mine.append("c1", [Posted(sender="ann", message=f"I have a pet {word}.")], user="ann")
    elif what == "ask":
        await mine.ask(Ask(f"What does a {word} eat?", "c1", user="ann"))
    elif what == "know":
        await mine.memory.put_knowledge("user_preference", "pet", word, user="ann")
    elif what == "prompt":
        await mine.prompts.save("persona/pets", {"body": f"Talk about the {word}."})
    elif what == "key":
        await mine.keys.new("viewer", user="ann", name=word)
    elif what == "forget":
        await mine.memory.forget(user="ann")
    else:
        await cue.settle(timeout=60)


READS: dict[str, Callable[[Cuebook], Any]] = {
    "conversations": lambda cue: cue.conversations.list(),
    "posts": lambda cue: cue.conversations.posts("c1"),
    "turns": lambda cue: cue.turns.list("c1"),
    "turn": lambda cue: cue.turns.show("c1", 1),
    "memories": lambda cue: cue.memory.list(user="ann"),
    "search": lambda cue: cue.memory.search(" ".join(CANARIES.values()), user="ann"),
    "search in": lambda cue: cue.memory.search(" ".join(CANARIES.values()), conversation="c1"),
    "prompts": lambda cue: cue.prompts.list(),
    "prompt": lambda cue: cue.prompts.get("persona/pets"),
    "history": lambda cue: cue.prompts.history("persona/pets"),
    "audit": lambda cue: cue.audit.list(),
    "keys": lambda cue: cue.keys.list(),
    "receipts": lambda cue: cue.memory.receipts(),
}


async def check(cue: Cuebook) -> None:
    """Check that no tenant reads another's word."""
    for tenant in TENANTS:
        for name, read in READS.items():
            try:
                answer = str(to_wire(await read(cue.of(tenant))))
            except CuebookError as error:
                answer = str(error)
            strange = [other for other in TENANTS if other != tenant and CANARIES[other] in answer]
            assert not strange, f"{name} of {tenant} shows data of {strange}: {answer[:2_000]}"


@asynccontextmanager
async def opened(folder: Path, url: str) -> AsyncIterator[Cuebook]:
    more = {"store__url": url} if url else {}
    async with Cuebook.open(config(folder, memory__user=True, **more), worker=False) as cue:
        for tenant in TENANTS[1:]:
            await cue.of(tenant).keys.new("viewer", user="ann")
        yield cue


async def run(steps: Sequence[tuple[str, str]], url: str = "") -> None:
    with TemporaryDirectory() as folder:
        async with opened(Path(folder), url) as cue:
            for tenant, what in steps:
                await write(cue, tenant, what)
            await check(cue)


@settings(settings.get_profile("database"))
@given(STEPS)
async def test_no_tenant_reads_another_on_sqlite(steps: Sequence[tuple[str, str]]) -> None:
    await run(steps)


@contextmanager
def without_conditions() -> Iterator[None]:
    """Let the statements of new databases compare no tenants."""

    changed = {name: _CONDITION.sub("TRUE", sql) for name, sql in load_statements("postgresql").items()}
    statements = Statements({name: prepared(sql, "postgresql") for name, sql in changed.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "prepared_statements", lambda _: statements)
        yield


@pytest.fixture
def server(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CUEBOOK_KEY_SECRET", SECRET)
    postgres_key.stored_key(postgres_url, SECRET, new=bytes(32))
    return postgres_url


@settings(settings.get_profile("database"), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
@pytest.mark.slow
async def test_no_tenant_reads_another_on_postgresql(server: str, steps: Sequence[tuple[str, str]]) -> None:
    await run(steps, server)


async def test_policies_alone_separate_tenants(server: str) -> None:
    everything = [(tenant, what) for what in ("post", "ask", "know", "prompt", "key", "settle") for tenant in TENANTS]
    await run(everything, server)
    with without_conditions():
        await run([(tenant, what) for what in ("post", "ask", "settle") for tenant in TENANTS], server)
        with psycopg.connect(server) as connection:
            for (table,) in connection.execute("SELECT tablename FROM pg_policies").fetchall():
                connection.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        with pytest.raises(AssertionError, match="shows data of"):  # so the policies were what separated them
            await run([], server)
