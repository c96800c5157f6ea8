"""LangGraph's long-term store as documents, with search by fields and by meaning."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from math import hypot
from operator import ge, gt, le, lt, mul
from typing import Any, Final

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from cuebook.app.cuebook import Cuebook
from cuebook.errors import InvalidInput, NotFound
from cuebook.integrations.connection import Connection, Where, documents_in
from cuebook.records.document import Document, DocumentChange
from cuebook.validate import format_value

#: The place of all items; in it, a place per namespace.
_ROOT: Final = ("langgraph", "store")
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
#: Seconds in a minute: LangGraph counts the life of items in minutes.
_MINUTE_S: Final = 60


class CuebookStore(Connection, BaseStore):
    """LangGraph's store: `graph.compile(store=CuebookStore("my-project"))`.

    `where` is a project (see `Connection`). With `embedder` (LangChain's Embeddings, or a function of texts), `search`
    ranks by meaning; `fields` are the paths of an item's value that it reads, by default all of it. Items of a `user`
    are apart, and a forget of the user deletes them. The operations of a batch read first and write last.
    """

    supports_ttl = True

    def __init__(
        self,
        where: Where = None,
        *,
        embedder: Any = None,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
        user: str | None = None,
    ) -> None:
        if embedder is not None and not (isinstance(embedder, str | Embeddings) or callable(embedder)):
            text = "Pass LangChain's Embeddings or a function of texts, such as `embed` of LangGraph's `index`."
            msg = f"embedder: not an embedding model: {format_value(embedder)}. {text}"
            raise InvalidInput(msg, where="embedder")
        super().__init__(where)
        self.ttl_config = ttl
        self.embeddings = ensure_embeddings(embedder) if embedder is not None else None
        self._fields, self._user = tuple(fields), user

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        texts = self._texts(asked)
        vectors = self.embeddings.embed_documents(texts) if self.embeddings and texts else []
        return self._run(lambda cue: self._batch(cue, asked, dict(zip(texts, vectors, strict=True))))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        texts = self._texts(asked)
        vectors = await self.embeddings.aembed_documents(texts) if self.embeddings and texts else []
        return await self._await(lambda cue: self._batch(cue, asked, dict(zip(texts, vectors, strict=True))))

    async def _batch(self, cue: Cuebook, ops: Sequence[Op], vectors: dict[str, list[float]]) -> list[Result]:
        reads = {GetOp: self._get, SearchOp: self._search, ListNamespacesOp: self._namespaces}
        results: list[Result] = []
        for op in ops:
            read: Any = reads.get(type(op))
            results.append(None if read is None else await read(cue, op, vectors))
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}  # the last one of a key counts
        if puts:
            await cue.documents.put([self._change(op, vectors) for op in puts.values()], user=self._user)
        return results

    async def _get(self, cue: Cuebook, op: GetOp, _: object) -> Item | None:
        try:
            document = await cue.documents.get((*_ROOT, *op.namespace), op.key, user=self._user)
        except NotFound:
            return None
        await self._refresh(cue, [document], asked=op.refresh_ttl)
        return Item(**_fields(document))

    async def _search(self, cue: Cuebook, op: SearchOp, vectors: dict[str, list[float]]) -> list[SearchItem]:
        found = await documents_in(cue, (*_ROOT, *op.namespace_prefix), user=self._user)
        found = [each for each in found if _fits(each.value["value"], op.filter or {})]
        scores: dict[int, float] = {}
        if op.query and op.query in vectors:
            wanted = vectors[op.query]
            for at, each in enumerate(found):
                if stored := each.value.get("vectors"):
                    scores[at] = max(_cosine(wanted, vector) for vector in stored)
        order = sorted(range(len(found)), key=lambda at: (at not in scores, -scores.get(at, 0), at))
        page = order[op.offset : op.offset + op.limit]
        await self._refresh(cue, [found[at] for at in page], asked=op.refresh_ttl)
        return [SearchItem(**_fields(found[at]), score=scores.get(at)) for at in page]

    async def _namespaces(self, cue: Cuebook, op: ListNamespacesOp, _: object) -> list[tuple[str, ...]]:
        spaces = (await cue.documents.spaces(_ROOT, user=self._user)).spaces
        conditions = op.match_conditions or ()
        found = [each[2:] for each in spaces if all(_matches(condition, each[2:]) for condition in conditions)]
        shortened = sorted({each[: op.max_depth] for each in found})
        return shortened[op.offset : op.offset + op.limit]

    async def _refresh(self, cue: Cuebook, documents: Sequence[Document], *, asked: bool) -> None:
        """Let items that are read begin their life again, if they have one."""
        living = [each for each in documents if asked and each.value.get("ttl")]
        if living:
            changes = [
                DocumentChange(space=each.space, key=each.key, value=each.value, ttl_s=each.value["ttl"] * _MINUTE_S)
                for each in living
            ]
            await cue.documents.put(changes, user=self._user)

    def _change(self, op: PutOp, vectors: dict[str, list[float]]) -> DocumentChange:
        space = (*_ROOT, *op.namespace)
        if op.value is None:
            return DocumentChange(space=space, key=op.key)
        value: dict[str, Any] = {"value": op.value}
        if stored := [vectors[text] for text in self._parts(op) if text in vectors]:
            value["vectors"] = stored
        if op.ttl:
            value["ttl"] = op.ttl
        return DocumentChange(space=space, key=op.key, value=value, ttl_s=op.ttl * _MINUTE_S if op.ttl else None)

    def _texts(self, ops: Sequence[Op]) -> list[str]:
        """Return the texts of a batch that need a vector: queries, and what is indexed of new values."""
        if self.embeddings is None:
            return []
        texts = [op.query for op in ops if isinstance(op, SearchOp) and op.query]
        texts += [text for op in ops if isinstance(op, PutOp) for text in self._parts(op)]
        return list(dict.fromkeys(texts))

    def _parts(self, op: PutOp) -> list[str]:
        if op.value is None or op.index is False:
            return []
        paths = self._fields if op.index is None else op.index
        return [
            text for path in paths for text in get_text_at_path(op.value, tokenize_path(path) if path != "$" else path)
        ]


def _fields(document: Document) -> dict[str, Any]:
    times = {name: datetime.fromtimestamp(getattr(document, name), UTC) for name in ("created_at", "updated_at")}
    return {"namespace": document.space[2:], "key": document.key, "value": document.value["value"], **times}


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    size = hypot(*one) * hypot(*other)
    return sum(map(mul, one, other)) / size if size else 0.0


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    """Return whether a namespace begins or ends with a path, in which "*" is any name."""
    path = condition.path
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", name) for wanted, name in zip(path, part, strict=True))


def _fits(value: Any, wanted: Any) -> bool:
    """Return whether a value has the wanted fields, by equality or by operators such as {"$gte": 3}."""
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_compares(value, name, than) for name, than in wanted.items())
        return isinstance(value, dict) and all(_fits(value.get(name), each) for name, each in wanted.items())
    if isinstance(wanted, list | tuple):
        same = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same and all(map(_fits, value, wanted))
    return bool(value == wanted)


def _compares(value: Any, name: str, than: Any) -> bool:
    if name in ("$eq", "$ne"):
        return bool((value == than) == (name == "$eq"))
    if name not in _COMPARE:
        msg = f"Unknown operator {name!r}. Available: $eq, $ne, {', '.join(_COMPARE)}."
        raise ValueError(msg)
    return value is not None and _COMPARE[name](float(value), float(than))
