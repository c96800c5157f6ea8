"""Save the checkpoints of LangGraph's threads as documents.

A checkpoint is stored whole, with its channel values. Each pending write is a document of its own.
"""

import base64
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    SerializerProtocol,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)

from cuebook.app.cuebook import Cuebook
from cuebook.integrations.connection import Connection, Where, both, documents_in
from cuebook.integrations.langgraph.addresses import (
    CHECKPOINTS,
    RUNS,
    WRITES,
    address_of,
    backwards,
    config_of,
    named,
    newest,
)
from cuebook.records.document import Document, DocumentChange

#: The field of a checkpoint's metadata with the channels whose values are spread over its ancestors.
_DELTAS = "counters_since_delta_snapshot"


class CuebookSaver(Connection, BaseCheckpointSaver[str]):
    """Saves the checkpoints of a graph: `graph.compile(checkpointer=CuebookSaver("my-project"))`.

    `where` is a project (see `Connection`). Checkpoints of a `user` are apart, and a forget of the user deletes them.
    """

    def __init__(
        self, where: Where = None, *, user: str | None = None, serde: SerializerProtocol | None = None
    ) -> None:
        Connection.__init__(self, where)
        BaseCheckpointSaver.__init__(self, serde=serde)
        self._user = user

    async def _get(self, cue: Cuebook, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns, checkpoint = address_of(config)
        found = await newest(cue, thread, ns, checkpoint, user=self._user)
        return await self._tuple(cue, found) if found else None

    get_tuple, aget_tuple = both(_get)

    async def _listed(
        self,
        cue: Cuebook,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  # LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> list[CheckpointTuple]:
        """Return the checkpoints of a thread or of all, in one namespace or in all, newest first."""
        asked = (config or {}).get("configurable", {})
        place = [str(asked["thread_id"])] if config else []
        if place and "checkpoint_ns" in asked:
            place.append(named(asked["checkpoint_ns"]))
        only, until = get_checkpoint_id(config) if config else None, get_checkpoint_id(before) if before else None
        found: list[CheckpointTuple] = []
        async for document in backwards(cue, (*CHECKPOINTS, *place), user=self._user):
            if limit is not None and len(found) >= limit:
                break
            if (only and document.key != only) or (until and document.key >= until):
                continue
            each = await self._tuple(cue, document)
            if all(each.metadata.get(name) == value for name, value in (filter or {}).items()):
                found.append(each)
        return found

    _list_now, _alist_now = both(_listed)

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        yield from self._list_now(config, **options)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for each in await self._alist_now(config, **options):
            yield each

    async def _put(
        self,
        cue: Cuebook,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002  # all values are stored
    ) -> RunnableConfig:
        """Store a checkpoint."""
        thread, ns, parent = address_of(config)
        stored: Any = get_checkpoint_metadata(config, metadata)
        value = {
            "checkpoint": self._dump(checkpoint),
            "metadata": self._dump(stored),
            "parent": parent,
            "run": str(stored.get("run_id") or ""),
        }
        changes = [DocumentChange(space=(*CHECKPOINTS, thread, ns), key=checkpoint["id"], value=value)]
        await cue.documents.put([*changes, *_of_runs([value], thread)], user=self._user)
        return config_of(thread, ns, checkpoint["id"])

    put, aput = both(_put)

    async def _put_writes(
        self,
        cue: Cuebook,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store a task's writes. Those of the same place stay, except special ones such as errors."""
        thread, ns, checkpoint = address_of(config)
        space = (*WRITES, thread, ns, str(checkpoint))
        known = {each.key for each in await documents_in(cue, space, user=self._user)}
        changes = []
        for at, (channel, value) in enumerate(writes):
            place = WRITES_IDX_MAP.get(channel, at)
            key = f"{task_id}/{place}"
            if place < 0 or key not in known:
                body = {"order": [task_path, task_id, place], "channel": channel, "value": self._dump(value)}
                changes.append(DocumentChange(space=space, key=key, value=body))
        await cue.documents.put(changes, user=self._user)

    put_writes, aput_writes = both(_put_writes)

    async def _delete_thread(self, cue: Cuebook, thread_id: str) -> None:
        thread = str(thread_id)
        found = await documents_in(cue, (*CHECKPOINTS, thread), user=self._user)
        await cue.documents.put(_of_runs([each.value for each in found], thread, forget=True), user=self._user)
        for root in (CHECKPOINTS, WRITES):
            await cue.documents.delete((*root, thread), user=self._user)

    delete_thread, adelete_thread = both(_delete_thread)

    async def _delete_for_runs(self, cue: Cuebook, run_ids: Sequence[str]) -> None:
        for run in map(str, run_ids):
            for thread in await documents_in(cue, (*RUNS, run), user=self._user):
                async for document in backwards(cue, (*CHECKPOINTS, thread.key), user=self._user):
                    if document.value["run"] == run:
                        await self._delete(cue, document)
            await cue.documents.delete((*RUNS, run), user=self._user)

    delete_for_runs, adelete_for_runs = both(_delete_for_runs)

    async def _copy_thread(self, cue: Cuebook, source_thread_id: str, target_thread_id: str) -> None:
        for root in (CHECKPOINTS, WRITES):
            found = await documents_in(cue, (*root, source_thread_id), user=self._user)
            changes = [
                DocumentChange(space=(*root, target_thread_id, *each.space[3:]), key=each.key, value=each.value)
                for each in found
            ]
            runs = _of_runs([each.value for each in found if root is CHECKPOINTS], target_thread_id)
            await cue.documents.put([*changes, *runs], user=self._user)

    copy_thread, acopy_thread = both(_copy_thread)

    async def _prune(self, cue: Cuebook, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete threads, or keep the newest checkpoint of each namespace and the ancestors that it is built from."""
        if strategy not in ("keep_latest", "delete"):
            msg = f"strategy: unknown value {strategy!r}. Available: keep_latest, delete."
            raise ValueError(msg)
        for thread in thread_ids:
            if strategy == "delete":
                await self._delete_thread(cue, thread)
                continue
            deleted, kept = list[dict[str, Any]](), list[dict[str, Any]]()
            needed: dict[str, tuple[str | None, set[str]]] = {}  # by namespace: the next ancestor, and its channels
            async for document in backwards(cue, (*CHECKPOINTS, str(thread)), user=self._user):
                values, ns = self._load(document.value["checkpoint"])["channel_values"], document.space[-1]
                if ns not in needed:
                    wanted = set(self._load(document.value["metadata"]).get(_DELTAS) or ())
                elif needed[ns][1] and needed[ns][0] == document.key:
                    wanted = needed[ns][1]
                else:
                    await self._delete(cue, document)
                    deleted.append(document.value)
                    continue
                kept.append(document.value)
                needed[ns] = document.value["parent"], wanted - values.keys()
            changes = [*_of_runs(deleted, str(thread), forget=True), *_of_runs(kept, str(thread))]
            await cue.documents.put(changes, user=self._user)

    prune, aprune = both(_prune)

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002  # LangGraph's signature
        number = int(str(current).partition(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311  # not a secret

    async def _delete(self, cue: Cuebook, document: Document) -> None:
        await cue.documents.put([DocumentChange(space=document.space, key=document.key)], user=self._user)
        await cue.documents.delete((*WRITES, *document.space[2:], document.key), user=self._user)

    async def _tuple(self, cue: Cuebook, document: Document) -> CheckpointTuple:
        """Return a stored checkpoint with its writes, in the order of the tasks."""
        thread, ns = document.space[-2:]
        found = await documents_in(cue, (*WRITES, thread, ns, document.key), user=self._user)
        writes = sorted((each.value for each in found), key=lambda each: writes_sort_key(*each["order"]))
        parent = document.value["parent"]
        return CheckpointTuple(
            config=config_of(thread, ns, document.key),
            checkpoint=self._load(document.value["checkpoint"]),
            metadata=self._load(document.value["metadata"]),
            parent_config=config_of(thread, ns, parent) if parent else None,
            pending_writes=[(each["order"][1], each["channel"], self._load(each["value"])) for each in writes],
        )

    def _dump(self, value: Any) -> Sequence[str]:
        kind, raw = self.serde.dumps_typed(value)
        return [kind, base64.b64encode(raw).decode()]

    def _load(self, stored: Sequence[str]) -> Any:
        return self.serde.loads_typed((stored[0], base64.b64decode(stored[1])))


def _of_runs(checkpoints: Sequence[dict[str, Any]], thread: str, *, forget: bool = False) -> list[DocumentChange]:
    """Return the changes that store, or delete, in which runs a thread's checkpoints were made."""
    runs = {each["run"] for each in checkpoints} - {""}
    return [DocumentChange(space=(*RUNS, run), key=thread, value=None if forget else {}) for run in sorted(runs)]
