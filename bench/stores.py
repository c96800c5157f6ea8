"""Test stores for the benchmarks: one long conversation, created once per run and copied for each writer."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from bench.measure import Run
from bench.random_text import TextGenerator
from cuebook.engine.core.drafts import Posted, PostFactory
from cuebook.interfaces.store import Batch
from cuebook.records.conversation import Draft, digest_of
from cuebook.records.memory import Scope
from cuebook.records.redaction import Redactor
from cuebook.storage.database.sqlite import transaction_on
from cuebook.storage.database.sqlite_files import connect, prepare
from cuebook.storage.database.statements import load_statements
from cuebook.storage.database.transaction import Failpoints, Transaction
from cuebook.storage.writes import ConversationWriter
from cuebook.window.tokens import counter

CONVERSATION = "long"
SQL = load_statements("sqlite")
SCOPE = Scope()
BEGINNING = 1_700_000_000.0
#: Distinct posts, stored repeatedly under other ids: drafting a hundred thousand would take a minute.
_DIFFERENT = 2_000
_AT_ONCE = 500


def drafting() -> PostFactory:
    """Return the default draft factory of a project."""
    return PostFactory(counter("estimate"), Redactor(b"k" * 32), 2 * 1024 * 1024)


def posted(talk: TextGenerator, number: int, words: int) -> Posted:
    """Return a post of a conversation: user and assistant in turn."""
    sender, recipient = ("user", "assistant") if number % 2 else ("assistant", "user")
    return Posted(sender=sender, recipient=recipient, message=talk.about(words))


def drafts(count: int, words: int, *, seed: int = 1, prefix: str = "p", start: int = 1) -> Iterator[Draft]:
    """Yield drafts of a conversation, a minute between them."""
    talk, writer = TextGenerator(seed), drafting()
    said: list[Draft] = []
    for number in range(start, start + count):
        if len(said) < _DIFFERENT:
            post = posted(talk, number, words)
            said.append(writer.posted(post, id="", now=BEGINNING, persona=None, user=None))
        yield msgspec.structs.replace(
            said[(number - start) % _DIFFERENT],
            id=f"{prefix}{number}",
            created_at=BEGINNING + 60 * number,
            digest=digest_of(f"{prefix}{number}".encode()),
        )


def store(run: Run, posts: int, words: int) -> Path:
    """Return a store with one conversation of `posts` posts of about `words` words. Do not write to it."""
    known = run.stores.get((posts, words))
    if known is None:
        known = run.stores[posts, words] = run.fast / f"store-{posts}-{words}.db"
        fill(known, {CONVERSATION: drafts(posts, words)})
    return known


def fill(path: Path, conversations: dict[str, Iterator[Draft]]) -> None:
    """Create a store with these conversations."""
    with closing(prepare(str(path), synchronous="OFF", failpoints=Failpoints())) as connection:
        for name, said in conversations.items():
            while batch := tuple(draft for _, draft in zip(range(_AT_ONCE), said, strict=False)):
                append_together(connection, name, batch)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def append_together(connection: sqlite3.Connection, conversation: str, batch: Sequence[Draft]) -> None:
    """Store drafts in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    made = Batch(conversation=conversation, drafts=tuple(batch), now=batch[-1].created_at)
    append_in(transaction_on(connection), made)
    connection.execute("COMMIT")


def append_in(transaction: Transaction, batch: Batch) -> None:
    """Append in an open transaction: the work of `Store.append` without its thread."""
    ConversationWriter.append.__wrapped__(None, transaction, SCOPE, batch)


def copy(path: Path, name: str) -> Path:
    """Return a copy of a store to write to."""
    place = path.with_name(f"{name}-{path.name}")
    place.unlink(missing_ok=True)
    shutil.copyfile(path, place)
    return place


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection as the writer does."""
    with closing(prepare(str(path), synchronous="FULL", failpoints=Failpoints())) as connection:
        yield connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection as a reader does."""
    with closing(connect(str(path), read_only=True)) as connection:
        yield connection
