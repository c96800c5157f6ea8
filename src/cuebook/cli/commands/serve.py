"""Command `cuebook serve`: start the HTTP server, API and OpenAI-compatible proxy."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from cuebook.app.cuebook import Cuebook
from cuebook.app.reports.prices import money
from cuebook.app.reports.profiles import ProfileFigures
from cuebook.app.setup.project_files import data_place, user_folder
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.config import has_path, without_secret
from cuebook.errors import CuebookError
from cuebook.records.expression import counted
from cuebook.server.app import serve as run_server

app = new_app()
#: Shown if a persona precedes the system prompt of a client, which its author may not expect.
_FIRST = (
    "  Default persona  {0!r}, before the client's system prompt; set speaks = 'asked' under [persona] to disable it"
)


@command(
    app,
    "cuebook serve --upstream http://127.0.0.1:8080/v1",
    "cuebook serve --upstream https://api.openai.com/v1 --shadow",
    "cuebook serve --upstream https://api.openai.com/v1 --profile budget",
    "cuebook serve --upstream https://api.openai.com/v1 --work-model gpt-4o-mini",
    "cuebook serve --port 9000 -C myproject",
    "cuebook serve --host 0.0.0.0",
    name="serve",
)
def serve(
    state: State,
    *,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="H", help="Address to listen on; API keys are required beyond this machine."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=0, max=65535, help="Port; 0 selects a free one.  [default: 8760]"),
    ] = None,
    upstream: Annotated[
        str | None, typer.Option("--upstream", metavar="URL", help="OpenAI-compatible server that /v1 forwards to.")
    ] = None,
    forward_auth: Annotated[
        bool | None,
        typer.Option(
            "--forward-auth/--no-forward-auth",
            help="Forward the client's API key.  [default: unless upstream.api_key_env is set]",
        ),
    ] = None,
    shadow: Annotated[
        bool | None,
        typer.Option(
            "--shadow/--no-shadow",
            help="Forward /v1 unchanged and record what Cuebook would have sent: `cuebook shadow report`.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Summarization profile of all conversations: off, fit, standard, budget, or one of the presets file.",
        ),
    ] = None,
    work_model: Annotated[
        str | None,
        typer.Option(
            "--work-model",
            metavar="NAME",
            help="Use this model for all background jobs, at the server of [model] or the upstream.",
        ),
    ] = None,
) -> None:
    """Start the HTTP server and OpenAI-compatible proxy. To add memory to a client, change its base_url.

    Headers under /v1: X-Conversation-Id, X-User-Id, X-Organization-Id and X-Memory-Control (JSON). Send the whole
    history as usual, or only new messages with X-History: server. The response header X-Cuebook-Branch is side for a
    request that does not continue its conversation or runs beside another one, else head.

    Without a project in the current directory, the data is stored in the user's data directory.
    """
    values = {"upstream.url": upstream, "upstream.forward_auth": forward_auth, "server.host": host, "server.port": port}
    values |= {"upstream.shadow": shadow, "memory.profile": profile, "work.model_name": work_model}
    cue = Cuebook.open(state.server_settings({place: value for place, value in values.items() if value is not None}))
    beside = None if state.json else lambda: compare_profiles(cue)
    run_server(cue, started=lambda address: print_banner(cue, address, as_json=state.json), beside=beside)


async def compare_profiles(cue: Cuebook) -> None:
    """Print the share of input tokens and the cost of each profile on the stored traffic, as in the shadow report."""
    try:
        profiles = [each for each in (await cue.shadow.report()).replay.profiles if each.calls]
    except CuebookError as error:
        screen.complain(str(error))
        return
    if profiles:
        shares = ", ".join(f"{each.profile} {_share(each)}" for each in profiles)
        calls = "call" if profiles[0].calls == 1 else counted(profiles[0].calls, "call")
        tokens = counted(profiles[0].client_tokens, "input token")
        screen.say(
            f"By profile, your newest {calls} would use this share of the client's {tokens}, with recalled memories: "
            f"{shares}."
        )


def _share(each: ProfileFigures) -> str:
    share = f"{each.tokens / max(1, each.client_tokens):.0%}"
    return f"{share} ({money(each.costs)})" if each.costs else share


def print_banner(cue: Cuebook, address: str, *, as_json: bool) -> None:
    """Print the server's address, and what it does with requests."""
    settings = cue.config.settings
    base_url, upstream = f"{address.rstrip('/')}/v1", without_secret(settings.upstream.url)
    if as_json:
        fields = {"url": address, "baseUrl": base_url, "upstream": upstream or None, "profile": cue.shadow.profile}
        fields |= {"data": data_place(cue.config)}
        screen.say_json(fields | ({"shadow": True} if settings.upstream.shadow else {}))
    else:
        name = f"model {settings.model.name}" if settings.model.provider != "none" else ""
        screen.say(f"Cuebook is running at {address}")
        screen.say(f"  OpenAI clients   base_url={base_url!r}, or OPENAI_BASE_URL={base_url}")
        screen.say(f"  One conversation {address.rstrip('/')}/c/NAME/v1, one user {address.rstrip('/')}/u/USER/v1")
        screen.say(
            f"  Upstream         {upstream or name or 'none: answers quote memory; set a server with --upstream URL'}"
        )
        screen.say(f"  Inspector        {address}")
        screen.say(f"  Data             {data_place(cue.config)}")
        if Path(cue.config.folder) == user_folder():
            where = f"other commands need -C {quote(cue.config.folder)}"
            screen.say(f"  Project          none here, so this user's data directory; {where}")
        chosen = f"{cue.shadow.profile}{', for all conversations' if settings.memory.profile else ''}"
        sample = "compare profiles with `cuebook shadow report`, or on a sample with `cuebook demo`"
        screen.say(f"  Profile          {chosen}; {sample}")
        if settings.upstream.shadow:
            screen.say("  Shadow mode      traffic is forwarded unchanged; run `cuebook shadow report` for the results")
        if settings.persona.default and settings.persona.speaks == "always" and upstream:
            screen.say(_FIRST.format(settings.persona.default))
        screen.say("Press Ctrl-C to stop.")
    _warn("upstream.url", settings.upstream.url)
    if settings.model.provider != "none":
        _warn("model.base_url", settings.model.base_url)


def _warn(place: str, url: str) -> None:
    if url and not has_path(url):
        shown_url = without_secret(url)
        screen.complain(
            f"{place}: {shown_url!r} has no path. Most servers need one, such as {shown_url.rstrip('/')}/v1"
        )
