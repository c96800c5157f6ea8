"""Check a PostgreSQL database: its server, the role of its connections, its tables and the protection of tenants."""

from cuebook.records.answer import Answer
from cuebook.storage.database.postgres import ROLE, connected, schema_of, user_of

_CAN_SWITCH = "SELECT pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = %s"
_UNPROTECTED = """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity) ORDER BY 1"""


class DatabaseCheck(Answer, frozen=True, kw_only=True):
    """A PostgreSQL database. `unprotected` are tables without row-level security; `faults` are sentences."""

    server: str
    user: str
    role: str  # of the connections of servers and workers
    schema: int | None
    unprotected: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether servers can use the database."""
        return not self.faults

    def lines(self) -> list[str]:
        """Return the lines to print."""
        known = f"schema {self.schema}" if self.schema is not None else "no tables"
        lines = [f"PostgreSQL {self.server}, {known}", f"connected as {self.user}, servers use role {self.role}"]
        return [*lines, *self.faults] if self.faults else [*lines, "tenants are separated by row-level security"]


def check_database(url: str, *, schema: int) -> DatabaseCheck:
    """Check a database for tables of version `schema`. Blocks. Raises BackendError if it cannot be reached."""
    with connected(url) as connection:
        found = schema_of(connection)
        user, strong = user_of(connection)
        can_switch = connection.execute(_CAN_SWITCH, (ROLE,)).fetchone()
        tables = connection.execute(_UNPROTECTED).fetchall()
        [server] = connection.execute("SELECT current_setting('server_version')").fetchone()
    unprotected = tuple(name for (name,) in tables)
    faults = []
    if found is None:
        faults.append("The tables are missing. Run `cuebook db init`.")
    elif found != schema:
        faults.append(f"The tables have schema {found}, not {schema}. Run `cuebook db migrate`.")
    if unprotected:
        faults.append(f"Row-level security is off for {', '.join(unprotected)}. Run `cuebook db migrate`.")
    if strong and not (can_switch and can_switch[0]):
        faults.append(f"{user} bypasses row-level security and cannot switch to {ROLE}. Run `cuebook db init`.")
    return DatabaseCheck(
        server=server, user=user, role=ROLE if strong else user, schema=found, unprotected=unprotected,
        faults=tuple(faults),
    )  # fmt: skip
