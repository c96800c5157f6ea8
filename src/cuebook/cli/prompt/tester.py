"""Command `cuebook prompt test`, alias `kai-prompt-tester`: render a prompt with parameters."""

from functools import partial
from typing import Annotated, Any

import typer

from cuebook.app.prompts.tester import try_out as render_for_author
from cuebook.cli.group import Project, command
from cuebook.cli.operations import pairs, whoever
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import Branch, Number, app
from cuebook.cli.state import State
from cuebook.records.answer import Wire

Named = Annotated[
    str | None, typer.Option("--prompt", metavar="ID", help="Prompt ID; append @BRANCH, :N or @BRANCH:N for a version.")
]
Given = Annotated[list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Parameter value; repeatable.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the template changes since the previous version.")]
Log = Annotated[bool, typer.Option("--log", help="Record the rendering in the audit log.")]
TextOnly = Annotated[bool, typer.Option("--text", help="Print only the rendered text.")]
Positional = Annotated[str | None, typer.Argument(metavar="PROMPT", help="Same as --prompt.", show_default=False)]


@command(
    app,
    "cuebook prompt test --prompt persona/kind --param user_name=Alex",
    "cuebook prompt test persona/kind:2 --param user_name=Alex --diff",
    name="test",
)
async def try_out(
    state: State,
    named: Positional = None,
    *,
    prompt: Named = None,
    param: Given = None,
    branch: Branch = None,
    version: Number = None,
    diff: Diff = False,
    log: Log = False,
    text: TextOnly = False,
    project: Project = None,
) -> None:
    """Render a prompt and show its template and metadata.

    Exits with 1 and names the parameter if one is missing.
    """
    slug = prompt or named
    if slug is None or (prompt and named):
        msg = "Pass exactly one prompt ID"
        raise typer.BadParameter(msg, param_hint="--prompt")
    params = pairs(param, "--param")
    who = whoever(None) if log else None
    options: dict[str, Any] = {"branch": branch, "version": version, "diff": diff, "log": who, "project": project}
    async with state.open_async() as cue:
        data = await render_for_author(cue.services, slug, params, **options)
    state.report(data, data["text"], render=None if text else partial(_draw, data))


def _draw(shown: Wire) -> None:
    screen.say(shown["text"])
    where = f"{shown['slug']}@{shown['branch']}:{shown['version']}"
    screen.heading(f"\n{where} · {shown['semver']} · {shown['tokens']:,} tokens · {shown['timestamp']}".strip())
    screen.heading("template")
    screen.say(shown["template"])
    screen.heading("metadata")
    screen.say_json(
        {key: value for key, value in shown["metadata"].items() if key not in ("slug", "branch", "version")}
    )
    if "auditSeq" in shown:
        screen.say(f"recorded as audit record {shown['auditSeq']}")
    if "diff" not in shown:
        return
    if shown["previous"] is None:
        screen.say("no previous version")
    elif not shown["diff"]:
        screen.say(f"template unchanged since version {shown['previous']}")
    else:
        before = f"{shown['slug']}@{shown['branch']}:{shown['previous']}"
        screen.diff((f"--- {before}", f"+++ {where}", *shown["diff"]))
