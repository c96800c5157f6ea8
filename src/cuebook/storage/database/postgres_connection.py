"""Connect to a PostgreSQL server outside the pool, and explain its errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from cuebook.errors import BackendError, InvalidInput, StoreFull
from cuebook.storage.database.columns import UNREADABLE, unreadable_value

#: Seconds without an answer after which a new connection tells whether the server hangs or the statement is slow.
HUNG_S: Final = 5.0
#: Parameters of libpq by which a process notices that it was cut off, unless its URL sets them.
_LIVELINESS: Final = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}  # fmt: skip
#: The role of servers and workers: it cannot bypass row-level security.
ROLE: Final = "cuebook_app"
#: The oldest version of the server: 16.
SERVER: Final = 160_000
#: How libpq describes a failed connection: host or socket, port, and the cause.
_FAILED: Final = re.compile(
    r'connection to server (?:at|on socket) "([^"]+)"(?:, port (\d+))? failed: (?:FATAL: +)?(.+)'
)


def explain(error: BaseException) -> BaseException:
    """Return the Cuebook error for any exception inside the store."""
    from psycopg import DataError, Error, OperationalError
    from psycopg.errors import DiskFull, InsufficientPrivilege, ReadOnlySqlTransaction
    from psycopg_pool import PoolTimeout

    found = error
    if isinstance(error, PoolTimeout):
        found = BackendError("The database cannot be reached. Repeat the request later.", retryable=True)
    elif isinstance(error, OperationalError) and _FAILED.search(str(error)):
        found = _unreachable(error)
    elif isinstance(error, UNREADABLE):
        found = unreadable_value()
    elif isinstance(error, DataError | UnicodeError | OverflowError):
        found = InvalidInput(f"A value cannot be stored ({error}). Send valid Unicode and smaller numbers.")
    elif isinstance(error, DiskFull):
        found = StoreFull(f"The store could not write ({error}). Nothing of this request was stored. Free some space.")
    elif isinstance(error, ReadOnlySqlTransaction):
        msg = f"The database is read-only ({error}). Connect to the primary server, or allow writes."
        found = BackendError(msg, retryable=True)
    elif isinstance(error, InsufficientPrivilege):
        msg = f"The database refuses access ({error.diag.message_primary}). Connect as the owner of the database, or"
        found = BackendError(f"{msg} for servers and workers as a member of {ROLE} (GRANT {ROLE} TO role).")
    elif isinstance(error, Error):
        found = BackendError(f"The store failed ({error}).", retryable=isinstance(error, OperationalError))
    return found


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """Open a connection with one transaction. Raises BackendError, and InvalidInput for an older server."""
    try:
        from psycopg import Error, OperationalError, connect
    except ModuleNotFoundError:
        msg = "store.url: PostgreSQL needs psycopg, which is not installed. Install cuebook[postgres]."
        raise InvalidInput(msg, where="store.url") from None
    _check_url(url)
    try:
        connection = connect(url, **liveliness(url))
    except OperationalError as error:
        raise _unreachable(error) from error
    try:
        with connection:
            if connection.info.server_version < SERVER:
                msg = f"store.url: PostgreSQL {connection.info.server_version // 10_000} is too old. Use 16 or newer."
                raise InvalidInput(msg, where="store.url")
            yield connection
    except Error as error:
        raise explain(error) from error


def hangs(url: str) -> bool:
    """Return whether a server accepts no connection in time. One that refuses it does answer. Blocks."""
    from psycopg import Error, connect
    from psycopg.errors import ConnectionTimeout

    try:
        connect(url, connect_timeout=int(HUNG_S)).close()
    except ConnectionTimeout:
        return True
    except Error:
        return False
    return False


def liveliness(url: str) -> dict[str, Any]:
    """Return parameters of libpq by which a process notices that it was cut off, as far as the URL has none."""
    from psycopg.conninfo import conninfo_to_dict

    own = conninfo_to_dict(url)
    return {name: value for name, value in _LIVELINESS.items() if name not in own}


def _unreachable(error: BaseException) -> BackendError:
    """Return the error of a failed connection, which names the server and its answer."""
    failures = _FAILED.findall(str(error))
    host, port, cause = failures[-1] if failures else ("", "", " ".join(str(error).split()).rstrip("."))
    place = f" at {host}{':' if port else ''}{port}" if host else ""
    msg = f"Cannot connect to the database{place}: {cause}. Check that the server is running, and the host, port,"
    return BackendError(f"{msg} database, user and password of its URL.", retryable=True)


def _check_url(url: str) -> None:
    """Raise InvalidInput for a URL that is not valid. Its text may be a password, and is not shown."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
        valid = url.count("@") < 2 and not any("@" in str(parts.get(name)) for name in ("host", "port", "dbname"))
    except ProgrammingError:
        valid = False
    if not valid:
        msg = "store.url is not a valid URL. Write postgresql://USER:PASSWORD@HOST/DATABASE, and special characters"
        raise InvalidInput(f"{msg} of the password as %40 (@), %2F (/) or %25 (%).", where="store.url") from None
