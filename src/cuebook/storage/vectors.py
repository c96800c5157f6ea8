"""Vector search: store vectors by scope and model, cache them as matrices, and compare them with a query.

A vector's `ref` is a post's seq in its conversation, or the number of a memory's text in its place. Both only grow, so
the number of vectors and the last ref of a scope show whether a cached matrix is current.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from cuebook.records.memory import Dense, Place, Scope
from cuebook.storage import access
from cuebook.storage.access import conversation_epoch
from cuebook.storage.database.columns import LARGEST, record
from cuebook.storage.database.transaction import Noun, Transaction, read, read_all, write, write_conversation


class EmbeddingBacklog(Struct, frozen=True, kw_only=True):
    """A conversation with posts without vectors of a model after `upto`."""

    tenant: str
    conversation: str
    no: int
    upto: int
    last_seq: int
    epoch: int = 0  # number of erasures in the conversation


class UnembeddedPlace(Struct, frozen=True):
    """A place with memory texts without vectors of a model after `upto`."""

    tenant: str
    place: Place
    upto: int
    said: int  # number of its newest text


class NewVectors(Struct, frozen=True, kw_only=True):
    """Vectors of the texts `after` + 1 to `upto` of a scope, computed while `after` was the last with vectors.

    `rows` are a post's seq or a memory text's number, part and vector, ascending. A text in an unsupported language
    has none.
    """

    model: str
    after: int
    upto: int
    rows: tuple[tuple[int, int, bytes], ...]
    now: float


#: Most bytes of cached matrices (LRU): about 170,000 vectors of 384 numbers.
MEMORY = 256 << 20
#: Number of closest posts or memories of a scope that are added to full-text hits.
CLOSEST = 64
#: Minimum sample for the mean cosine: missing vectors count as unrelated.
FEW = 16
#: The whole scope.
EVERYWHERE = ((0, LARGEST),)
_BYTES = 4  # of a float32


def scope_of(no: int) -> str:
    """Return the scope of a conversation's vectors."""
    return f"c{no}"


def scope_of_place(place: Place) -> str:
    """Return the scope of the vectors of a place's memories."""
    return f"p{place.kind}\x1f{place.id}"


def in_turn(hits: Sequence[int], close: Sequence[int]) -> list[int]:
    """Merge full-text and vector hits in turn, best first, without duplicates."""
    pairs = zip_longest(hits, close)
    return list(dict.fromkeys(each for pair in pairs for each in pair if each is not None))


class Close(Struct):
    """Cosines of a scope's posts or memories with a query: `seqs` ascending, `cosines` of the closest part beside them.

    `every` are the cosines of all vectors, `parts` their parts, and `starts` the first vector of each of the seqs.
    """

    seqs: Any
    cosines: Any
    every: Any
    parts: Any
    starts: Any

    def best(self, count: int, runs: Sequence[tuple[int, int]]) -> list[int]:
        """Return the seqs of the closest posts within [first, last] runs, closest first; ties older first."""
        import numpy as np

        on_path = np.zeros(len(self.seqs), bool)
        for first, last in runs:
            on_path[np.searchsorted(self.seqs, first) : np.searchsorted(self.seqs, last, side="right")] = True
        places = np.flatnonzero(on_path)
        if len(places) > count:
            part = np.argpartition(-self.cosines[places], count - 1)[:count]
            places = np.sort(places[part])
        order = np.argsort(-self.cosines[places], kind="stable")
        return [int(seq) for seq in self.seqs[places[order]]]

    def of(self, seqs: Sequence[int]) -> dict[int, float]:
        """Return the cosines of these posts; posts without a vector are omitted."""
        import numpy as np

        wanted = np.asarray(seqs, np.int64)
        places = np.searchsorted(self.seqs, wanted)
        places[places == len(self.seqs)] = 0
        here = self.seqs[places] == wanted
        return {int(seq): round(float(self.cosines[at]), 5) for seq, at in zip(wanted[here], places[here], strict=True)}

    def part_of(self, seq: int) -> int:
        """Return the part of a post with the closest vector."""
        import numpy as np

        at = int(np.searchsorted(self.seqs, seq))
        first = int(self.starts[at])
        last = int(self.starts[at + 1]) if at + 1 < len(self.starts) else len(self.every)
        return int(self.parts[first + int(self.every[first:last].argmax())])


