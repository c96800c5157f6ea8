"""The arguments that several operations share: their names, limits and descriptions, declared once."""

from typing import Annotated

from msgspec import Meta

from cuebook.operations import Argument
from cuebook.records.key import Caller

#: The caller without API keys: the machine's owner.
OWNER = Caller()

User = Annotated[
    str | None,
    Meta(description="Use only data that this user can access."),
    Argument(source="user"),
]
Owner = Annotated[
    str | None,
    Meta(description="Store it as a memory of this user. Default: the project's own."),
    Argument(source="user"),
]
#: A text that is not empty.
Text = Annotated[str, Meta(min_length=1)]
Conversation = Annotated[str, Meta(min_length=1, description="Conversation ID.")]
OnlyConversation = Annotated[
    str | None, Meta(min_length=1, description="Use only this conversation."), Argument(metavar="ID")
]
Persona = Annotated[str | None, Meta(description="Include memories of this persona."), Argument(metavar="ID")]
Organization = Annotated[str | None, Meta(description="Use only data of this organization."), Argument(metavar="ORG")]
AsOf = Annotated[
    float | None,
    Meta(description="Use the memories that were valid at this time; a date is its start (UTC)."),
    Argument(time=True),
]
Ended = Annotated[bool, Meta(description="Include superseded memories.")]
PageSize = Annotated[int, Meta(ge=1, le=1000, description="Return at most N items.")]
MaybePageSize = Annotated[int | None, Meta(ge=1, le=1000, description="Return at most N items per page. Default: all.")]
Cursor = Annotated[str | None, Meta(description="Continue after the page that returned this cursor.")]
TimeZone = Annotated[
    str | None,
    Meta(description='Resolve "yesterday" and the like in this time zone, such as Europe/Oslo.'),
    Argument(metavar="ZONE"),
]
Tokens = Annotated[int | None, Meta(ge=1, le=2**31, description="Limit the results to N tokens.")]
#: The acting user as the author of a change.
By = Annotated[
    str,
    Meta(description="Author of the change. Default: the acting user."),
    Argument(source="user", flag="by", metavar="NAME", wire="userId"),
]
#: The actor's name for the audit log: a key's id, or the owner.
Actor = Annotated[str, Argument(source="actor")]
CallerOf = Annotated[Caller, Argument(source="caller")]
IdempotencyKey = Annotated[str | None, Argument(source="key")]
TurnNumber = Annotated[int, Meta(description="Turn number.")]
StepNumber = Annotated[
    int | None,
    Meta(ge=1, description="Model call of the turn. Default: the last one."),
    Argument(metavar="K"),
]
