"""Derive an HTTP route, with its OpenAPI entry, from each declared operation. Litestar routes, parses and documents."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Annotated, Any, Final

from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType
from litestar.params import JSONBody, PathParameter, QueryParameter
from litestar.plugins import OpenAPISchemaPlugin
from litestar.response.base import ASGIResponse
from litestar.typing import FieldDefinition
from msgspec import UNSET

from cuebook import Cuebook
from cuebook.operations import LIMITS, Operation, Parameter, operations_of, summary_of
from cuebook.records.answer import Time
from cuebook.server.api.types import answers, seconds_of
from cuebook.server.caller import AnyRequest, actor_of, caller_of, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import json_of


def routes() -> list[HTTPRouteHandler]:
    """Return the routes of all declared operations."""
    derived = [each for each in operations_of(Cuebook) if each.declaration.path]
    hidden = [
        route_of(each, names=_HIDDEN[each.declaration.route]) for each in derived if each.declaration.route in _HIDDEN
    ]
    return [*map(route_of, derived), *hidden]


#: Names that the path of another operation hides: Litestar finds `POST /api/prompts/migrate` first.
_HIDDEN: Final[Mapping[str, Mapping[str, str]]] = {"GET /api/prompts/{slug}": {"slug": "migrate"}}


def route_of(operation: Operation, *, names: Mapping[str, str] = MappingProxyType({})) -> HTTPRouteHandler:
    """Return the route of an operation; `names` are the values of parameters that its path does not leave open."""
    declaration, body = operation.declaration, operation.request_type()

    async def respond(request: AnyRequest, **values: Any) -> ASGIResponse:
        return await _respond(request, operation, values | dict(names))

    hints: dict[str, Any] = {"request": AnyRequest}
    path, variable = declaration.path, [each for each in operation.parameters_in("path") if each.name not in names]
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    hints |= {each.name: Annotated[each.kind, PathParameter()] for each in variable}
    hints |= {each.wire: _query(each) for each in operation.parameters_in("query")}
    defaults = {each.wire: each.default for each in operation.parameters_in("query") if not each.required}
    if body is not None:
        optional = all(not each.required for each in operation.parameters_in("body"))
        hints["data"] = _of(JSONBody, body | None if optional else body)
        if optional:
            defaults["data"] = None
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=defaults.get(name, inspect.Parameter.empty)
        )
        for name, hint in hints.items()
    ]
    hints["return"] = ASGIResponse
    respond.__signature__ = inspect.Signature(parameters, return_annotation=hints["return"])  # type: ignore[attr-defined]
    respond.__annotations__ = hints
    respond.__doc__ = summary_of(operation.doc)
    respond.__name__ = f"{operation.namespace}_{operation.name}".lstrip("_")
    for each in variable:
        path = path.replace(f"{{{each.name}}}", f"{{{each.name}:{'int' if each.kind is int else 'str'}}}")
    return HTTPRouteHandler(
        path,
        http_method=declaration.method,  # type: ignore[arg-type]  # one of HTTP's
        dto=None if body is None else _of(JsonBody, body),
        role=declaration.role,
        hidden=declaration.hidden,
        status_code=declaration.status,
        description=summary_of(operation.doc),
        operation_id=respond.__name__,
        include_in_schema=not names,
        responses=answers(operation.answer_type(), declaration.status, pending=hasattr(operation.returns, "pending")),
    )(respond)


#: The values that a request's authentication provides.
_PROVIDED: Final[Mapping[str, Callable[[AnyRequest], Any]]] = {
    "caller": caller_of,
    "acting": user_of,
    "actor": actor_of,
    "key": lambda request: idempotency_key(request.scope),
}


async def _respond(request: AnyRequest, operation: Operation, values: Mapping[str, Any]) -> ASGIResponse:
    """Run an operation with a request's values, and return its answer."""
    declaration = operation.declaration
    arguments = {each.name: _value(request, operation, each, values) for each in operation.parameters}
    method = operation.bind(cue_of(request))
    measures = request.app.state.measures
    async with measures.hold(declaration.heavy) if declaration.heavy else nullcontext():
        answer = await method(**{name: value for name, value in arguments.items() if value is not UNSET})
    status = 202 if getattr(answer, "pending", False) else declaration.status
    return json_of(operation.wire_answer(answer), status)


def _value(request: AnyRequest, operation: Operation, parameter: Parameter, values: Mapping[str, Any]) -> Any:
    """Return the value of an argument; UNSET for its default."""
    source, name = parameter.argument.source, parameter.name
    if source in _PROVIDED:
        return _PROVIDED[source](request)
    data, asked = values.get("data"), values.get(parameter.wire, UNSET)
    if source == "user":
        named = (getattr(data, name, None) or None, asked or None)
        user = user_of(request, *named)
        return (user or "") if parameter.kind is str else user
    if parameter in operation.parameters_in("path"):
        return name_in(values[name]) if isinstance(values[name], str) else values[name]
    value = asked if data is None else getattr(data, name, UNSET)
    if value is not UNSET and value is not None and parameter.argument.time:
        return seconds_of(value.strip(), parameter.wire) if value.strip() else None
    return value


def _of(generic: Any, kind: Any) -> Any:
    """Return a generic type with an argument that is only known at run time."""
    return generic[kind]


def _query(parameter: Parameter) -> Any:
    """Return a query parameter with its limits, for Litestar."""
    meta, kind = parameter.meta, parameter.kind
    if parameter.argument.time or parameter.argument.source == "user":
        kind = str | None
    limits = {name: getattr(meta, name) for name in LIMITS if getattr(meta, name, None) is not None}
    return Annotated[kind, QueryParameter(name=parameter.wire, description=parameter.description or None, **limits)]


class TimeSchema(OpenAPISchemaPlugin):
    """Documents times as ISO 8601."""

    @staticmethod
    def is_plugin_supported_field(field_definition: FieldDefinition) -> bool:
        """Return whether it is a time."""
        return field_definition.annotation is Time

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        """Return the schema of a time."""
        _ = field_definition, schema_creator
        return Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.DATE_TIME)
