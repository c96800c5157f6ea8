"""Define what routes share: the conversation path, the query parameters of lists, JSON responses."""

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.params import QueryParameter

PATH = "/api/conversations/{conversation:str}"

UserQuery = Annotated[str | None, QueryParameter(name="userId", description="The acting user")]
Limit = Annotated[int, QueryParameter(ge=1, le=200, description="Maximum number of items")]
PageLimit = Annotated[int | None, QueryParameter(name="limit", ge=1, le=200, description="Maximum page size")]
PageCursor = Annotated[str | None, QueryParameter(name="cursor", description="`next` of the previous page")]

_encode = msgspec.json.Encoder().encode


def json_of(value: Any, status: int = 200) -> Response[bytes]:
    """Return a JSON response."""
    return Response(_encode(value), media_type="application/json", status_code=status)


def listed(items: list[Any], cursor: str | None) -> Response[bytes]:
    """Return a list response, or a page with the cursor of the next."""
    return json_of({"items": items} | ({"next": cursor} if cursor is not None else {}))
