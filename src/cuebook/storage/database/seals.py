"""Seal documents and memories: a message authentication code (MAC) of each row, and a keyed sum of all of them.

A row whose code differs was changed without the key, one without a code was inserted, and a code without a row remains
of a removed one. The sum is a multiset hash (MSet-Add-Hash, Clarke et al. 2003): it also covers rows that were removed
or replaced together with their codes. Both are stored in the transaction that changes the rows.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from cuebook.storage.database.columns import Row

SealedTable = Literal["document", "memory", "memory_source"]
#: The columns that a code covers.
COLUMNS: Final[dict[SealedTable, tuple[str, ...]]] = {
    "document": ("tenant", "user_id", "space", "key", "body", "created_at", "updated_at", "expires_at"),
    "memory": (
        "tenant", "no", "kind", "owner", "id", "category", "name", "text", "subject", "status", "trust", "confidence",
        "weight", "uses", "used_at", "decayed_at", "valid_from", "valid_to", "supersedes", "ended_by", "repeated_at",
        "written", "said", "created_at", "updated_at", "standing",
    ),
    "memory_source": ("tenant", "memory", "conversation", "post"),
}  # fmt: skip
#: The end of each name in a stored place of documents.
END: Final = "\x1f"
_SUM_BYTES: Final = 32
#: Sums are below this.
MODULUS: Final = 1 << 8 * _SUM_BYTES
#: Characters of a row's name; PostgreSQL cannot index more than 2,700 bytes.
_LONGEST: Final = 500


#: The code of a row that Cuebook changed after somebody else had: no row has it, so that the row stays reported.
_ALTERED: Final = "altered"


class Change(Struct):
    """A row of a table before and after a transaction; None where it does not exist."""

    table: SealedTable
    before: Row | None = None
    after: Row | None = None


#: The rows that a transaction has changed, by tenant and name.
Changes = dict[tuple[str, str], Change]


class Total(Struct):
    """The sum of a tenant's seals, and its number of changes: now, and at the last audit record of them."""

    changes: int = 0
    recorded: int = 0
    value: int = 0


def name_of(table: SealedTable, row: Row) -> str:
    """Return the name of a row: its table and key as a JSON list. A long one ends in a digest."""
    if table == "document":
        names: Iterable[Any] = (_text(row["user_id"]), *_text(row["space"]).split(END)[:-1], _text(row["key"]))
    elif table == "memory":
        names = (row["no"], *(_text(row[each]) for each in ("kind", "owner", "id")))
    else:
        names = (row["memory"], row["conversation"], _text(row["post"]))
    name = msgspec.json.encode([table, *names])
    text = name.decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} {blake2b(name, digest_size=16).hexdigest()}"


def mac_of(table: SealedTable, row: Row, key: bytes) -> str:
    """Return the code of a row."""
    values = (row[each] for each in COLUMNS[table])
    # SQLite returns a new 0 as an integer where it stores 0.0, and stores -0.0 as 0.0
    plain = [value + 0.0 if isinstance(value, int | float) else value for value in values]
    return blake2b(
        msgspec.msgpack.encode([table, *plain]), key=key[:64], digest_size=16, person=b"cuebook-row"
    ).hexdigest()


def term_of(name: str, mac: str, key: bytes) -> int:
    """Return what a seal adds to the sum."""
    return _number(f"{name}\0{mac}", key, b"cuebook-term")


def record_mac(selection: Mapping[str, Any], tenant: str, seq: int, key: bytes) -> str:
    """Return the code of an audit record of the sum, which is valid at one place of the log only."""
    values = [tenant, seq, *(str(selection.get(name)) for name in ("changes", "after", "accepted", "sum"))]
    return blake2b(msgspec.msgpack.encode(values), key=key[:64], digest_size=16, person=b"cuebook-record").hexdigest()


