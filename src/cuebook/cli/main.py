"""Run the `cuebook` command line: register all commands and map each error to one line and an exit code."""

from cuebook.cli import startup  # before all that is to load

# isort: split
import sys
from typing import Annotated, ClassVar

import typer

from cuebook.cli.group import DAYS, ConfigFile, Folder, LazyGroup, examples_of, new_app
from cuebook.cli.output import screen
from cuebook.errors import CuebookError

#: Exit codes. Wrong usage exits with 2, as Typer decides it.
DONE, REFUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 130, 141

#: The parser's own words, and what the user reads in their place.
_WORDS = {
    "Value error, ": "",
    "does not match the formats " + ", ".join(map(repr, DAYS)): "is no day; write it like 2027-01-31 (UTC)",
    "Input should be a valid integer, unable to parse string as an integer": "expected a whole number",
    "Input should be a valid number, unable to parse string as a number": "expected a number",
}

#: Each command with its module and its line in the help.
COMMANDS = {
    "init": "Make a project directory.",
    "demo": "Replay a long conversation and show what was remembered.",
    "eval": "Measure memory on your own conversations.",
    "chat": "Talk, with everything remembered.",
    "serve": "Start the HTTP server, for OpenAI clients and others.",
    "mcp": "Serve memory and prompts to an agent's tools, on a pipe.",
    "shadow": "Show what would have been sent of what passed in shadow mode.",
    "conversation": "List, show, import, export and delete conversations.",
    "turn": "Show what a prompt held and why, and replay it.",
    "memory": "Search, list and show what is remembered.",
    "persona": "List, show, check and make personas.",
    "prompt": "Write, compare, render, choose and roll back prompts.",
    "audit": "Show what models were told, and that nobody changed it.",
    "key": "Make, list and revoke the keys of the server.",
    "knowledge": "Keep what is known under a category and a key.",
    "experience": "Show handwritten experiences, and which of them a query gets.",
    "mind": "Show what state of mind a conversation is in, and reflect.",
    "optimizer": "Show and run what tunes how much of a talk stays whole.",
    "organization": "Show and set what an organization allows in its memory.",
    "settle": "Do the work that is due behind the replies.",
    "config": "Show every setting, its value and where it came from.",
    "doctor": "Look whether everything a book needs is there.",
    "version": "Show the version.",
}


class Root(LazyGroup):
    """Load the commands of `cuebook` on demand."""

    modules: ClassVar = {
        name: (f"cuebook.cli.{name}" if name == "prompt" else f"cuebook.cli.commands.{name}", line)
        for name, line in COMMANDS.items()
    }


Debug = Annotated[bool, typer.Option("--debug", help="Show where an unexpected error came from; stands first.")]
Version = Annotated[bool, typer.Option("--version", help="Show the version and exit.")]

app = new_app()

_HELP = ["-h", "--help"]

ABOUT = """The prompt book of an agent: conversation memory, managed prompts and token budgets.

Begin with `cuebook demo`, or with `cuebook init book`, then `cd book` and `cuebook chat`."""
EXAMPLES = ("cuebook demo", "cuebook serve --upstream http://127.0.0.1:8080/v1", "cuebook -C book turn show chat 1")


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
    debug: Debug = False,  # noqa: ARG001  # read before anything else
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
        sys.stdout = None  # whoever read has gone; closing would complain about it
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        startup.keep()  # the process ends


def run(arguments: list[str], commands: typer.Typer | None = None, name: str = "cuebook") -> int:
    """Run one command. Raises BrokenPipeError and KeyboardInterrupt."""
    try:
        group = typer.main.get_command(commands or app)
        with group.make_context(name, arguments, help_option_names=_HELP) as ctx:
            group.invoke(ctx)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
    except typer.TyperException as error:
        return _wrong_use(error)
    except (CuebookError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        screen.complain(_sentence(error))
        return REFUSED
    return DONE


def _sentence(error: CuebookError | OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"the input is no UTF-8 text ({error}); convert it first"
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}; check the path and its permissions"
    return str(error)


def _wrong_use(error: typer.TyperException) -> int:
    ctx = getattr(error, "ctx", None)
    hint = f"; see `{ctx.command_path} --help`" if ctx is not None else ""
    said = error.format_message()
    for theirs, ours in _WORDS.items():
        said = said.replace(theirs, ours)
    screen.complain(said.rstrip(".") + hint)
    return error.exit_code


startup.done()
