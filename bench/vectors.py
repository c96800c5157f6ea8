"""Vector search benchmark: one scope, compared with the bare product, a growing store, and other libraries."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.hybrid import hybrid
from bench.measure import Figure, Run, compared, interleave, wall
from bench.stores import SQL
from cuebook.records.memory import Dense, Scope
from cuebook.storage.database.sqlite import transaction_on
from cuebook.storage.database.sqlite_files import connect, prepare
from cuebook.storage.database.transaction import Failpoints
from cuebook.storage.vectors import Matrices, scope_of

_SCOPE = 1_000  # vectors
_DIMENSION = 384
_MODEL = "bench"
_TIMES = 50


def vectors(run: Run) -> Iterator[Figure]:
    """Search 1,000 vectors: warm compared with numpy's product and top ten, cold with reading the blobs, as N grows."""
    import numpy as np

    sizes = (1_000, 20_000) if run.quick else (1_000, 200_000)
    dice = np.random.default_rng(5)
    query = _unit(dice.standard_normal((1, _DIMENSION)))[0]
    dense = Dense(_MODEL, query.tobytes(), 0.5)
    searches: dict[int, Callable[[], list[int]]] = {}
    stores = []
    for size in sizes:
        path = run.fast / f"vectors-{size}.db"
        _fill(path, size, np.random.default_rng(6))
        stores.append(connection := connect(str(path), read_only=True))
        searches[size] = _search(connection, Matrices(), dense)
    rows = np.frombuffer(b"".join(_bodies(stores[0])), "<f4").reshape(_SCOPE, _DIMENSION)

    def bare() -> list[int]:
        found = rows @ query
        best = np.argpartition(-found, 9)[:10]
        return [int(at) + 1 for at in best[np.argsort(-found[best])]]

    same = all(each() == bare() for each in searches.values())
    sides = interleave(
        run.rounds(40),
        {"bare": lambda: wall(_TIMES, bare)}
        | {str(size): (lambda do=do: wall(_TIMES, do)) for size, do in searches.items()},  # type: ignore[misc]
    )
    yield Figure("the same ten, in the same order", str(same), "numpy", ratio=float(same), bar=1, least=True, unit="")
    yield compared("a scope of 1,000, warm", sides["1000"], "product and top ten", sides["bare"], bar=3)
    last = str(sizes[-1])
    yield compared(f"the same among {sizes[-1]:,}", sides[last], "among 1,000", sides["1000"], bar=1.3)
    cold = interleave(
        run.rounds(20),
        {
            "cold": lambda: wall(1, _search(stores[-1], Matrices(), dense)),
            "read": lambda: wall(1, lambda: b"".join(_bodies(stores[-1]))),
        },
    )
    yield compared("a scope of 1,000, cold", cold["cold"], "its blobs read", cold["read"], bar=2)
    for connection in stores:
        connection.close()
    yield from hybrid(run)


def _unit(rows: Any) -> Any:
    import numpy as np

    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


def _search(connection: sqlite3.Connection, matrices: Matrices, dense: Dense) -> Callable[[], list[int]]:
    transaction = transaction_on(connection).within(Scope())

    def search() -> list[int]:
        close = matrices.close(transaction, scope_of(1), dense)
        return close.best(10, [(1, _SCOPE)]) if close else []

    return search


def _bodies(connection: sqlite3.Connection) -> Iterator[bytes]:
    values = {"tenant": "default", "scope": scope_of(1), "model": _MODEL, "after": 0}
    return (body for _, body in connection.execute(SQL["vector_behind"], values))


def _fill(path: Path, size: int, dice: Any) -> None:
    """Create a store of `size` vectors, 1,000 per scope."""
    with closing(prepare(str(path), synchronous="OFF", failpoints=Failpoints())) as connection:
        connection.execute("BEGIN")
        for no in range(1, size // _SCOPE + 1):
            rows = _unit(dice.standard_normal((_SCOPE, _DIMENSION)))
            names = {"tenant": "default", "scope": scope_of(no), "model": _MODEL}
            made = [{**names, "ref": at, "part": 0, "body": row.tobytes()} for at, row in enumerate(rows, 1)]
            connection.executemany(SQL["vector_insert"], made)
            values = {**names, "owner": "", "upto": _SCOPE, "vectors": _SCOPE, "now": 1.0}
            connection.execute(SQL["embedded_put"], values)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
