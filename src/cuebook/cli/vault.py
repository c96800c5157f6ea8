"""`cuebook vault`: key, show, list, reveal, rotate, clear."""

from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.blocking import BlockingCuebook
from cuebook.app.vault import census_shape, kept_shape, make_key
from cuebook.cli import screen
from cuebook.cli.group import Conversation, Tenant, command, new_app
from cuebook.cli.state import State
from cuebook.records.memory import DEFAULT_TENANT
from cuebook.records.vault import Census

app = new_app(
    "Keep the secrets of posts sealed, for the model in their own conversation.",
    "cuebook vault key ~/.config/cuebook/vault.key",
    "cuebook vault show",
    "cuebook vault rotate --to ~/.config/cuebook/vault-2.key",
)

#: Who it was, in the audit.
_BY = "cli"


@command(app, "cuebook vault key ~/.config/cuebook/vault.key", "cuebook vault key", name="key")
def key(
    state: State,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A new file outside the store's folder.", show_default=False)
    ] = None,
) -> None:
    """Make a key: in a file, or printed for `CUEBOOK_VAULT_KEY`. Without it nothing in the vault can be opened."""
    made = make_key(state.settings(), file)
    if file is None:
        if state.json:
            screen.say_json({"key": made})
            return
        screen.say(made)
        screen.complain("kept nowhere: store it now; the book reads it from CUEBOOK_VAULT_KEY")
    elif state.json:
        screen.say_json({"file": made})
    else:
        screen.say(f"made {made}; keep a copy elsewhere, and set under [secrets]:")
        screen.say(f'vault = true\nvault_key_file = "{made}"')


@command(app, "cuebook vault show", "cuebook vault show --json", name="show")
def show(state: State, *, tenant: Tenant = DEFAULT_TENANT) -> None:
    """Count what the vault keeps, by family of secrets; no value is shown."""
    with state.open() as book:
        census = book.of(tenant).vault.census()
    if state.json:
        screen.say_json(census_shape(census))
    else:
        _say(census)


def _say(census: Census) -> None:
    state = "on" if census.on else "off: tokens stay tokens, and nothing more is kept"
    screen.say(f"the vault is {state}" + (f"; sealed with key {census.key}" if census.key else ""))
    if not census.secrets:
        screen.say("it keeps nothing")
        return
    screen.say(f"secrets: {census.secrets:,}; posts: {census.posts:,}; conversations: {census.conversations:,}")
    rows = [(family, f"{count:,}") for family, count in census.families.items()]
    screen.table(("family", "secrets"), rows, right=("secrets",))
    if census.unreadable:
        screen.complain(f"{census.unreadable:,} of its rows do not open: altered, or moved from where they were sealed")


@command(app, "cuebook vault list", "cuebook vault list --limit 200 --json", name="list")
def list_(
    state: State,
    *,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many.")] = 50,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """List conversations with secrets, and how many; no value is shown."""
    with state.open() as book:
        found = book.of(tenant).vault.list(limit=limit)
    if state.json:
        screen.say_json({"items": [kept_shape(each) for each in found]})
    elif not found:
        screen.say("the vault keeps nothing")
    else:
        rows = [(each.conversation, each.user or "", f"{each.secrets:,}", f"{each.posts:,}") for each in found]
        screen.table(("conversation", "user", "secrets", "posts"), rows, right=("secrets", "posts"))


@command(app, "cuebook vault reveal c1", "cuebook vault reveal c1 --json", name="reveal")
def reveal(state: State, conversation: Conversation, *, tenant: Tenant = DEFAULT_TENANT) -> None:
    """Print the secrets of a conversation. The audit notes it."""
    with state.open() as book:
        found = book.of(tenant).vault.reveal(conversation, by=_BY)
    if state.json:
        items = [{"token": each.token, "post": each.post, "values": list(each.values)} for each in found]
        screen.say_json({"items": items})
    elif not found:
        screen.say("the vault keeps nothing of it")
    else:
        rows = [(each.post, each.token, value) for each in found for value in each.values]
        screen.table(("post", "token", "value"), rows, fold=("value",))


@command(app, "cuebook vault rotate --to ~/.config/cuebook/vault-2.key", name="rotate")
def rotate(
    state: State,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The new key's file, from `cuebook vault key`.")],
) -> None:
    """Seal everything anew with another key: all of it, or nothing. Servers that run must be started again."""
    with state.open() as book:
        done = book.vault.rotate(Path.cwd() / to.expanduser())
    if state.json:
        screen.say_json({"sealed": done.sealed, "unreadable": done.unreadable})
        return
    screen.say(f"sealed anew with the key in {to}: {done.sealed:,}; set secrets.vault_key_file to it")
    if done.unreadable:
        screen.complain(f"{done.unreadable:,} rows did not open and stay as they are")


@command(app, "cuebook vault clear c1", "cuebook vault clear --yes", name="clear")
def clear(
    state: State,
    conversation: Annotated[
        str | None, typer.Argument(metavar="CONVERSATION", help="Only this one's.", show_default=False)
    ] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Give up what the vault keeps, for good; the tokens stay. Needs no key, so a lost one is no dead end."""
    what = f"conversation {conversation!r}" if conversation else "every conversation"
    if not yes and not (
        screen.on_terminal() and typer.confirm(screen.harmless(f"Give up the secrets of {what} for good?"))
    ):
        screen.complain("nothing was given up; --yes does it without asking")
        raise typer.Exit(1)
    config = state.project({"secrets.vault": False})
    with BlockingCuebook.open(config, worker=False) as book:
        gone = book.of(tenant).vault.clear(conversation, by=_BY)
    if state.json:
        screen.say_json({"cleared": gone})
    else:
        screen.say(f"given up of {what}: {gone:,}")
