"""Derive a command, with its options, help and output, from each declared operation."""

import getpass
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import typer

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.cuebook import Cuebook
from cuebook.cli.group import DAYS, Tenant, command, new_app, seconds
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.errors import InvalidInput, NotFound
from cuebook.operations import Operation, Parameter, operations_of, parameters_of, summary_of
from cuebook.records.answer import Page, Time, in_words
from cuebook.records.memory import DEFAULT_TENANT

#: Prints an answer for people. Its further arguments are those of the operation, or become options of the command.
Render = Callable[..., None]
#: The end of the placeholder of an argument that can be read from standard input.
_STDIN: Final = "|-"


def add_operations(
    app: typer.Typer, group: str, renders: Mapping[str, Render] | None = None, *, tenant: bool = False
) -> None:
    """Add the commands of a group's operations: `memory` has those declared as `memory …`.

    `renders` maps a command to the function that prints its answer; others print a table, or a line. With `tenant` they
    take `--tenant`. A command whose answer has a true attribute `failed` exits with 1.
    """
    for each in operations_of(Cuebook):
        first, _, name = each.declaration.cli.partition(" ")
        if first == group and name:
            _add(app, each, name, (renders or {}).get(name), tenant=tenant)


@cache
def group_of(name: str, line: str) -> typer.Typer:
    """Return a command group that has only derived commands; `line` is its help."""
    examples = [
        each.declaration.examples[0]
        for each in operations_of(Cuebook)
        if each.declaration.cli.startswith(f"{name} ") and each.declaration.examples
    ]
    app = new_app(line, *examples[:3])
    add_operations(app, name)
    return app


def _add(app: typer.Typer, operation: Operation, name: str, render: Render | None, *, tenant: bool) -> None:
    printed = list(inspect.signature(render).parameters.values())[1:] if render else []
    actor = {each.name: "cli" for each in operation.parameters if each.argument.source == "actor"}
    own = [each for each in printed if each.name not in {part.name for part in operation.parameters}]
    if tenant:
        kind = inspect.Parameter.KEYWORD_ONLY
        own.append(inspect.Parameter("tenant", kind, annotation=Tenant, default=DEFAULT_TENANT))

    def run(state: State, values: dict[str, Any], **extra: Any) -> None:
        with state.open() as cue:
            part = of_tenant(cue, extra["tenant"], new=name == "new") if tenant else cue
            answer = operation.bind(part)(**values, **actor)
        shown = {each.name: (values | extra)[each.name] for each in printed}
        state.report(
            operation.wire_answer(answer),
            render=partial(render, answer, **shown) if render else partial(print_answer, answer, declaration.none),
            failed=getattr(answer, "failed", False),
        )

    declaration = operation.declaration
    run.__doc__ = summary_of(operation.doc).replace("Return ", "Show ", 1)
    _register(app, run, operation.parameters, own, name=name, examples=declaration.examples)


#: A command: its arguments are the shared options, the values of an operation's arguments, and its own options.
OperationCommand = Callable[..., Any]


def operation_command(
    app: typer.Typer, method: Callable[..., Any], *examples: str
) -> Callable[[OperationCommand], OperationCommand]:
    """Register a function as a command with the options of an operation and its own.

    Its second argument maps the operation's arguments to their values. An own option replaces the one of the same name.
    """

    def register(function: OperationCommand) -> OperationCommand:
        _, _, *own = inspect.signature(function, eval_str=True).parameters.values()
        name = function.__name__.rstrip("_")
        _register(app, function, parameters_of(method), own, name=name, examples=examples)
        return function

    return register


def _register(
    app: typer.Typer,
    function: OperationCommand,
    parameters: Sequence[Parameter],
    own: Sequence[inspect.Parameter],
    *,
    name: str,
    examples: Sequence[str],
) -> None:
    replaced = {each.name for each in own}
    options = [each for each in parameters if each.asked and each.argument.flag != "-" and each.name not in replaced]

    def run(state: State, **values: Any) -> Any:
        extra = {each.name: values.pop(each.name) for each in own}
        try:
            return function(state, {each.name: _value(each, values[each.name]) for each in options}, **extra)
        except InvalidInput as error:
            raise _by_option(error, options) from None

    state = inspect.Parameter("state", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=State)
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    run.__signature__ = inspect.Signature([state, *map(_option, options), *keywords])  # type: ignore[attr-defined]
    run.__doc__ = inspect.getdoc(function)
    command(app, *examples, name=name)(run)


def of_tenant(cue: BlockingCuebook, tenant: str, *, new: bool = False) -> BlockingCuebook:
    """Return the project limited to a tenant. Raises NotFound for a tenant without API keys, unless it may be `new`."""
    part = cue.of(tenant)
    if not new and tenant != DEFAULT_TENANT and not len(part.keys.list()):
        msg = f"Unknown tenant {tenant!r}: it has no API keys. Create one with `cuebook key new --tenant {tenant}`."
        raise NotFound(msg)
    return part


def _by_option(error: InvalidInput, parameters: Sequence[Parameter]) -> InvalidInput:
    """Return an error about an argument with the name that it has on the command line."""
    for each in parameters:
        if error.where == each.wire and str(error).startswith(f"{each.wire}:"):
            return InvalidInput(f"{_name(each)}{str(error).removeprefix(each.wire)}", where=error.where)
    return error