def note(changes: Changes, table: SealedTable, before: Iterable[Row], after: Iterable[Row]) -> None:
    """Note the rows that a statement has changed: they were `before` and are `after`."""
    for row in before:
        changes.setdefault((row["tenant"], name_of(table, row)), Change(table, before=row)).after = None
    for row in after:
        changes.setdefault((row["tenant"], name_of(table, row)), Change(table)).after = row


def store_seals(run: Callable[..., Any], changes: Changes, key: bytes) -> None:
    """Store the seals of changed rows, and add them to their tenants' sums. `run` runs a statement."""
    for tenant in sorted({tenant for tenant, _ in changes}):
        own = {name: change for (each, name), change in changes.items() if each == tenant}
        macs = {name: mac_of(each.table, each.after, key) for name, each in own.items() if each.after is not None}
        difference = 0
        for name, earlier in _put(run, tenant, macs):
            difference += term_of(name, macs[name], key) - (term_of(name, earlier, key) if earlier else 0)
            before = own[name].before
            if earlier != (None if before is None else mac_of(own[name].table, before, key)):
                _put(run, tenant, {name: _ALTERED})
        if gone := [name for name, each in own.items() if each.after is None]:
            names = msgspec.json.encode(gone).decode()
            for name, mac in run("seals_delete", tenant=tenant, names=names).fetchall():
                difference -= term_of(name, mac, key)
        if difference:
            total = next_total(run, tenant, key)
            total.value += difference
            keep_total(run, tenant, total, key)


def _put(run: Callable[..., Any], tenant: str, macs: dict[str, str]) -> list[tuple[str, str | None]]:
    """Store the codes of rows by name. Return their earlier ones."""
    if not macs:
        return []
    seals = msgspec.json.encode([{"name": name, "mac": mac} for name, mac in macs.items()]).decode()
    rows: list[tuple[str, str | None]] = run("seals_put", tenant=tenant, seals=seals).fetchall()
    return rows


def next_total(run: Callable[..., Any], tenant: str, key: bytes) -> Total:
    """Count a change, and return the sum before it."""
    changes, recorded, masked = run("seal_total_next", tenant=tenant, none=b"").fetchone()
    return Total(changes, recorded, _value(masked, tenant, changes - 1, recorded, key))


def keep_total(run: Callable[..., Any], tenant: str, total: Total, key: bytes) -> bytes:
    """Store a sum. Return it as it is stored."""
    masked = (total.value + _mask(tenant, total.changes, total.recorded, key)) % MODULUS
    stored = masked.to_bytes(_SUM_BYTES)
    run("seal_total_put", tenant=tenant, recorded=total.recorded, total=stored)
    return stored


def read_total(run: Callable[..., Any], tenant: str, key: bytes) -> Total:
    """Return the sum of a tenant's seals as it is stored."""
    row = run("seal_total_get", tenant=tenant).fetchone()
    if row is None:
        return Total()
    changes, recorded, masked = row
    if not isinstance(changes, int) or not isinstance(recorded, int):  # of another type in a SQLite file
        return Total(recorded=-1)
    return Total(changes, recorded, _value(masked, tenant, changes, recorded, key))


def _value(masked: bytes, tenant: str, changes: int, recorded: int, key: bytes) -> int:
    if not changes:
        return 0
    if not masked or not isinstance(masked, bytes):
        return -1  # no rows have this sum
    return (int.from_bytes(masked) - _mask(tenant, changes, recorded, key)) % MODULUS


def _text(value: object) -> str:
    """Return a name as text, also a damaged one."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _mask(tenant: str, changes: int, recorded: int, key: bytes) -> int:
    """Return what hides a sum: it is different for each change, so that nobody learns what a seal adds."""
    return _number(f"{tenant}\0{changes}\0{recorded}", key, b"cuebook-total")


def _number(text: str, key: bytes, purpose: bytes) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), key=key[:64], digest_size=_SUM_BYTES, person=purpose)
    return int.from_bytes(digest.digest())