def usual(every: Iterable[Close]) -> tuple[float, float]:
    """Return the mean and the standard deviation of all cosines with a query."""
    import numpy as np

    cosines = np.concatenate([each.cosines for each in every] or [np.zeros(0)]).astype(float)
    cosines = np.append(cosines, np.zeros(max(0, FEW - len(cosines))))
    return float(cosines.mean()), float(cosines.std())


class _Matrix(Struct):
    """A scope's vectors, one per row; `starts` are the first rows of its posts `seqs`."""

    began: float
    upto: int
    rows: Any
    refs: Any
    parts: Any
    seqs: Any
    starts: Any


class Matrices:
    """An LRU cache of matrices. A matrix is extended or reloaded after changes by other processes."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._held: OrderedDict[tuple[str, str, str], _Matrix] = OrderedDict()
        self._lock = threading.Lock()

    def close(self, transaction: Transaction, scope: str, dense: Dense) -> Close | None:
        """Compare a query with a scope's posts, each by its closest part. None without vectors of the model."""
        import numpy as np

        matrix = self._matrix(transaction, scope, dense)
        if matrix is None or not len(matrix.seqs):
            return None
        every = _closeness(matrix.rows, dense)
        cosines = np.maximum.reduceat(every, matrix.starts) if len(matrix.starts) < len(every) else every
        return Close(matrix.seqs, cosines, every, matrix.parts, matrix.starts)

    def _matrix(self, transaction: Transaction, scope: str, dense: Dense) -> _Matrix | None:
        key = (transaction.scope.tenant, scope, dense.model)
        row = transaction.one("embedded_get", scope=scope, model=dense.model)
        if row is None:
            with self._lock:
                self._held.pop(key, None)
            return None
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
        if held is None or held.began != row["began"] or held.upto > row["upto"]:
            held = None
        if held is not None and held.upto == row["upto"] and len(held.rows) == row["vectors"]:
            return held
        matrix = _grown(transaction, held, row, key, len(dense.vector))
        if held is not None and len(matrix.rows) != row["vectors"]:  # some of its vectors were deleted
            matrix = _grown(transaction, None, row, key, len(dense.vector))
        with self._lock:
            self._held[key] = matrix
            self._held.move_to_end(key)
            while len(self._held) > 1 and sum(each.rows.nbytes for each in self._held.values()) > self._memory:
                self._held.popitem(last=False)
        return matrix


def _closeness(rows: Any, dense: Dense) -> Any:
    """Return the cosine of each row with a query, which is at most that of the best sentence if it has several.

    Then the closeness is the root of the summed squares of a row's excess over the mean cosine of the query and of each
    sentence. So a row close to one sentence outranks a row that is a little closer than others to each (design/031).
    """
    import numpy as np

    queries = np.frombuffer(b"".join((dense.vector, *dense.sentences)), "<f4").reshape(1 + len(dense.sentences), -1)
    cosines = rows @ queries.T
    if not dense.sentences:
        return cosines[:, 0]
    means = cosines.sum(axis=0) / max(FEW, len(rows))
    excess = np.maximum(cosines - means, 0)
    closeness = np.linalg.norm(excess, axis=1)
    return means[0] + closeness * (excess.max() / (closeness.max() or 1.0))


