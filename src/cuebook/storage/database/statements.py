"""Load named, described SQL statements: `statements.sql` for both dialects, `postgres.sql` for those that differ."""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct

from cuebook.storage.tables import Dialect

_ENTRY = re.compile(r"^-- name: (?P<name>\w+)\n-- (?P<sentence>.+)\n(?P<sql>(?:.+\n?)+)", re.MULTILINE)
_FILES: Final[dict[Dialect, tuple[str, ...]]] = {
    "sqlite": ("statements.sql",),
    "postgresql": ("statements.sql", "postgres.sql"),
}


_PLACEHOLDERS: Final[dict[Dialect, str]] = {"sqlite": "?", "postgresql": "%s"}
_PARAMETER = re.compile(r"'[^']*'|(?<!:):(?P<name>\w+)|%")


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


#: A statement with parameters by position, which bind faster, and the function that puts values in order.
Prepared = tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]


class Statements:
    """The shipped statements as a dialect's driver runs them, and what was learned of their columns."""

    def __init__(self, dialect: Dialect) -> None:
        self.prepared = {name: prepared(sql, dialect) for name, sql in load_statements(dialect).items()}
        self.columns: dict[str, tuple[str, ...]] = {}  # names by statement, after its first run
        self.makers: dict[tuple[type[Struct], str], Callable[[Sequence[Any]], Any]] = {}  # by record and statement


def prepared(sql: str, dialect: Dialect) -> Prepared:
    """Replace each `:name` outside literals by a placeholder. psycopg's percent signs are doubled."""
    names: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match["name"]:
            names.append(match["name"])
            return _PLACEHOLDERS[dialect]
        return match[0].replace("%", "%%") if dialect == "postgresql" else match[0]

    return _PARAMETER.sub(replace, sql), _getter(names)


def _getter(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: tuple(values[name] for name in names)
