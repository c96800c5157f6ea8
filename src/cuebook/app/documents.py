"""Documents of programs: JSON values by place and key, such as an agent's checkpoints and files."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from cuebook.app.arguments import Cursor, PageSize, User
from cuebook.app.namespace import Namespace
from cuebook.app.paging import LIMIT, read_cursor, write_cursor
from cuebook.errors import InvalidInput, NotFound
from cuebook.operations import Argument, operation
from cuebook.records.answer import Page
from cuebook.records.document import Document, DocumentChange, DocumentKey, Space, Spaces
from cuebook.records.memory import Scope
from cuebook.storage.documents import path_of
from cuebook.validate import check

Changes = Annotated[
    Sequence[DocumentChange], Meta(max_length=10_000, description="Documents to store; without `value`: to delete.")
]


class Documents(Namespace):
    """The documents of one tenant. Those of a user are apart from the others, and are forgotten with the user."""

    @operation("POST /api/documents", role="editor", wrap="existed")
    async def put(self, changes: Changes, *, user: User = None) -> int:
        """Store and delete documents, all or none. Return how many existed before. Raises InvalidInput and Conflict."""
        checked = check(changes, tuple[DocumentChange, ...], "changes")
        for at, each in enumerate(checked):
            if each.new and each.expected is not None:
                where = f"changes[{at}].expected"
                msg = f"{where}: a new document has no earlier value. Pass `new` or `expected`."
                raise InvalidInput(msg, where=where)
        return await self._services.store.documents.apply(Scope(user=user), checked, now=self._services.clock.now())

    @operation("GET /api/documents/value", role="viewer")
    async def get(
        self, space: Space, key: Annotated[DocumentKey, Argument(metavar="KEY")], *, user: User = None
    ) -> Document:
        """Return a document. Raises NotFound."""
        store, now = self._services.store.documents, self._services.clock.now()
        found = await store.get(Scope(user=user), space, key, now=now)
        if found is None:
            msg = f"Unknown document {key!r} in {'/'.join(space)!r}."
            raise NotFound(msg)
        return found

    @operation("GET /api/documents", role="viewer")
    async def list(
        self,
        space: Space = (),
        *,
        back: Annotated[bool, Meta(description="Begin with the last one.")] = False,
        user: User = None,
        limit: PageSize = LIMIT,
        cursor: Cursor = None,
    ) -> Page[Document]:
        """List the documents of a place and of the places in it, by place and key."""
        after, store = None, self._services.store.documents
        if cursor is not None:
            *names, key = map(str, read_cursor(cursor, "documents"))
            after = (path_of(names), key.encode())
        now = self._services.clock.now()
        found = await store.page(Scope(user=user), space, after=after, back=back, limit=limit + 1, now=now)
        last = found[limit - 1] if len(found) > limit else None
        more = write_cursor("documents", *last.space, last.key) if last else None
        return Page(items=tuple(found[:limit]), next=more)

    @operation("DELETE /api/documents", role="editor", wrap="deleted")
    async def delete(self, space: Space, *, user: User = None) -> int:
        """Delete the documents of a place and of the places in it. Return how many."""
        return await self._services.store.documents.delete(Scope(user=user), space)

    @operation("GET /api/documents/spaces", role="viewer")
    async def spaces(self, space: Space = (), *, user: User = None) -> Spaces:
        """List the places in a place that contain documents."""
        store, now = self._services.store.documents, self._services.clock.now()
        return Spaces(spaces=await store.spaces(Scope(user=user), space, now=now))
