"""Store documents: JSON values of programs by their place and key, each of one user or of none."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.errors import Conflict, InvalidInput
from cuebook.records.answer import Time, time_of
from cuebook.records.document import Document, DocumentChange
from cuebook.storage.database.columns import Row
from cuebook.storage.database.seals import END
from cuebook.storage.database.transaction import Noun, Transaction, read, write


class DocumentStore(Noun):
    """Stores documents. Expired ones are not returned, and each write deletes some."""

    @write
    def apply(self, transaction: Transaction, changes: Sequence[DocumentChange], *, now: float) -> int:
        """Store and delete documents, in their order and all or none. Return how many existed before.

        Raises Conflict for a value other than the expected one.
        """
        user, existed = transaction.scope.user or "", 0
        transaction.delete("document", "documents_expired", now=now)
        for each in changes:
            values: dict[str, Any] = {"user": user, "space": path_of(each.space), "key": each.key.encode()}
            before = transaction.rows("document_row", **values)
            row = next((row for row in before if row["expires_at"] is None or row["expires_at"] > now), None)
            is_checked = each.new or each.expected is not None
            if is_checked and (None if row is None else _document(row).value) != each.expected:
                msg = f"Document {each.key!r} in {'/'.join(each.space)!r} has another value. Read it again."
                raise Conflict(msg)
            if each.value is None:
                existed += transaction.delete("document", "document_delete", **values)
                continue
            existed += row is not None
            until = None if each.ttl_s is None else now + each.ttl_s
            body = msgspec.json.encode(each.value)
            transaction.change("document", "document_put", before, body=body, now=now, until=until, **values)
        return existed

    @read
    def get(self, transaction: Transaction, space: Sequence[str], key: str, *, now: float) -> Document | None:
        """Return a document, or None."""
        values = {"user": transaction.scope.user or "", "space": path_of(space), "key": key.encode()}
        row = transaction.one("document_get", now=now, **values)
        return None if row is None else _document(row)

    @read
    def page(
        self,
        transaction: Transaction,
        space: Sequence[str],
        *,
        after: tuple[bytes, bytes] | None = None,
        back: bool = False,
        limit: int,
        now: float,
    ) -> list[Document]:
        """Return documents of a place and the places in it, by place and key, or `back` from the last one.

        `after` is the stored place and key of the one before.
        """
        values = _range(transaction, space)
        place, key = after or ((values["last"] if back else b""), b"")
        statement = "documents_back" if back else "documents_page"
        rows = transaction.rows(statement, after=place, key=key, limit=limit, now=now, **values)
        return [_document(row) for row in rows]

    @write
    def delete(self, transaction: Transaction, space: Sequence[str]) -> int:
        """Delete the documents of a place and the places in it. Return how many."""
        return transaction.delete("document", "documents_delete", **_range(transaction, space))

    @read
    def spaces(self, transaction: Transaction, space: Sequence[str], *, now: float) -> list[tuple[str, ...]]:
        """Return the places in a place that contain documents, in order."""
        rows = transaction.rows("documents_spaces", now=now, **_range(transaction, space))
        return [_names(row["space"]) for row in rows]


def path_of(space: Sequence[str]) -> bytes:
    """Return a place as it is stored. Raises InvalidInput for a name with a control character."""
    for name in space:
        if END in name or "\0" in name:
            msg = f"space: {name!r} contains a control character. Use visible characters."
            raise InvalidInput(msg, where="space")
    return "".join(name + END for name in space).encode()


def _range(transaction: Transaction, space: Sequence[str]) -> dict[str, Any]:
    """Return the user, and the range of a place and the places in it."""
    first = path_of(space)
    return {"user": transaction.scope.user or "", "first": first, "last": first + b"\xff"}


def _names(path: bytes) -> tuple[str, ...]:
    return tuple(path.decode().split(END)[:-1])


def _document(row: Row) -> Document:
    return Document(
        space=_names(row["space"]), key=row["key"].decode(), value=msgspec.json.decode(row["body"]),
        created_at=Time(row["created_at"]), updated_at=Time(row["updated_at"]), expires_at=time_of(row["expires_at"]),
    )  # fmt: skip
