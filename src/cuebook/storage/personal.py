"""Read what is stored about a person, for an export: all that forgetting this user would erase.

The rows are selected by the same statements that delete them.
"""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.records.audit import Record
from cuebook.records.conversation import Conversation, Post
from cuebook.records.erasure import Receipt, salted
from cuebook.records.memory import Memory, Scope
from cuebook.storage import access, memories, outcomes
from cuebook.storage.access import ConversationRow
from cuebook.storage.database.columns import LARGEST, Row, decode, record
from cuebook.storage.database.statements import ROWS
from cuebook.storage.database.transaction import Noun, Transaction, read
from cuebook.storage.erasure import (
    audit_naming,
    conversations_of_others,
    observations_naming,
    owned_by,
    repeats,
    was_told,
)
from cuebook.storage.reads import posts_on
from cuebook.storage.redact import concerning
from cuebook.storage.writes import TABLES

#: What an export leaves out of a conversation that its user owns: the table, and why.
LEFT_OUT: Final[Mapping[str, str]] = {
    "vectors": "numbers that an embedder computed from the texts",
    "embedded": "progress of a background job",
    "delivery": "progress of a background job",
    "outbox": "progress of a background job",
    "blob_uses": "references to texts, which are exported",
    "participants": "an index of the conversation's participants",
    "posts": "exported as messages",
    "conversation": "exported as conversation.json",
}
#: What an export has of a user outside conversations, by the statement that deletes it.
OF_USER: Final[Mapping[str, str]] = {"requests": "keys_of_user", "documents": "documents_of_user"}


class PersonalConversation(Struct, frozen=True, kw_only=True):
    """The data of a person in one conversation: posts, rows by table, and their organizations' memories."""

    conversation: Conversation
    owned: bool
    posts: tuple[Post, ...]
    rows: dict[str, list[Row]]
    memories: tuple[Memory, ...]
    audit: tuple[Record, ...]


class PersonalReader(Noun):
    """Reads the data of a person. Every method is one transaction."""

    @read
    def conversations(self, transaction: Transaction, user: str) -> list[str]:
        """Return the ids of a user's conversations, and of others' in which they spoke or take part."""
        return [row.id for row in (*owned_by(transaction, user), *conversations_of_others(transaction, user))]

    @read
    def conversation(self, transaction: Transaction, conversation: str, user: str) -> PersonalConversation | None:
        """Return what a conversation stores of a user, None if it was deleted meanwhile."""
        row = access.find(transaction.within(Scope(transaction.scope.tenant)), conversation)
        if row is None:
            return None
        return _owned(row) if row.user == user else _shared(row, user)

    @read
    def elsewhere(self, transaction: Transaction, user: str) -> dict[str, list[Any]]:
        """Return what is stored of a user outside conversations, by kind."""
        known = transaction.records(Memory, "memories_of_user", user=user)
        values = {"user": user, "prefix": access.own_key(Scope(user=user), "")}
        receipts = (decode(Receipt, body) for (body,) in transaction.run("receipts_last", limit=LARGEST))
        return {
            "memories": memories.with_sources(transaction, known),
            "observations": _observations(transaction, user=user),
            **{kind: transaction.rows(f"{statement}{ROWS}", **values) for kind, statement in OF_USER.items()},
            "audit": _audit(transaction, "", lambda each: was_told(each, user), user=user),
            "receipts": [each for each in receipts if salted(user, each.salt) in each.concerns],
            "keys": [
                {name: value for name, value in row.items() if name != "digest"}
                for row in transaction.rows("keys_of")
                if row["user_id"] == user
            ],
        }


def _owned(row: ConversationRow) -> PersonalConversation:
    rows = {table: row.rows(f"delete_{table}{ROWS}") for table in TABLES if table not in {*LEFT_OUT, "blobs"}}
    rows |= {"blobs": row.rows("blobs_of"), "observations": _observations(row.transaction, conversation=row.id)}
    return PersonalConversation(
        conversation=row.record(),
        owned=True,
        posts=tuple(posts_on(row, [(1, row.last_seq)])),
        rows=rows,
        memories=_derived(row),
        audit=tuple(_audit(row.transaction, row.id, lambda _: True)),
    )


def _shared(row: ConversationRow, user: str) -> PersonalConversation | None:
    """Return a user's posts in a conversation of others, the answers and feedback; summaries are about others too."""
    found = concerning(row, user)
    if found is None:
        return None
    turns = row.run("turns_of_rounds", rounds=json.dumps(sorted(found.rounds)))
    found.turns = frozenset(turn for (turn,) in turns)
    return PersonalConversation(
        conversation=msgspec.structs.replace(row.record(), metadata={}, participants=(user,)),
        owned=False,
        posts=tuple(found.gone),
        rows={"outcomes": outcomes.concerning(row, user, found.quoted)},
        memories=_derived(row, {post.id for post in found.gone}),
        audit=tuple(_audit(row.transaction, row.id, lambda each: repeats(each, found))),
    )


def _derived(row: ConversationRow, posts: Collection[str] | None = None) -> tuple[Memory, ...]:
    """Return the memories that come from a conversation, or from some of its posts (ids), whoever owns them."""
    found = (each for each in row.rows("memories_from") if posts is None or each["post"] in posts)
    by_number = {each["no"]: record(Memory, each) for each in found}
    return tuple(memories.with_sources(row.transaction, list(by_number.values())))


def _audit(
    transaction: Transaction, conversation: str, which: Callable[[Record], bool], *, user: str = ""
) -> list[Record]:
    return [each for _, each in audit_naming(transaction, conversation, which, user=user) if each is not None]


def _observations(transaction: Transaction, **named: str) -> list[Row]:
    return [row for row, _ in observations_naming(transaction, **named)]
