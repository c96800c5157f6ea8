"""Load named, described SQL statements: `statements.sql` for both dialects, `postgres.sql` for those that differ."""

import re
from importlib import resources
from typing import Final

from msgspec import Struct

from cuebook.storage.tables import Dialect

_ENTRY = re.compile(r"^-- name: (?P<name>\w+)\n-- (?P<sentence>.+)\n(?P<sql>(?:.+\n?)+)", re.MULTILINE)
_FILES: Final[dict[Dialect, tuple[str, ...]]] = {
    "sqlite": ("statements.sql",),
    "postgresql": ("statements.sql", "postgres.sql"),
}


class Statement(Struct, frozen=True):
    """One SQL statement and a sentence that describes it."""

    name: str
    sentence: str
    sql: str


def read_statements(text: str) -> dict[str, Statement]:
    """Parse named statements, which a blank line ends; a duplicate name is an error."""
    statements: dict[str, Statement] = {}
    for match in _ENTRY.finditer(text):
        name = match["name"]
        if name in statements:
            msg = f"Duplicate statement {name!r}. Rename one of them."
            raise ValueError(msg)
        statements[name] = Statement(name, match["sentence"], match["sql"].strip().rstrip(";"))
    return statements


def load_statements(dialect: Dialect = "sqlite") -> dict[str, str]:
    """Return each shipped statement's SQL by its name; a later file replaces statements of an earlier one."""
    folder = resources.files("cuebook.storage")
    return {
        name: statement.sql
        for file in _FILES[dialect]
        for name, statement in read_statements(folder.joinpath(file).read_text("utf-8")).items()
    }
