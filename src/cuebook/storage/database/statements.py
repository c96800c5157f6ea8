"""Load the SQL files: the schema with its migrations, and named statements, translated for a dialect.

`statements.sql` has the statements of both dialects, `postgres.sql` those that differ. All tables are in `schema.sql`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from operator import itemgetter
from typing import Any, Final, Literal

from msgspec import Struct

Dialect = Literal["sqlite", "postgresql"]
#: The statements that migrate one version to the next.
Migration = tuple[str, ...]
#: A statement with parameters by position, which bind faster, and the function that puts values in order.
Prepared = tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]

#: Migrations in order: the first migrates version 1 to 2. An older database runs those that it lacks.
MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        """CREATE TABLE parallel_turn (
            tenant TEXT NOT NULL, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, lease_until REAL NOT NULL,
            lease_holder TEXT, PRIMARY KEY (tenant, conversation, turn)
        ) WITHOUT ROWID""",
    ),
    (
        "ALTER TABLE conversation ADD COLUMN utility INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE conversation ADD COLUMN opening BLOB",
        "ALTER TABLE conversation ADD COLUMN ending BLOB",
        "CREATE INDEX conversation_opening ON conversation (tenant, opening) WHERE opening IS NOT NULL",
        "CREATE INDEX conversation_ending ON conversation (tenant, ending) WHERE ending IS NOT NULL",
    ),
    ("ALTER TABLE conversation DROP COLUMN words",),
    (
        "ALTER TABLE post ADD COLUMN chain BLOB",
        "CREATE INDEX post_chain ON post (tenant, chain, conversation) WHERE chain IS NOT NULL",
    ),
    (
        """CREATE TABLE claim (
            tenant TEXT NOT NULL, job TEXT NOT NULL, piece TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
            PRIMARY KEY (tenant, job, piece)
        ) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE document (
            tenant TEXT NOT NULL, user_id TEXT NOT NULL, space BLOB NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL,
            created_at REAL NOT NULL, updated_at REAL NOT NULL, expires_at REAL,
            PRIMARY KEY (tenant, user_id, space, key)
        ) WITHOUT ROWID""",
        "CREATE INDEX document_expiry ON document (tenant, expires_at) WHERE expires_at IS NOT NULL",
    ),
    (
        "ALTER TABLE memory ADD COLUMN standing INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX memory_always ON memory (tenant, kind, owner, confidence) WHERE standing = 1",
    ),
    (
        """CREATE TABLE work (
            tenant TEXT NOT NULL, conversation INTEGER NOT NULL, task TEXT NOT NULL, model TEXT NOT NULL,
            currency TEXT NOT NULL, calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, cost REAL NOT NULL,
            PRIMARY KEY (tenant, conversation, task, model, currency)
        ) WITHOUT ROWID""",
    ),
    ("ALTER TABLE item ADD COLUMN speaker TEXT NOT NULL DEFAULT ''",),
    (
        "ALTER TABLE api_key ADD COLUMN spent_on INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE api_key ADD COLUMN tokens_spent INTEGER NOT NULL DEFAULT 0",
    ),
    (
        """CREATE TABLE seal (
            tenant TEXT NOT NULL, name TEXT NOT NULL, mac TEXT NOT NULL, earlier TEXT, PRIMARY KEY (tenant, name)
        ) WITHOUT ROWID""",
        """CREATE TABLE seal_total (
            tenant TEXT NOT NULL, changes INTEGER NOT NULL, recorded INTEGER NOT NULL, total BLOB NOT NULL,
            PRIMARY KEY (tenant)
        ) WITHOUT ROWID""",
    ),
)
#: The version that a new database stores in `schema_version`.
VERSION: Final = 1 + len(MIGRATIONS)
#: Suffix of the name of a statement that selects what another one deletes or updates.
ROWS: Final = ".rows"
#: Full-text indexes of (scope, key) rows, by rowid of what they index.
FULL_TEXT: Final = ("post_text", "memory_text")

_UPDATE = re.compile(r"UPDATE memory SET .+?\sWHERE\b", re.DOTALL)
_ENTRY = re.compile(r"^-- name: (?P<name>\w+)\n-- .+\n(?P<sql>(?:.+\n?)+)", re.MULTILINE)
_FILES: Final[dict[Dialect, tuple[str, ...]]] = {
    "sqlite": ("statements.sql",),
    "postgresql": ("statements.sql", "postgres.sql"),
}
_PLACEHOLDERS: Final[dict[Dialect, str]] = {"sqlite": "?", "postgresql": "%s"}
_PARAMETER = re.compile(r"'[^']*'|(?<!:):(?P<name>\w+)|%")
#: What PostgreSQL writes differently in the schema.
_FULL_TEXT_TABLE = r"""CREATE \1 (
    rowid BIGINT PRIMARY KEY, tenant TEXT NOT NULL DEFAULT current_setting('cuebook.tenant'),
    scope TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL GENERATED ALWAYS AS (split_part(scope, ' ', 2)) STORED,
    words TSVECTOR NOT NULL GENERATED ALWAYS AS (words_of(key)) STORED
);
CREATE INDEX \2_words ON \2 USING gin (words)"""
#: The same for statements, apart from those that `postgres.sql` replaces.
_POSTGRES_STATEMENTS: Final = (
    # a cast of a joined value keeps row-level security from using an index
    (r"json_each\((:\w+)\) (\w)\b([^;]+?)CAST\(\2\.value AS INTEGER\)", r"json_numbers(\1) \2\3\2.value"),
    (r"SELECT CAST\(value AS INTEGER\) FROM json_each\(", "SELECT value FROM json_numbers("),
    (r" (?:NOT INDEXED|INDEXED BY \w+)", ""),  # hints for SQLite's planner
    (r"\bCROSS JOIN\b", "JOIN"),
    (r"\bIS NOT (:\w+)", r"IS DISTINCT FROM \1"),
    (r"\bIS (:\w+)(?! IS)", r"IS NOT DISTINCT FROM \1"),
    (r"(:\w+) IS (NOT )?NULL", r"CAST(\1 AS TEXT) IS \2NULL"),  # a value that is only compared has no type
    (r"\bchar\(", "chr("),
    (r"\bCAST\(([\w.]+) AS TEXT\)", r"convert_from(\1, 'UTF8')"),  # of a BLOB
    (r"\bAS INTEGER\)", "AS BIGINT)"),
    (r"\bAS REAL\)", "AS DOUBLE PRECISION)"),
)
_POSTGRES_SCHEMA: Final = (
    (r"INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED BY DEFAULT AS IDENTITY NOT NULL PRIMARY KEY"),
    (r"\bINTEGER\b", "BIGINT"),
    (r"\bREAL\b", "DOUBLE PRECISION"),
    (r"\bBLOB\b", "BYTEA"),
    (r" WITHOUT ROWID", ""),
    (r"(memory_(?:standing|always) ON .+ confidence)\)", r"\1, no)"),  # SQLite's indexes end with it
    (r"CREATE VIRTUAL (TABLE (\w+)) USING .+\)", _FULL_TEXT_TABLE),
    (r"(CREATE INDEX memory_text)_words.+", r"\g<0>;\n\1_scope ON memory_text (tenant, scope)"),  # one per memory
    (r"(CREATE INDEX post_text)_words.+", r"\g<0>\n\1_owner ON post_text (tenant, owner);"),
)


def ddl(dialect: Dialect) -> list[str]:
    """Return the statements that create the tables and indexes in an empty database."""
    schema = re.sub(r"^--.*\n", "", _read("schema.sql"), flags=re.MULTILINE)
    if dialect == "postgresql":
        functions = re.sub(r"^--.*\n", "", _read("postgres_schema.sql"), flags=re.MULTILINE)
        schema = functions + _translated(schema, _POSTGRES_SCHEMA)
    statements = [statement.strip() for statement in schema.split(";\n") if statement.strip()]
    return [*statements, _read("tenants.sql")] if dialect == "postgresql" else statements


def translated(migrations: Sequence[Migration]) -> list[str]:
    """Return the statements of migrations for PostgreSQL."""
    statements = [statement for migration in migrations for statement in migration]
    return [*(_translated(each, _POSTGRES_SCHEMA) for each in statements), _read("tenants.sql")]


def _translated(sql: str, rules: Sequence[tuple[str, str]]) -> str:
    for pattern, replacement in rules:
        sql = re.sub(pattern, replacement, sql)
    return sql


def load_statements(dialect: Dialect = "sqlite") -> dict[str, str]:
    """Return each shipped statement's SQL by its name; a later file replaces statements of an earlier one."""
    statements: dict[str, str] = {}
    for file in _FILES[dialect]:
        text = _read(file)
        if dialect == "postgresql" and file == "statements.sql":
            text = _translated(text, _POSTGRES_STATEMENTS)
        entries = [(match["name"], match["sql"].strip().rstrip(";")) for match in _ENTRY.finditer(text)]
        if len(entries) > len(dict(entries)):
            msg = f"{file}: two statements have the same name. Rename one of them."
            raise ValueError(msg)
        statements |= entries
    return statements


