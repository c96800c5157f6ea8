"""Which SQL statements there are: each has a name and a sentence in one of FILES, and none is written elsewhere."""

import re
from importlib import resources

from msgspec import Struct

FILES = (
    "queries.sql",
    "prompts.sql",
    "keys.sql",
    "memories.sql",
    "tuning.sql",
    "vectors.sql",
    "forget.sql",
    "corrections.sql",
    "reflections.sql",
    "outcomes.sql",
    "shadow.sql",
    "spent.sql",
    "talks.sql",
)

_ENTRY = re.compile(r"^-- name: (?P<name>\w+)\n-- (?P<sentence>.+)\n(?P<sql>(?:(?!^-- name:).*\n)+)", re.MULTILINE)


class Statement(Struct, frozen=True):
    """One SQL statement and the sentence that says what it does."""

    name: str
    sentence: str
    sql: str


def read_statements(text: str) -> dict[str, Statement]:
    """Read named statements; a name twice is an error."""
    found: dict[str, Statement] = {}
    for match in _ENTRY.finditer(text):
        name = match["name"]
        if name in found:
            msg = f"statement {name!r} is defined twice"
            raise ValueError(msg)
        found[name] = Statement(name, match["sentence"], match["sql"].strip().rstrip(";"))
    return found


def load() -> dict[str, str]:
    """Give each shipped statement's SQL by its name."""
    folder = resources.files("cuebook.backends.sqlite")
    text = "\n".join(folder.joinpath(name).read_text("utf-8") for name in FILES)
    return {name: statement.sql for name, statement in read_statements(text).items()}
