"""Declare operations: one public method is the Python call, the HTTP route, the MCP tool and the command.

The signature of the method is the request. Its return type, a record, is the answer. Its docstring and the descriptions
of its `Annotated` arguments are the documentation. `server.api.operations`, `server.mcp.tools` and `cli.operations`
read these declarations; `docs/architecture.md` shows how to add one.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache, partial, wraps
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct

from cuebook.errors import InvalidInput
from cuebook.records.key import Role
from cuebook.validate import check

Method = TypeVar("Method", bound=Callable[..., Any])

#: Names that differ between Python and JSON. Other names only change their case: `as_of`, `asOf`.
WIRE_NAMES: Final[Mapping[str, str]] = {
    "conversation": "conversationId", "organization": "organizationId", "persona": "personaId", "user": "userId",
}  # fmt: skip
#: A sentence of a docstring about exceptions.
_RAISES: Final = re.compile(r"\s*Raises\s[^.]*\.")
#: The limits that msgspec checks.
LIMITS: Final = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
#: The attribute of a method that has its declaration.
MARK: Final = "__operation__"


class Argument(Struct, frozen=True, kw_only=True):
    """How an argument appears outside Python, where that differs from its name and type.

    `source`: who provides it. `request` is the caller's request; `user` the acting user, named or authenticated;
    `acting` the authenticated one; `actor` the name for the audit log; `caller` the authenticated caller; `key` the
    Idempotency-Key; `python` only a Python caller. All but the first two are hidden from other callers.
    """

    wire: str = ""  # its name in JSON and in a query
    flag: str = ""  # its option on the command line, "-" for none
    metavar: str = ""  # its placeholder in the help, if not by type or name; with `|-`, `-` reads standard input
    source: Literal["request", "user", "acting", "actor", "caller", "key", "python"] = "request"
    time: bool = False  # Unix seconds in Python, ISO 8601 in JSON, a date on the command line


class Parameter(Struct, frozen=True, kw_only=True):
    """An argument of an operation as its signature declares it."""

    name: str
    kind: Any  # without its annotations
    meta: Meta | None
    argument: Argument
    positional: bool
    default: Any = UNSET

    @property
    def asked(self) -> bool:
        """Return whether a caller provides it; the others come from authentication."""
        return self.argument.source in ("request", "user")

    @property
    def required(self) -> bool:
        """Return whether a request must contain it."""
        return self.default is UNSET

    @property
    def wire(self) -> str:
        """Return its name in JSON and in a query."""
        first, *rest = self.name.split("_")
        return self.argument.wire or WIRE_NAMES.get(self.name) or first + "".join(each.capitalize() for each in rest)

    @property
    def limited(self) -> Any:
        """Return its type with its limits and its description. msgspec limits the members of a union one by one."""
        kind, meta = self.kind, self.meta
        annotate: Any = Annotated
        union: Any = Union
        if meta is None:
            return kind
        if type(None) not in get_args(kind):
            return Annotated[kind, meta]
        limits: dict[str, Any] = {name: getattr(meta, name) for name in LIMITS if getattr(meta, name) is not None}
        if limits:
            members = tuple(each for each in get_args(kind) if each is not type(None))
            kind = annotate[union[members], Meta(**limits)] | None
        return Annotated[kind, Meta(description=meta.description)]

    @property
    def annotated(self) -> Any:
        """Return its type in JSON, with its limits and its description."""
        if self.argument.time:
            return str | None if type(None) in get_args(self.kind) else str
        if self.argument.source == "user":
            return Annotated[str | None, self.meta or Meta()]
        return self.limited

    def check(self, value: object) -> None:
        """Check a value that a caller passed. Raises InvalidInput that names the argument."""
        if value == "" and self.argument.source == "user" and not self.required and self.default is None:
            msg = f"{self.wire}: empty. Pass a user ID, or omit it."
            raise InvalidInput(msg, where=self.wire)
        try:
            msgspec.convert(value, self.limited)
        except msgspec.ValidationError:
            check(value, self.limited, self.wire)

    @property
    def description(self) -> str:
        """Return its description."""
        return (self.meta.description if self.meta else None) or ""


class Declaration(Struct, frozen=True):
    """Declare a public method as an operation: `@operation("POST /learning/knowledge", role="editor", …)`.

    Without a route (""), it has no HTTP form. `cli` is its command without the program's name, `tool` its MCP tool; ""
    for none. `stores`: it honors `idempotency_key`. `hidden`: callers without the role get 404 instead of 403. `heavy`
    names an expensive request; one runs at a time. `none` is what the command line prints for an empty list. With
    `wrap` the JSON answer is an object with the answer under this name.
    """

    route: str
    role: Role
    status: int = 200
    cli: str = ""
    tool: str = ""
    examples: tuple[str, ...] = ()
    stores: bool = False
    hidden: bool = False
    heavy: str = ""
    none: str = "no results"
    wrap: str = ""

    @property
    def method(self) -> str:
        """Return the HTTP method."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """Return the path, with its parameters in braces."""
        return self.route.partition(" ")[2]

    def __call__(self, function: Method) -> Method:
        """Return the method with checked arguments and, if it `stores`, with Idempotency-Keys."""
        declared = _checked(function, stores=self.stores)
        setattr(declared, MARK, self)
        return declared  # type: ignore[return-value]  # the same signature


#: The decorator of a method.
operation = Declaration


class Operation(Struct, frozen=True, kw_only=True):
    """A declared method of a namespace of `Cuebook`, "" for its own."""

    namespace: str
    name: str
    declaration: Declaration
    parameters: tuple[Parameter, ...]
    returns: Any
    doc: str

    def asked(self) -> list[Parameter]:
        """Return the parameters that a caller provides; the others come from authentication."""
        return [each for each in self.parameters if each.asked]

    def parameters_in(self, place: Literal["path", "query", "body"]) -> list[Parameter]:
        """Return the parameters that a request has in its path, its query or its body."""
        asked = self.asked()
        if place == "path":
            return [each for each in asked if self._in_path(each)]
        has_body = self.declaration.method in ("POST", "PUT", "PATCH")
        others = [each for each in asked if not self._in_path(each)]
        if place == "body":
            return others if has_body else []
        return [each for each in others if each.argument.source == "user"] if has_body else others

    def _in_path(self, parameter: Parameter) -> bool:
        return f"{{{parameter.name}}}" in self.declaration.path

    def request_type(self, *, tool: bool = False) -> type[Struct] | None:
        """Return the struct of the request's body, None without one; for a `tool`, of all arguments by their names."""
        body = self.parameters_in("body") if not tool else self.asked()
        fields: list[Any] = [
            (each.name, each.annotated) if each.required else (each.name, each.annotated, each.default) for each in body
        ]
        names = {each.name: each.name if tool else each.wire for each in body}
        options: Any = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True, "rename": names}
        options["namespace"] = {"__doc__": self.doc.partition("\n")[0]}
        return msgspec.defstruct(f"{self._title()}Body", fields, **options) if body else None

    def answer_type(self) -> Any:
        """Return the type of its JSON answer."""
        wrap = self.declaration.wrap
        return msgspec.defstruct(f"{self._title()}Answer", [(wrap, self.returns)]) if wrap else self.returns

    def wire_answer(self, answer: Any) -> Any:
        """Return an answer as its JSON shows it."""
        return {self.declaration.wrap: answer} if self.declaration.wrap else answer

    def _title(self) -> str:
        return f"{self.name}_{self.namespace}".replace("_", " ").title().replace(" ", "")

    def bind(self, cue: Any) -> Callable[..., Awaitable[Any]]:
        """Return the method of an open project."""
        owner = getattr(cue, self.namespace) if self.namespace else cue
        method: Callable[..., Awaitable[Any]] = getattr(owner, self.name)
        return method


