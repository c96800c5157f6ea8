"""Commands `cuebook organization show|set`: memory settings of an organization."""

from typing import Annotated, Any

import typer

from cuebook.app.json_shapes import Wire
from cuebook.app.organizations import shape
from cuebook.cli.group import Tenant, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.memory import DEFAULT_TENANT

app = new_app(
    "Show and change the memory settings of an organization.",
    "cuebook organization show acme",
    "cuebook organization set acme --no-writes",
)

Organization = Annotated[str, typer.Argument(metavar="ID", help="Organization ID.", show_default=False)]


@command(app, "cuebook organization show acme", "cuebook organization show acme --json", name="show")
def show(state: State, organization: Organization, *, tenant: Tenant = DEFAULT_TENANT) -> None:
    """Show the memory settings of an organization."""
    with state.open() as cue:
        data = shape(cue.of(tenant).organizations.settings(organization))
    _tell(state, data)


@command(
    app,
    "cuebook organization set acme --no-writes",
    "cuebook organization set acme --category facts --category projects",
    "cuebook organization set acme --all-categories --enabled",
    name="set",
)
def set_(
    state: State,
    organization: Organization,
    *,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Enable or disable the organization's memory.")
    ] = None,
    retrieval: Annotated[
        bool | None,
        typer.Option("--retrieval/--no-retrieval", help="Use or ignore memories in requests that do not specify it."),
    ] = None,
    writes: Annotated[bool | None, typer.Option("--writes/--no-writes", help="Allow or forbid new memories.")] = None,
    category: Annotated[
        list[str] | None, typer.Option("--category", metavar="C", help="Allow only this category; repeatable.")
    ] = None,
    all_categories: Annotated[bool, typer.Option("--all-categories", help="Allow all categories.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Change the named settings and keep the others."""
    if category and all_categories:
        msg = "--category and --all-categories cannot be combined. Use one"
        raise typer.BadParameter(msg, param_hint="--category")
    values = {"enabled": enabled, "defaultRetrievalEnabled": retrieval, "allowWrites": writes}
    wanted: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if category or all_categories:
        wanted["allowedCategories"] = category or None
    if not wanted:
        msg = "No setting given. Pass at least one, such as --no-writes"
        raise typer.BadParameter(msg, param_hint="SETTING")
    with state.open() as cue:
        change = {"memory": {"longTermMemory": wanted}}
        after = shape(cue.of(tenant).organizations.change(organization, change, by="cli"))
    _tell(state, after)


def _tell(state: State, settings: Wire) -> None:
    if state.json:
        screen.say_json(settings)
        return
    memory = settings["memory"]["longTermMemory"]
    allowed = memory["allowedCategories"]
    screen.table(
        ("memory.longTermMemory", "value"),
        [
            ("enabled", str(memory["enabled"]).lower()),
            ("defaultRetrievalEnabled", str(memory["defaultRetrievalEnabled"]).lower()),
            ("allowWrites", str(memory["allowWrites"]).lower()),
            ("allowedCategories", "all" if allowed is None else ", ".join(allowed) or "none"),
        ],
    )