def _read(file: str) -> str:
    return resources.files("cuebook.storage").joinpath(file).read_text("utf-8")


class Statements(Struct):
    """The shipped statements as a dialect's driver runs them, and what was learned of their columns."""

    prepared: dict[str, Prepared]
    columns: dict[tuple[str, int], tuple[str, ...]] = {}  # names by statement and number of columns
    makers: dict[tuple[type[Struct], str, int], Callable[[Sequence[Any]], Any]] = {}  # by record also


@cache
def prepared_statements(dialect: Dialect) -> Statements:
    """Load the statements for a dialect's driver, once per process.

    For each that deletes rows, or updates and returns memories, another one selects the same rows.
    """
    shipped = load_statements(dialect)
    ends = "" if dialect == "sqlite" else " FOR UPDATE"
    selects = {}
    for name, sql in shipped.items():
        rows = sql.partition(" RETURNING ")[0]
        if sql.startswith("DELETE FROM "):
            selects[f"{name}{ROWS}"] = rows.replace("DELETE", "SELECT *", 1)
        elif _UPDATE.search(sql) and rows != sql:
            selects[f"{name}{ROWS}"] = f"{_UPDATE.sub('SELECT * FROM memory WHERE', rows, count=1)} ORDER BY no{ends}"  # noqa: S608
    return Statements({name: prepared(sql, dialect) for name, sql in (shipped | selects).items()})


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
