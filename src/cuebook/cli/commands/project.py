"""Commands `cuebook init|quickstart|config|doctor|settle`: create and check a project, and run its pending jobs."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.doctor import Check, examine
from cuebook.app.setup.project_files import setting_rows, shown_setting
from cuebook.app.setup.project_templates import UPSTREAMS, init_project, write_settings
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.errors import InvalidInput
from cuebook.records.expression import counted

app = new_app()


@command(app, "cuebook init myproject", "cuebook init . --force", name="init")
def init(
    state: State,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Project directory; created if missing.")] = Path(),
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Create a project directory with working settings, a persona and presets."""
    files = init_project(folder, force=force)
    step = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    lines = [*(f"wrote {file}" for file in files), f"\nNext: {step}cuebook chat"]
    state.report({"folder": str(folder), "files": [str(file) for file in files]}, *lines)


@command(
    app,
    "cuebook quickstart",
    "cuebook quickstart --upstream ollama --no-remember --work-model llama3.2",
    "cuebook quickstart --upstream https://api.example.com/v1 --yes",
    name="quickstart",
)
def quickstart(
    state: State,
    *,
    upstream: Annotated[
        str | None,
        typer.Option(
            "--upstream",
            metavar="NAME|URL",
            help=f"Server to put Cuebook in front of: {', '.join(UPSTREAMS)}, or a URL.",
        ),
    ] = None,
    remember: Annotated[
        bool | None,
        typer.Option("--remember/--no-remember", help="Remember users across their conversations.", show_default=False),
    ] = None,
    work_model: Annotated[
        str | None,
        typer.Option("--work-model", metavar="NAME", help='Model of the upstream for background jobs; "" for none.'),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; use the defaults: openai, remember, none.")
    ] = False,
) -> None:
    """Ask three questions and write cuebook.toml for the proxy. Options answer them beforehand."""
    if not yes and None in (upstream, remember, work_model) and not screen.on_terminal():
        msg = "Cannot ask without a terminal. Use --yes, or answer with --upstream, --remember and --work-model."
        raise InvalidInput(msg)
    if upstream is None:
        question = f"In front of what? {', '.join(UPSTREAMS)}, or a URL"
        upstream = "openai" if yes else typer.prompt(question, default="openai")
    if remember is None:
        remember = yes or typer.confirm("Remember users across their conversations?", default=True)
    if work_model is None:
        question = "Which model of that server for background work, such as summaries? Empty for none"
        work_model = "" if yes else typer.prompt(question, default="", show_default=False)
    file = write_settings(state.folder or Path(), upstream=upstream, remember=remember, work_model=work_model)
    root = "http://127.0.0.1:8760"
    change = f"ANTHROPIC_BASE_URL={root}" if "anthropic" in upstream else f"OPENAI_BASE_URL={root}/v1"
    lines = [
        f"wrote {file}",
        f"Start the server:  cuebook{f' -C {state.folder}' if state.folder else ''} serve",
        f"Change one line:   {change}",
    ]
    if remember:
        lines.append(
            f"Name the user:     {root}/u/USER{'' if 'anthropic' in upstream else '/v1'}, or the request's field `user`"
        )
    state.report({"file": str(file), "change": change}, *lines)


@command(app, "cuebook config", "CUEBOOK_MODEL_NAME=gpt-5-mini cuebook config --json", name="config")
def config(state: State) -> None:
    """Show every setting with its value and source: default, file or environment."""
    found = state.settings()
    rows = setting_rows(found)
    entries = [(each["name"], shown_setting(each["value"]), each["source"]) for each in rows]
    state.report(
        {"folder": found.folder, "items": rows},
        render=partial(screen.table, ("setting", "value", "source"), entries),
    )


@command(app, "cuebook doctor", "cuebook doctor -C myproject --json", name="doctor")
async def doctor(state: State) -> None:
    """Check Python, SQLite, the project directory, database, personas and models. Exits with 1 if a check fails."""
    checks: list[Check] = []
    async for check in examine(state.where):
        checks.append(check)
        if not state.json:
            screen.verdict(check.state, f"{check.name:<11}", check.found, check.advice)
    failed = any(check.state == "fail" for check in checks)
    state.report({"ok": not failed, "checks": checks}, render=lambda: None, failed=failed)


#: Maximum number of conversations listed.
SHOWN = 20
#: Messages for kinds of jobs without a result of their own to show.
SAID = {"reflection": "completed the reflections of {}", "observation": "recorded prompt feedback from {}"}


@command(app, "cuebook settle", "cuebook settle --conversation c1 --timeout 300", name="settle")
def settle(
    state: State,
    *,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Run only jobs of this conversation.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Maximum time to wait.")] = 60.0,
) -> None:
    """Run pending background jobs and wait until none is left: summaries, memory items, reflections, prompt feedback
    and the audit mirror. Exits with 1 if jobs are left.
    """
    with state.open() as cue, screen.progress("running background jobs"):
        before = cue.conversations.marks(conversation)
        waited = cue.settle(conversation=conversation, timeout=0)
        due = cue.settle(conversation=conversation, timeout=timeout)
        done = [
            {"conversationId": name, "summaryUptoSeq": mark}
            for name, mark in cue.conversations.marks(conversation).items()
            if mark > before.get(name, 0)
        ]
    worked = {kind: waited[kind] - due.get(kind, 0) for kind in SAID if waited.get(kind, 0) > due.get(kind, 0)}
    lines = [f"{each['conversationId']}: summarized up to post {each['summaryUptoSeq']:,}" for each in done[:SHOWN]]
    if len(done) > SHOWN:
        lines.append(f"and {counted(len(done) - SHOWN, 'other conversation')}")
    lines += [SAID[kind].format(counted(count, "turn")) for kind, count in worked.items()]
    if due:
        lines.append("still pending: " + ", ".join(counted(count, f"{kind} job") for kind, count in due.items()))
    answer = ({"done": done} if done else {}) | worked | ({"due": due} if due else {})
    state.report(answer, *(lines or ["no pending jobs"]), failed=bool(due))