def _checked(function: Callable[..., Any], *, stores: bool) -> Callable[..., Any]:
    """Return the method with checked arguments and, if it `stores`, with Idempotency-Keys.

    A repeated request with the same key returns the first answer and changes nothing. Raises InvalidInput that names
    the wrong argument, and KeyReused.
    """
    signature = inspect.signature(function)

    @wraps(function)
    async def run(self: Any, /, *arguments: Any, **values: Any) -> Any:
        bound = signature.bind(self, *arguments, **values).arguments
        parameters, returns = _signature(function)
        asked = [each for each in parameters if each.asked and each.name in bound]
        for each in asked:
            each.check(bound[each.name])
        key = values.pop("idempotency_key", None) if stores else None
        if key is None:
            return await function(self, *arguments, **values)
        request = (function.__qualname__, {each.name: bound[each.name] for each in asked})
        work = partial(function, self, *arguments, **values)
        user = next((values.get(each.name) for each in parameters if each.argument.source == "user"), None)
        return await self._run_once(key, request, returns, work, user=user)

    return run


def summary_of(doc: str) -> str:
    """Return a docstring without its sentences about exceptions: HTTP has statuses, the command line messages."""
    return _RAISES.sub("", doc)


def operations_of(cuebook: type) -> Iterator[Operation]:
    """Yield the operations of `Cuebook`: its own, then those of its namespaces, in the order of the source."""
    yield from _declared("", cuebook)
    for kind in reversed(cuebook.__mro__):
        for name, member in vars(kind).items():
            if isinstance(member, property) and member.fget is not None and not name.startswith("_"):
                part = get_type_hints(member.fget).get("return")
                if inspect.isclass(part):
                    yield from _declared(name, part)


def _declared(namespace: str, kind: type) -> Iterator[Operation]:
    methods = {name: each for base in reversed(kind.__mro__) for name, each in vars(base).items()}
    for name, each in methods.items():
        declaration = getattr(each, MARK, None)
        if declaration is not None:
            parameters, returns = _signature(each)
            doc = inspect.getdoc(each) or ""
            yield Operation(
                namespace=namespace, name=name, declaration=declaration, parameters=parameters, returns=returns, doc=doc
            )


def parameters_of(method: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a declared method."""
    return _signature(method)[0]


@cache
def _signature(function: Callable[..., Any]) -> tuple[tuple[Parameter, ...], Any]:
    """Return the parameters of a method and its return type."""
    hints = get_type_hints(function, include_extras=True)
    parts = list(inspect.signature(function).parameters.values())[1:]
    return tuple(_parameter(each, hints) for each in parts), hints["return"]


def _parameter(part: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
    kind, notes = hints[part.name], tuple[Any, ...]()
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)  # type: ignore[assignment]
    return Parameter(
        name=part.name,
        kind=kind,
        meta=next((each for each in notes if isinstance(each, Meta)), None),
        argument=next((each for each in notes if isinstance(each, Argument)), Argument()),
        positional=part.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=UNSET if part.default is inspect.Parameter.empty else part.default,
    )
