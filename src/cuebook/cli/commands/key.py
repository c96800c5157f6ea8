"""Commands `cuebook key new|list|rotate|revoke`: manage the API keys of the server."""

from cuebook.cli.group import new_app
from cuebook.cli.operations import add_operations
from cuebook.cli.output import screen
from cuebook.records.key import NewKey

app = new_app(
    "Create, list, rotate and revoke API keys.",
    "cuebook key new --role editor --user ann",
    "cuebook key list",
    "cuebook key rotate 3f2a90c41b7d5e68a0f1",
    "cuebook key revoke 3f2a90c41b7d5e68a0f1",
)


def print_token(key: NewKey) -> None:
    """Print a new key's token, and what to do with it on standard error."""
    screen.say(key.token)
    screen.complain("Save it now: it will not be shown again. Clients send it as `Authorization: Bearer cue_…`.")
    screen.complain("Once a key exists, `cuebook serve` requires one for every request.")


def print_successor(key: NewKey) -> None:
    """Print the token of a key that replaces another one."""
    screen.say(key.token)
    screen.complain("Save it now: it will not be shown again. `cuebook key list` shows when the old key expires.")


add_operations(app, "key", {"new": print_token, "rotate": print_successor}, tenant=True)
