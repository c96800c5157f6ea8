"""Declare commands: shared options, examples in the help, and groups that load a command only when it runs."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

User = Annotated[str | None, typer.Option("--user", metavar="USER", help="Use only data that this user can access.")]
Conversation = Annotated[str, typer.Argument(metavar="CONVERSATION", help="Conversation ID.", show_default=False)]
Tenant = Annotated[
    str, typer.Option("--tenant", metavar="T", help="Use the data of this tenant. `cuebook key new` creates it.")
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project", metavar="NAME", help='Use the prompts of this project; "" for none. Default: prompts.project.'
    ),
]
Organization = Annotated[
    str | None,
    typer.Option("--organization", metavar="ORG", help="Use only data of this organization.", show_default=False),
]
TimeZone = Annotated[
    str | None,
    typer.Option(
        "--time-zone", metavar="ZONE", help='Resolve "yesterday" and the like in this time zone, such as Europe/Oslo.'
    ),
]
#: Formats of a date or a time on the command line.
DAYS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to this file. Default: standard output.")
]
PageLimit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, max=1000, help="Show at most N items per page.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON in the format of the HTTP API.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", envvar="CUEBOOK_CONFIG", help="Use this cuebook.toml.")
]
Folder = Annotated[Path | None, typer.Option("-C", metavar="DIR", help="Use the project in this directory.")]
#: Options of every command.
_SHARED = {"json_": (Json, False), "config_": (ConfigFile, None), "folder_": (Folder, None)}


#: The end of a sentence.
_SENTENCE = re.compile(r"(?<=[.:])\s")


#: A command, which may be asynchronous: a State with the shared options first, then its own arguments by name.
CommandFunction = Callable[..., Any]


def seconds(moment: datetime | None) -> float | None:
    """Return a UTC time from the command line as Unix seconds."""
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()


def read_input(file: str) -> bytes:
    """Return the content of a file, or of standard input for `-`."""
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def new_app(help_: str | None = None, *examples: str) -> typer.Typer:
    """Create a Typer application with plain help and no tracebacks; with `help_` it is a command group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    if help_ is not None:
        app.callback(help=help_, epilog=examples_of(examples))(_no_callback)
    return app


def examples_of(examples: Sequence[str]) -> str:
    """Format examples for the end of a help text."""
    return "\b\nExamples:\n" + "\n".join(f"  {each}" for each in examples)


def _no_callback() -> None:
    """Do nothing before a command of a group."""


def command(app: typer.Typer, *examples: str, name: str | None = None) -> Callable[[Any], Any]:
    """Register a function as a command. Its first argument is a State, which has the shared options."""

    def register(function: CommandFunction) -> CommandFunction:
        state, *own = inspect.signature(function, eval_str=True).parameters.values()

        def run(ctx: typer.Context, **values: Any) -> None:
            shared = {key: values.pop(key) for key in _SHARED}
            root = ctx.find_root().params
            shared_options = state.annotation(  # State, which this module does not import: the help starts faster
                config=shared["config_"] or root.get("config_"),
                folder=shared["folder_"] or root.get("folder_"),
                json=shared["json_"],
            )
            done = function(shared_options, **values)
            if inspect.iscoroutine(done):
                from asyncio import run as run_to_the_end

                run_to_the_end(done)

        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        run.__signature__ = inspect.Signature([context, *parameters, *_shared()])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        run.__doc__ = inspect.getdoc(function)
        command_name = name or function.__name__.rstrip("_").replace("_", "-")
        app.command(command_name, cls=PlainCommand, epilog=examples_of(examples))(run)
        return function

    return register


def _shared() -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(key, kind, default=default, annotation=annotation)
        for key, (annotation, default) in _SHARED.items()
    ]


@cache
def parser_of(app: typer.Typer) -> Any:
    """Return the parser of an application, built once per process."""
    return typer.main.get_command(app)


class PlainCommand(TyperCommand):
    """A command whose help omits the Python types of arguments, such as `<list[str]>`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for each in self.params:
            if isinstance(each, TyperArgument):
                each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # noqa: ARG005

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002  # the list of commands wraps
        """Return the first sentence of the help."""
        return _SENTENCE.split(" ".join((self.help or "").split()), 1)[0].rstrip(".:") + "."


class LazyGroup(TyperGroup):
    """List commands by name and one line of help; import the module of a command only when it runs.

    A group without a module has only commands derived from operations.
    """

    modules: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the base class names it
        """Return the command names in display order."""
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Import and return a command; None if the name is unknown."""
        return self._load(cmd_name) if cmd_name in self.modules else None

    @cache  # noqa: B019  # one per program, which lives as long as the process
    def _load(self, cmd_name: str) -> Any:
        name, line = self.modules[cmd_name]
        if name:
            app = importlib.import_module(name).app
        else:
            app = importlib.import_module("cuebook.cli.operations").group_of(cmd_name, line)
        group: Any = typer.main.get_command(app)
        loaded = getattr(group, "commands", {}).get(cmd_name, group)  # a module may have several commands
        loaded.name = cmd_name
        return loaded

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.modules.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; suggest a name if it is misspelled."""
        self.commands = dict.fromkeys(self.modules, self)
        return super().resolve_command(ctx, args)