def _grown(
    transaction: Transaction, matrix: _Matrix | None, row: dict[str, Any], key: tuple[str, str, str], size: int
) -> _Matrix:
    """Load the missing vectors at the end of a matrix."""
    import numpy as np

    _, scope, model = key
    values = {"scope": scope, "model": model, "after": matrix.upto if matrix else 0}
    results = [each for each in transaction.run("vector_behind", **values) if len(each[2]) == size]
    rows = np.frombuffer(b"".join(body for *_, body in results), "<f4").reshape(len(results), size // _BYTES)
    refs = np.fromiter((ref for ref, *_ in results), np.int64, len(results))
    parts = np.fromiter((part for _, part, _ in results), np.int32, len(results))
    if matrix is not None:
        rows = np.concatenate((matrix.rows, rows))
        refs, parts = np.concatenate((matrix.refs, refs)), np.concatenate((matrix.parts, parts))
    seqs, starts = np.unique(refs, return_index=True)
    return _Matrix(row["began"], row["upto"], rows, refs, parts, seqs, starts)


def drop(transaction: Transaction, place: Place, number: int) -> None:
    """Delete the vectors of a memory's text, of every model."""
    scope = scope_of_place(place)
    for (model,) in transaction.run("embedded_models", scope=scope).fetchall():
        names = {"scope": scope, "model": model}
        if gone := transaction.run("vector_delete", **names, ref=number).rowcount:
            transaction.run("embedded_less", **names, gone=gone)


def scopes_of(transaction: Transaction, user: str, model: str, *, limit: int) -> list[int]:
    """Return the numbers of a user's conversations that have vectors of a model, the newest first."""
    values = {"owner": user, "model": model, "limit": limit}
    return [int(scope[1:]) for (scope,) in transaction.run("embedded_of_owner", **values)]


class VectorStore(Noun):
    """Stores vectors of posts and memories. They are deleted with their source, and only compared within a model."""

    @read_all
    def due(
        self, transaction: Transaction, model: str, *, since: float = 0.0, limit: int = 100
    ) -> Sequence[EmbeddingBacklog]:
        """Return conversations changed since a time with posts without vectors, newest first."""
        rows = transaction.rows("embedded_due", model=model, since=since, limit=limit)
        return [
            record(EmbeddingBacklog, row, epoch=conversation_epoch(transaction.within(Scope(row["tenant"])), row["no"]))
            for row in rows
        ]

    @write_conversation
    def keep(self, transaction: Transaction, due: EmbeddingBacklog, embedded: NewVectors) -> bool:
        """Store vectors of posts.

        Return False if another worker was first, or the conversation was replaced or erased from since `due` was read.
        """
        row = access.find(transaction, due.conversation)
        if row is None or row.no != due.no or row.last_seq < embedded.upto:
            return False
        if due.epoch != row.epoch:
            return False
        return _keep(transaction, scope_of(row.no), embedded, embedded.rows, owner=row.user or "")

    @read_all
    def places_due(
        self, transaction: Transaction, model: str, *, since: float = 0.0, limit: int = 100
    ) -> Sequence[UnembeddedPlace]:
        """Return places with new memory texts since a time without vectors, newest first."""
        results = transaction.run("places_due", model=model, since=since, limit=limit)
        return [UnembeddedPlace(tenant, Place(kind, owner), upto, said) for tenant, kind, owner, upto, said in results]

    @read
    def memory_texts(
        self, transaction: Transaction, place: Place, *, after: int, limit: int
    ) -> list[tuple[int, str, str]]:
        """Load a place's memory texts after a number, ended ones too, in order: number, name and text."""
        values = {"kind": place.kind, "owner": place.id, "after": after, "limit": limit}
        return transaction.run("memories_said", **values).fetchall()

    @write
    def keep_of_place(self, transaction: Transaction, owner: Place, embedded: NewVectors) -> bool:
        """Store vectors of texts that memories still have. Return False if another worker was first, or the place is
        gone.

        Corrected or erased texts get no vector; their replacements are due again.
        """
        place = {"kind": owner.kind, "owner": owner.id}
        last = transaction.value("place_last_said", **place)
        if last is None or last < embedded.upto:
            return False  # it was erased; a new place continues after its old numbers
        still = {
            number
            for (number,) in transaction.run("memories_said_still", **place, after=embedded.after, upto=embedded.upto)
        }
        rows = [each for each in embedded.rows if each[0] in still]
        return _keep(transaction, scope_of_place(owner), embedded, rows)

    @read_all
    def counts(self, transaction: Transaction, model: str) -> tuple[int, int]:
        """Count the posts that a model has processed, and their vectors."""
        posts, vectors = transaction.run("embedded_counts", model=model).fetchone()
        return posts, vectors


def _keep(
    transaction: Transaction,
    scope: str,
    embedded: NewVectors,
    rows: Sequence[tuple[int, int, bytes]],
    *,
    owner: str = "",
) -> bool:
    """Store vectors of a scope; return False if another worker was first."""
    names = {"scope": scope, "model": embedded.model}
    data = transaction.one("embedded_get", **names)
    if (data["upto"] if data else 0) != embedded.after:
        return False
    for ref, part, body in rows:
        transaction.run("vector_insert", **names, ref=ref, part=part, body=body)
    values = {"owner": owner, "upto": embedded.upto, "vectors": len(rows), "now": embedded.now}
    transaction.run("embedded_put", **names, **values)
    return True
