"""Memories of many owners for the PostgreSQL benchmark: rows that the server makes, and synthetic vectors by COPY."""

from collections.abc import Sequence
from typing import Any

import psycopg

from bench.random_text import TextGenerator
from cuebook.memory.tokenizer import memory_key
from cuebook.records.memory import Memory, Place
from cuebook.storage.memories import place_token
from cuebook.storage.vectors import scope_of_place

MODEL = "bench"
_DIMENSION, _RANK, _TEXTS, _WORDS = 384, 32, 5_000, 14
_PER_OWNER = "FROM owners o CROSS JOIN LATERAL generate_series(1, o.held) g"
_TEXT = f"{_PER_OWNER} JOIN texts t ON t.n = (g * 7919 + o.first) % {_TEXTS}"
_ROWS = (
    f"""INSERT INTO memory (no, tenant, kind, owner, id, category, name, text, subject, status, trust, confidence,
        weight, uses, used_at, decayed_at, valid_from, repeated_at, written, said, created_at, updated_at)
    SELECT o.first + g, 'default', 'user', o.owner, 'm' || (o.first + g), 'fact', '', t.text, '', 'active', 'user', 0.8,
        0.5, 0, 1.7e9, 1.7e9, 1.7e9, 1.7e9, 0, g, 1.7e9, 1.7e9 {_TEXT}""",
    f"INSERT INTO memory_text (rowid, scope, key) SELECT o.first + g, o.token, t.key {_TEXT}",
    "INSERT INTO place SELECT 'default', 'user', owner, NULL, 1, held, 1.7e9 FROM owners",
    f"INSERT INTO embedded SELECT 'default', scope, '{MODEL}', '', held, held, 1 FROM owners",  # noqa: S608
)


def fill(url: str, counts: Sequence[int]) -> None:
    """Store so many memories with vectors for each of the users u0, u1 and so on."""
    import numpy as np

    talk, owners, first = TextGenerator(3), [], 0
    for number, held in enumerate(counts):
        place = Place("user", f"u{number}")
        owners.append((place.id, place_token("default", place), scope_of_place(place), first, held))
        first += held
    texts = [
        (number, text, memory_key(Memory(id="", kind="user", owner="", category="fact", text=text, valid_from=1.7e9)))
        for number, text in enumerate(talk.about(_WORDS) for _ in range(_TEXTS))
    ]
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT set_config('cuebook.tenant', 'default', false)")
        cursor.execute("CREATE TEMP TABLE texts (n BIGINT PRIMARY KEY, text TEXT, key TEXT)")
        cursor.execute("CREATE TEMP TABLE owners (owner TEXT, token TEXT, scope TEXT, first BIGINT, held BIGINT)")
        for table, rows in (("texts", texts), ("owners", owners)):
            with cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        for statement in _ROWS:
            cursor.execute(statement.encode())
        dice = np.random.default_rng(6)
        with cursor.copy("COPY vector (tenant, scope, model, ref, part, body) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["text", "text", "text", "int8", "int8", "bytea"])
            for _, _, scope, _, held in owners:
                for number, row in enumerate(vectors(dice, held), 1):
                    copy.write_row(("default", scope, MODEL, number, 0, row.tobytes()))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def vectors(dice: Any, count: int) -> Any:
    """Return random unit vectors, mostly in a space of few dimensions, as those of texts are."""
    import numpy as np

    basis = np.random.default_rng(5).standard_normal((_RANK, _DIMENSION))
    rows = dice.standard_normal((count, _RANK)) @ basis + 2 * dice.standard_normal((count, _DIMENSION))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
