"""Render a conversation as a BrowserOS session: the summary first, then the messages kept verbatim."""

from collections.abc import Callable, Sequence

from cuebook.records.answer import Time
from cuebook.records.conversation import Post
from cuebook.records.conversation_answers import SessionMessage
from cuebook.records.memory import Summary


def session_of(
    posts: Sequence[Post], summary: Summary | None, *, count: Callable[[str], int], include_compressed: bool
) -> list[SessionMessage]:
    """Return a path, oldest first, as a session; messages that the summary covers are omitted or marked compressed."""
    reach = summary.upto_seq if summary else 0
    rows = [
        _message(post.role, post.message, post.created_at, post.tokens, compressed=post.seq <= reach)
        for post in posts
        if include_compressed or post.seq > reach
    ]
    if summary is None:
        return rows
    text = f"{CONTEXT_SUMMARY}\n{summary.markdown}"
    return [_message("system", text, summary.created_at, count(text), compressed=False), *rows]


def _message(role: str, content: str, when: float, tokens: int, *, compressed: bool) -> SessionMessage:
    return SessionMessage(
        role=role, content=content, timestamp=Time(when), token_count=tokens, is_compressed=compressed
    )


#: BrowserOS's marker of the message that replaces compressed ones.
CONTEXT_SUMMARY = "[CONTEXT SUMMARY]"
