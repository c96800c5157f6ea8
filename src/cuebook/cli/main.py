"""Run the `cuebook` command line: register all commands and map each error to one line and an exit code."""

from cuebook.cli import startup  # imported first, before the slow modules

# isort: split
import sys
from typing import Annotated, ClassVar

import typer

from cuebook.cli.group import DAYS, ConfigFile, Folder, LazyGroup, examples_of, new_app, parser_of
from cuebook.cli.output import screen
from cuebook.errors import CuebookError

#: Exit codes. Typer exits with 2 on a usage error.
DONE, REFUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 130, 141

#: Messages of the parser, with the text that replaces them.
_WORDS = {
    "Value error, ": "",
    "does not match the formats "
    + ", ".join(map(repr, DAYS)): "is not a date. Use YYYY-MM-DD (UTC), such as 2027-01-31",
    "Input should be a valid integer, unable to parse string as an integer": "expected a whole number",
    "Input should be greater than or equal to": "must be at least",
    "Input should be less than or equal to": "must be at most",
    "Input should be a valid number, unable to parse string as a number": "expected a number",
}

#: Each command with its line in the help.
COMMANDS = {
    "init": "Create a project directory.",
    "quickstart": "Ask three questions and write cuebook.toml for the proxy.",
    "demo": "Replay a long conversation and report cost and recall.",
    "eval": "Measure memory on your own conversations.",
    "chat": "Chat from the terminal.",
    "serve": "Start the HTTP server and OpenAI-compatible proxy.",
    "worker": "Run background jobs beside the servers.",
    "mcp": "Serve memory and prompts over MCP on standard input/output.",
    "hermes": "Install the memory plugin of the Hermes agent.",
    "shadow": "Report tokens and cost of each summarization profile.",
    "import": "Import conversations and memories of other programs.",
    "conversation": "List, show, import, export and delete conversations.",
    "turn": "Inspect, rate and replay the turns of a conversation.",
    "memory": "Search, list, correct and forget memories.",
    "persona": "List, show, check and create personas.",
    "prompt": "Write, compare, test, select and roll back prompts.",
    "audit": "Show, verify and export the audit log.",
    "key": "Create, list and revoke API keys.",
    "knowledge": "Store, list and decay memories under a category and a key.",
    "experience": "List handwritten experiences and test their selection.",
    "mind": "Show, update and reset the mood state of a conversation.",
    "optimizer": "Show and run the automatic tuning of summarization.",
    "organization": "Show and change the memory settings of an organization.",
    "settle": "Run pending background jobs and wait until none is left.",
    "db": "Prepare and copy a PostgreSQL database, and run a local server.",
    "backup": "Back up the project to one file while it is in use.",
    "restore": "Restore a backup.",
    "config": "Show every setting with its value and source.",
    "doctor": "Check the configuration and its dependencies.",
    "version": "Show the version.",
}


#: Groups whose commands are all derived from operations.
DERIVED = ("knowledge", "optimizer")
#: Commands in one module.
PROJECT = ("init", "quickstart", "config", "doctor", "settle")
#: Commands whose module has another name.
OTHER_MODULES = {"restore": "backup", "import": "import_history"}


def module_of(name: str) -> str:
    """Return the module of a command, "" for a derived group."""
    if name in DERIVED:
        return ""
    module = "project" if name in PROJECT else OTHER_MODULES.get(name, name)
    return f"cuebook.cli.{name}" if name == "prompt" else f"cuebook.cli.commands.{module}"


class Root(LazyGroup):
    """Load the commands of `cuebook` on demand."""

    modules: ClassVar = {name: (module_of(name), line) for name, line in COMMANDS.items()}


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error. Must come first.")]
Version = Annotated[bool, typer.Option("--version", help="Show the version and exit.")]

app = new_app()

_HELP = ["-h", "--help"]

ABOUT = """Long-term memory, prompt management and an audit log for LLM agents.

To start, run `cuebook demo`, or `cuebook init myproject`, `cd myproject` and `cuebook chat`."""
EXAMPLES = (
    "cuebook demo",
    "cuebook serve --upstream http://127.0.0.1:8080/v1",
    "cuebook -C myproject turn show chat 1",
)


@app.callback(
    cls=Root,
    invoke_without_command=True,
    help=ABOUT,
    epilog=examples_of(EXAMPLES),
    context_settings={"help_option_names": _HELP},
)
def root(
    ctx: typer.Context,
    *,
    config_: ConfigFile = None,  # noqa: ARG001  # read by each command through its context
    folder_: Folder = None,  # noqa: ARG001
    debug: Debug = False,  # noqa: ARG001  # main() checks it first
    version: Version = False,
) -> None:
    """Show the help if no command is given."""
    if version and isinstance(ctx.command, Root):
        shown = ctx.command.get_command(ctx, "version")
        with shown.make_context("version", [], parent=ctx) as below:
            shown.invoke(below)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        screen.say(ctx.get_help())


def main(commands: typer.Typer | None = None, name: str = "cuebook") -> int:
    """Run the command line and return the exit code: 0 success, 1 error or failed check, 2 usage error.

    Without `commands`, run all of `cuebook`.
    """
    startup.keep()
    screen.prepare(debug="--debug" in sys.argv[1:2])
    try:
        return run(sys.argv[1:], commands, name)
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone; closing stdout would print an error
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        startup.keep()  # the process ends


def run(arguments: list[str], commands: typer.Typer | None = None, name: str = "cuebook") -> int:
    """Run one command. Raises BrokenPipeError and KeyboardInterrupt."""
    try:
        group = parser_of(commands or app)
        with group.make_context(name, arguments, help_option_names=_HELP) as ctx:
            group.invoke(ctx)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
    except typer.TyperException as error:
        return _wrong_use(error, name)
    except (CuebookError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        screen.complain(_sentence(error))
        return REFUSED
    return DONE


def _sentence(error: CuebookError | OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"The input is not UTF-8 text: {error}. Convert it first."
    if isinstance(error, OSError):
        what = f": {str(error.filename)!r}" if error.filename else ""
        return f"{error.strerror or error}{what}. Check the path and its permissions."
    return str(error)


def _wrong_use(error: typer.TyperException, name: str) -> int:
    """Print a usage error with a reference to the help, and return its exit code."""
    ctx = getattr(error, "ctx", None)
    hint = f"See `{ctx.command_path if ctx is not None else name} --help`."
    text = error.format_message()
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    end = "" if text.endswith((".", "?")) else "."
    screen.complain(f"{text}{end} {hint}")
    return error.exit_code


startup.done()
