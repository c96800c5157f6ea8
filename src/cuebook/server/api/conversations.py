"""Serve `POST /api/conversations/{conversation}/posts`, which imports posts."""

from typing import Any

from litestar import post
from litestar.params import FromPath, JSONBody
from litestar.response.base import ASGIResponse

from cuebook import Posted
from cuebook.errors import InvalidInput
from cuebook.records.conversation import SYSTEM, Appended
from cuebook.server.api import types as wire
from cuebook.server.caller import AnyRequest, caller_of, cue_of, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of

#: Roles of OpenAI messages that are system posts.
SYSTEM_ROLES = ("system", "developer")


@post(
    "/api/conversations/{conversation:str}/posts",
    role="editor",
    dto=JsonBody[wire.PostsBody],
    responses=wire.answers(Appended, 201),
)
async def add_posts(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[wire.PostsBody], user_id: UserQuery = None
) -> ASGIResponse:
    """Import posts, all or none. The same id and content is stored once; different content is a conflict."""
    if (data.posts is None) == (data.messages is None):
        msg = "posts: send either posts or messages."
        raise InvalidInput(msg, where="posts")
    posts, messages = data.posts or [], data.messages or []
    if any(each.send_from == SYSTEM for each in posts) or any(each.get("role") in SYSTEM_ROLES for each in messages):
        caller_of(request).need("agent", "Storing a system post")

    def read() -> list[Posted] | list[dict[str, Any]]:
        read_posts = [wire.posted_of(each, number) for number, each in enumerate(posts)]
        return read_posts or [wire.message_with_time(each, number) for number, each in enumerate(messages)]

    cue = cue_of(request)
    items = len(posts) + len(messages) + sum(len(each.attachments) + len(each.parts or ()) for each in posts)
    appended = await cue.append(
        name_in(conversation),
        await cue.services.offload.run(0, read, items=items),
        user=user_of(request, data.user_id, user_id),
        persona=data.persona_id or None,
        parent=wire.chain_of(posts),
        idempotency_key=idempotency_key(request.scope),
        time_zone=data.time_zone,
    )
    return json_of(appended, 201)


ROUTES = [add_posts]
