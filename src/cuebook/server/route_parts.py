"""Define what routes share: the query parameters of a user and a conversation, and JSON responses."""

from typing import Annotated, Any

from litestar.params import QueryParameter
from litestar.response.base import ASGIResponse

from cuebook.records.answer import to_json

UserQuery = Annotated[str | None, QueryParameter(name="userId", description="The acting user")]
ConversationQuery = Annotated[
    str | None, QueryParameter(name="conversationId", description="Show only this conversation")
]


def json_of(value: Any, status: int = 200) -> ASGIResponse:
    """Return a JSON response."""
    return ASGIResponse(body=to_json(value), media_type="application/json", status_code=status)
