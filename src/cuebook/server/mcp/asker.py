"""Who asks over the protocol, and of which book: over HTTP a key says so, over a pipe who started the program."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from litestar import Request
from msgspec import Struct

from cuebook import Cuebook
from cuebook.records.key import Caller
from cuebook.records.memory import Memory
from cuebook.server.caller import book_of, caller_of, header


class Asker(Struct, frozen=True, kw_only=True):
    """A book as somebody sees it. `named` are users the request names beside what a tool is given."""

    book: Cuebook
    caller: Caller
    named: tuple[str | None, ...] = ()

    def user(self, given: str | None = None) -> str | None:
        """Give who asks. Raises Denied where that is one user and another is named."""
        return self.caller.acts_as(given, *self.named)

    def may_know(self, memory: Memory) -> bool:
        """Whether a memory may be shown: an organization's is for its own keys."""
        return memory.place.kind != "organization" or self.caller.belongs_to(memory.place.id)


class Asking(Struct, frozen=True, kw_only=True):
    """Says of a message's context who asks; the same a while later; and gives who listens a place, if there is one."""

    now: Callable[[Any], Asker]
    later: Callable[[Any], Awaitable[Asker]]  # raises Unproven for a key that opens nothing any more
    seat: Callable[[Any], AbstractContextManager[None]]  # raises Busy


def asker_of(scope: Any) -> Asker:
    """Give who asks with a request that was let in."""
    request = Request[Any, Any, Any](scope)
    named = (request.query_params.get("userId"), header(scope, b"x-user-id"))
    return Asker(book=book_of(request), caller=caller_of(request), named=named)
