"""Commands `cuebook organization show|set`: memory settings of an organization."""

from typing import Annotated

import typer
from msgspec import UNSET

from cuebook.cli.group import Tenant, command, new_app
from cuebook.cli.operations import add_operations, of_tenant
from cuebook.cli.state import State
from cuebook.records.key import LongTermMemoryChange, OrganizationMemoryChange
from cuebook.records.memory import DEFAULT_TENANT

app = new_app(
    "Show and change the memory settings of an organization.",
    "cuebook organization show acme",
    "cuebook organization set acme --no-writes",
)
add_operations(app, "organization", tenant=True)


@command(
    app,
    "cuebook organization set acme --no-writes",
    "cuebook organization set acme --category facts --category projects",
    "cuebook organization set acme --all-categories --enabled",
    name="set",
)
def set_(
    state: State,
    organization: Annotated[str, typer.Argument(metavar="ID", help="Organization ID.", show_default=False)],
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
    change = LongTermMemoryChange(
        enabled=UNSET if enabled is None else enabled,
        default_retrieval_enabled=UNSET if retrieval is None else retrieval,
        allow_writes=UNSET if writes is None else writes,
        allowed_categories=None if all_categories else category or UNSET,
    )
    if change == LongTermMemoryChange():
        msg = "No setting given. Pass at least one, such as --no-writes"
        raise typer.BadParameter(msg, param_hint="SETTING")
    with state.open() as cue:
        memory = OrganizationMemoryChange(long_term_memory=change)
        after = of_tenant(cue, tenant).organizations.change(organization, memory, by="cli")
    state.report(after, str(after))
