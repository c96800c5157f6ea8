"""CrewAI: the records of a crew's memory are memories of a user or the project; their vectors are documents."""

import base64
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import dist
from typing import Any
from urllib.parse import unquote

from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
from crewai.memory.types import MemoryRecord, ScopeInfo

from cuebook.app.cuebook import Cuebook
from cuebook.errors import NotFound
from cuebook.integrations.connection import Connection, Where, both, documents_in, place_name
from cuebook.records.document import Document, DocumentChange

#: The places of the records without their texts, of their vectors, and of the vectors' dimension.
_RECORDS, _VECTORS, _DIMENSION = [("crewai", each) for each in ("records", "vectors", "dimension")]
#: The fields of a record that other places have.
_ELSEWHERE = {"content", "embedding", "id"}
#: Most memories that are forgotten at once.
_AT_ONCE = 10_000


class CuebookStorage(Connection):
    """CrewAI's storage of memory: `Memory(storage=CuebookStorage("my-project", user="ann"))`.

    `where` is a project (see `Connection`). The text of a record is a memory of `user`, or of the project without one,
    so that Cuebook's search and prompts have it too. A record whose memory was forgotten is gone. Scores are those of
    CrewAI's default storage. A scope contains itself and what is below it.
    """

    def __init__(self, where: Where = None, *, user: str | None = None) -> None:
        super().__init__(where)
        self._user = user

    async def _save(self, cue: Cuebook, records: list[MemoryRecord]) -> None:
        """Store records. One with the id of a stored record replaces it."""
        await self._check_dimension(cue, [each.embedding for each in records if each.embedding])
        known = {each.key: each.value["memory"] for each in await self._documents(cue)}
        changes = []
        for record in records:
            memory = (await cue.memory.add(record.content, user=self._user)).id
            value = record.model_dump(mode="json", exclude=_ELSEWHERE) | {"memory": memory}
            changes.append(DocumentChange(space=_RECORDS, key=place_name(record.id), value=value))
            packed = {"floats": base64.b64encode(array("f", record.embedding or ()).tobytes()).decode()}
            changes.append(DocumentChange(space=_VECTORS, key=place_name(record.id), value=packed))
        await cue.documents.put(changes, user=self._user)
        await self._forget(cue, [known[change.key] for change in changes if change.key in known])

    save, asave = both(_save)

    def update(self, record: MemoryRecord) -> None:
        self.save([record])

    def touch_records(self, record_ids: list[str]) -> None:
        """Set the time of the last access of records to now."""
        self._run(lambda cue: self._touch(cue, record_ids))

    async def _touch(self, cue: Cuebook, record_ids: Sequence[str]) -> None:
        wanted = set(map(place_name, record_ids))
        found = [each for each in await self._documents(cue) if each.key in wanted]
        changes = []
        for each in found:  # without a time of its own, the last access is the time of this change
            accessed = {"last_accessed": None, "accesses": each.value.get("accesses", 0) + 1}
            changes.append(DocumentChange(space=_RECORDS, key=each.key, value=each.value | accessed))
        await cue.documents.put(changes, user=self._user)

    async def _search(  # noqa: PLR0917  # CrewAI's signature
        self,
        cue: Cuebook,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records that are nearest to a vector, with scores from 0 to 1."""
        await self._check_dimension(cue, [query_embedding])
        vectors = {each.key: _vector(each) for each in await documents_in(cue, _VECTORS, user=self._user)}
        fits = _condition(scope_prefix, categories, metadata_filter)
        scored = []
        for each in filter(fits, await self._documents(cue)):
            vector = vectors.get(each.key) or [0.0] * len(query_embedding)
            score = 1 / (1 + dist(query_embedding, vector) ** 2)
            if score >= min_score:
                scored.append((score, each))
        scored.sort(key=lambda each: -each[0])
        return [(record, score) for score, each in scored[:limit] if (record := await self._record(cue, each))]

    search, asearch = both(_search)

    async def _delete(  # noqa: PLR0917  # CrewAI's signature
        self,
        cue: Cuebook,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that meet all conditions, and their memories. Return how many."""
        fits, ids = _condition(scope_prefix, categories, metadata_filter), set(map(place_name, record_ids or ()))
        gone = [
            each
            for each in filter(fits, await self._documents(cue))
            if (not ids or each.key in ids)
            and (older_than is None or _time(each.value["created_at"]) < _time(older_than.isoformat()))
        ]
        changes = [DocumentChange(space=space, key=each.key) for each in gone for space in (_RECORDS, _VECTORS)]
        await cue.documents.put(changes, user=self._user)
        await self._forget(cue, [each.value["memory"] for each in gone])
        return len(gone)

    delete, adelete = both(_delete)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        return self._run(lambda cue: self._get(cue, record_id))

    async def _get(self, cue: Cuebook, record_id: str) -> MemoryRecord | None:
        try:
            found = await cue.documents.get(_RECORDS, place_name(record_id), user=self._user)
        except NotFound:
            return None
        return await self._record(cue, found)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        return self._run(lambda cue: self._list(cue, scope_prefix, limit, offset))

    async def _list(self, cue: Cuebook, scope: str | None, limit: int, offset: int) -> list[MemoryRecord]:
        found = [*filter(_condition(scope), await self._documents(cue))]
        found.sort(key=lambda each: _time(each.value["created_at"]), reverse=True)
        page = found[offset : offset + limit] if limit > 0 and offset >= 0 else []
        return [record for each in page if (record := await self._record(cue, each))]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        found = self._values(scope)
        times = sorted((datetime.fromisoformat(each["created_at"]) for each in found), key=datetime.isoformat)
        return ScopeInfo(
            path=scope.rstrip("/") or "/",
            record_count=len(found),
            categories=sorted({category for each in found for category in each["categories"]}),
            oldest_record=times[0] if times else None,
            newest_record=times[-1] if times else None,
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        beginning = _path(parent) + "/"
        below = [each["scope"].removeprefix(beginning) for each in self._values(parent) if each["scope"] != beginning]
        names = {each.partition("/")[0] for each in below if not each.startswith("/")}
        return sorted(beginning + name for name in names if name)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        return dict(Counter(category for each in self._values(scope_prefix) for category in each["categories"]))

    def count(self, scope_prefix: str | None = None) -> int:
        return len(self._values(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete the records of a scope, or all of them; then another embedder may be used."""
        self.delete(scope_prefix)
        if not _path(scope_prefix):
            self._run(lambda cue: cue.documents.delete(_DIMENSION, user=self._user))

    def _values(self, scope: str | None) -> list[dict[str, Any]]:
        return [each.value for each in filter(_condition(scope), self._run(self._documents))]

    async def _documents(self, cue: Cuebook) -> list[Document]:
        return await documents_in(cue, _RECORDS, user=self._user)

    async def _record(self, cue: Cuebook, document: Document) -> MemoryRecord | None:
        """Return a record with its text, None if its memory was forgotten."""
        try:
            memory = await cue.memory.get(document.value["memory"], user=self._user)
            packed = await cue.documents.get(_VECTORS, document.key, user=self._user)
        except NotFound:
            return None
        changed = datetime.fromtimestamp(document.updated_at, UTC).replace(tzinfo=None)  # CrewAI's times have no zone
        fields = document.value | {"id": unquote(document.key[1:]), "content": memory.text}
        fields["last_accessed"] = fields["last_accessed"] or changed
        return MemoryRecord(**fields, embedding=_vector(packed) or None)

    async def _forget(self, cue: Cuebook, memories: Sequence[str]) -> None:
        """Delete the memories that no record uses any more: records of the same text have one memory."""
        used = {each.value["memory"] for each in await self._documents(cue)}
        gone = [each for each in dict.fromkeys(memories) if each not in used]
        for at in range(0, len(gone), _AT_ONCE):
            await cue.memory.forget(memories=gone[at : at + _AT_ONCE])

    async def _check_dimension(self, cue: Cuebook, vectors: Sequence[Sequence[float]]) -> None:
        """Check that vectors have the dimension of the first one. Raises EmbeddingDimensionMismatchError."""
        stored = [each.value["size"] for each in await documents_in(cue, _DIMENSION, user=self._user)]
        for vector in vectors:
            stored = stored or [len(vector)]
            if len(vector) != stored[0]:
                raise EmbeddingDimensionMismatchError(stored[0], len(vector))
        if stored:
            change = DocumentChange(space=_DIMENSION, key="size", value={"size": stored[0]})
            await cue.documents.put([change], user=self._user)


def _condition(
    scope: str | None, categories: Sequence[str] | None = None, metadata: dict[str, Any] | None = None
) -> Callable[[Document], bool]:
    """Return whether a record is in a scope, has one of the categories, and all the metadata."""
    path, wanted = _path(scope), set(categories or ())

    def fits(document: Document) -> bool:
        value = document.value
        return (
            (value["scope"] + "/").startswith(path + "/")
            and (not wanted or not wanted.isdisjoint(value["categories"]))
            and all(value["metadata"].get(name) == each for name, each in (metadata or {}).items())
        )

    return fits


def _path(scope: str | None) -> str:
    """Return a scope with a slash at its beginning and none at its end; "" for all."""
    name = (scope or "").strip("/")
    return f"/{name}" if name else ""


def _time(text: str) -> float:
    """Return the Unix time of a date, which is in UTC unless it has a time zone."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _vector(document: Document) -> list[float]:
    floats = array("f")
    floats.frombytes(base64.b64decode(document.value["floats"]))
    return floats.tolist()
