"""Commands `cuebook key new|list|revoke`: manage the API keys of the server."""

from typing import Annotated

import typer

from cuebook.app.keys import shape
from cuebook.cli.group import Tenant, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.key import ROLES
from cuebook.records.memory import DEFAULT_TENANT

app = new_app(
    "Create, list and revoke API keys.",
    "cuebook key new --role editor --user ann",
    "cuebook key list",
    "cuebook key revoke 3f2a90c41b7d5e68a0f1",
)

#: Actor name in the audit log.
_BY = "cli"


@command(
    app,
    "cuebook key new --role editor --user ann",
    "cuebook key new --role agent --name support-bot --expires 90",
    "cuebook key new --role admin --user mara --organization acme --json",
    name="new",
)
def new(
    state: State,
    *,
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help=f"One of {', '.join(ROLES)}.")],
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="USER", help="Owner of the key; required for viewer and editor."),
    ] = None,
    organization: Annotated[
        list[str] | None,
        typer.Option("--organization", metavar="ORG", help="Allow access to this organization; repeatable."),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Purpose of the key.")] = "",
    expires: Annotated[
        float | None,
        typer.Option("--expires", metavar="DAYS", help="Number of days until the key expires. Default: never."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Create an API key and show it once. Once a key exists, the server requires one."""
    if role not in ROLES:
        msg = f"Unknown role {role!r}. Available: {', '.join(ROLES)}"
        raise typer.BadParameter(msg, param_hint="--role")
    with state.open() as cue:
        keys = cue.of(tenant).keys
        first = not keys.configured()
        new_key = keys.new(role, user=user, organizations=organization or [], name=name, expires_days=expires, by=_BY)
    if state.json:
        screen.say_json(shape(new_key.key, now=new_key.key.created_at) | {"token": new_key.token})
        return
    screen.say(new_key.token)
    screen.complain("Save it now: it will not be shown again. Clients send it as `Authorization: Bearer cue_…`.")
    if first:
        screen.complain("This is the first key: `cuebook serve` now requires a key for every request.")


@command(app, "cuebook key list", "cuebook key list --json", name="list")
def list_(state: State, *, tenant: Tenant = DEFAULT_TENANT) -> None:
    """List the API keys, oldest first."""
    with state.open() as cue:
        entries = cue.of(tenant).keys.describe()
    if state.json:
        screen.say_json({"items": entries})
    elif not entries:
        screen.say(
            "no keys: the server accepts local connections only. Run `cuebook key new --role ROLE` to create one."
        )
    else:
        rows = [
            (
                each["id"],
                each["role"],
                each["userId"] or "",
                ", ".join(each["organizations"]),
                each["name"],
                each["state"],
                (each["expiresAt"] or "")[:10],
            )
            for each in entries
        ]
        names = ("key", "role", "user", "organizations", "name", "state", "expires")
        screen.table(names, rows, fold=("organizations", "name"))


@command(app, "cuebook key revoke 3f2a90c41b7d5e68a0f1", name="revoke")
def revoke(
    state: State,
    key: Annotated[str, typer.Argument(metavar="ID", help="Key ID from `cuebook key list`.", show_default=False)],
    *,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Revoke a key permanently, effective from the next request."""
    with state.open() as cue:
        closed = cue.of(tenant).keys.revoke(key, by=_BY)
    if state.json:
        screen.say_json(shape(closed, now=closed.revoked_at or closed.created_at))
    else:
        screen.say(f"revoked {closed.id}")
