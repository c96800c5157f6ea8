"""Places of LangGraph's checkpoints among the documents of a project."""

from collections.abc import AsyncIterator

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import get_checkpoint_id

from cuebook.app.cuebook import Cuebook
from cuebook.errors import NotFound
from cuebook.records.document import Document

Space = tuple[str, ...]
#: The places of checkpoints and of writes; in each, a place per thread and namespace.
CHECKPOINTS, WRITES = ("langgraph", "checkpoints"), ("langgraph", "writes")
#: The place of runs; in each run's, a document per thread, whose key is the thread.
RUNS = ("langgraph", "runs")


def named(ns: str) -> str:
    """Return a checkpoint namespace as a name of a place, which is never empty."""
    return f"/{ns}"


def address_of(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return the thread, the name of the namespace and the id of a checkpoint."""
    asked = config["configurable"]
    return str(asked["thread_id"]), named(asked.get("checkpoint_ns", "")), get_checkpoint_id(config)


def config_of(thread: str, ns: str, checkpoint: str) -> RunnableConfig:
    """Return the config of a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns[1:], "checkpoint_id": checkpoint}}


async def newest(cue: Cuebook, thread: str, ns: str, checkpoint: str | None, *, user: str | None) -> Document | None:
    """Return a checkpoint by its id, or the newest one."""
    space = (*CHECKPOINTS, thread, ns)
    if checkpoint is None:
        return next(iter(await cue.documents.list(space, back=True, limit=1, user=user)), None)
    try:
        return await cue.documents.get(space, checkpoint, user=user)
    except NotFound:
        return None


async def backwards(cue: Cuebook, space: Space, *, user: str | None) -> AsyncIterator[Document]:
    """Yield the documents in a place, the last one first."""
    cursor: str | None = None
    while True:
        page = await cue.documents.list(space, back=True, limit=100, cursor=cursor, user=user)
        for each in page:
            yield each
        if (cursor := page.next) is None:
            return