def _name(parameter: Parameter) -> str:
    if parameter.positional and not parameter.argument.flag:
        return parameter.argument.metavar or parameter.name.upper()
    return f"--{parameter.argument.flag or parameter.name.replace('_', '-')}"


def _value(parameter: Parameter, value: Any) -> Any:
    if parameter.argument.flag == "by":
        return whoever(value)
    if parameter.argument.time:
        return seconds(value)
    if _is_mapping(parameter):
        return numbers(value, _name(parameter))
    if value == "-" and parameter.argument.metavar.endswith(_STDIN):
        return sys.stdin.read()
    if value is None and not parameter.required:
        return parameter.default
    return tuple(value) if isinstance(value, list) else value


def _option(parameter: Parameter) -> inspect.Parameter:
    """Return an argument or an option of a command."""
    kind, meta, argument = _kind(parameter), parameter.meta, parameter.argument
    limits: dict[str, Any] = {"min": meta.ge, "max": meta.le} if meta and _inner(parameter) in (int, float) else {}
    if kind is not bool and (argument.metavar or get_origin(_inner(parameter)) is not Literal):
        limits["metavar"] = argument.metavar or _placeholder(parameter)
    if argument.time:
        limits["formats"] = DAYS
    if parameter.positional and not argument.flag:
        made: Any = typer.Argument(help=parameter.description, show_default=False, **limits)
    else:
        shows = parameter.default not in (None, "", (), False)
        made = typer.Option(_name(parameter), help=parameter.description, show_default=shows, **limits)
    default = inspect.Parameter.empty if parameter.required else parameter.default or None
    if parameter.positional and argument.metavar.endswith(_STDIN):
        default = "-"
    if kind is bool:
        default = bool(parameter.default)
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, made], default=default
    )


def _placeholder(parameter: Parameter) -> str:
    """Return how the help shows a value: N for a whole number, 0..1 for a share, DATE, else the argument's name."""
    if parameter.argument.time:
        return "DATE"
    if _inner(parameter) is float and parameter.meta and parameter.meta.le == 1:
        return "0..1"
    return "N" if _inner(parameter) is int else parameter.name.upper()


def _inner(parameter: Parameter) -> Any:
    """Return the type of an argument, without None."""
    kinds = [each for each in get_args(parameter.kind) if each is not NoneType]
    return kinds[0] if get_origin(parameter.kind) in (UnionType, Union) else parameter.kind


def _is_mapping(parameter: Parameter) -> bool:
    return get_origin(_inner(parameter)) in (dict, Mapping)


def _kind(parameter: Parameter) -> Any:
    """Return the type that the command line parses."""
    optional = get_origin(parameter.kind) in (UnionType, Union)
    kind = _inner(parameter)
    if parameter.argument.time:
        kind = datetime
    elif get_origin(kind) in (tuple, list, Sequence, dict, Mapping):
        return list[str] | None
    return kind | None if optional or (not parameter.required and parameter.default is None) else kind


def whoever(by: str | None) -> str:
    """Return the given name, else the name of the current user account."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return ""


def pairs(values: list[str] | None, option: str, *, alone: str | None = None) -> dict[str, str]:
    """Parse `NAME=VALUE` options; a bare name gets the value `alone`. Raises BadParameter."""
    results: dict[str, str] = {}
    for each in values or ():
        name, mark, value = each.partition("=")
        if not name or (not mark and alone is None):
            msg = f"{each!r} is not of the form NAME=VALUE"
            raise typer.BadParameter(msg, param_hint=option)
        if name in results:
            msg = f"{name!r} is set twice. Pass it once"
            raise typer.BadParameter(msg, param_hint=option)
        results[name] = value if mark else alone or ""
    return results


def numbers(values: list[str] | None, option: str) -> dict[str, float]:
    """Parse `NAME=NUMBER` options; a bare name is 1. Raises BadParameter."""
    results: dict[str, float] = {}
    for name, value in pairs(values, option, alone="1").items():
        try:
            results[name] = float(value)
        except ValueError:
            msg = f"{name}: {value!r} is not a number"
            raise typer.BadParameter(msg, param_hint=option) from None
    return results


def print_answer(answer: Any, none: str) -> None:
    """Print a list as a table without its empty columns, and anything else as its text."""
    rows = answer.items if isinstance(answer, Page) else answer if isinstance(answer, list | tuple) else None
    if rows is None:
        screen.say(str(answer))
    elif not rows:
        screen.say(none)
    else:
        values = {
            name.replace("_", " "): [getattr(each, name) for each in rows]
            for name in rows[0].COLUMNS or rows[0].__struct_fields__
        }
        columns = {title: list(map(in_words, column)) for title, column in values.items()}
        titles = [title for title, column in columns.items() if any(column)]
        right = [
            each for each in titles if isinstance(values[each][0], int | float) and type(values[each][0]) is not Time
        ]
        lists = [each for each in titles if isinstance(values[each][0], tuple)]
        cells = list(zip(*(columns[each] for each in titles), strict=True))
        screen.table(titles, cells, right=right, fold=(titles[0], *lists, titles[-1]))
        if isinstance(answer, Page) and answer.next:
            screen.say(f"more results: --cursor {answer.next}")
