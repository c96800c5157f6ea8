"""Embed the example messages of the task classifier once, in the background, when first needed."""

import logging
import math
from array import array
from operator import mul

from cuebook.engine.core.desk import Desk
from cuebook.engine.core.query_vector import check_size, space_of
from cuebook.errors import BackendError
from cuebook.records.memory import Dense
from cuebook.signals.task_examples import EXAMPLES, nearest

log = logging.getLogger("cuebook.embedder")


def kind_of(desk: Desk, dense: Dense) -> str:
    """Return the task type closest to a message's vector, "" if none stands out or the examples are
    not embedded yet.
    """
    kinds = desk.kinds
    if kinds.space != dense.model:
        kinds.wanted = True
        return ""
    own = array("f", dense.vector)
    return nearest({task: sum(map(mul, own, mean)) for task, mean in kinds.means.items()}, akin=dense.akin)


async def embed_kinds(desk: Desk) -> None:
    """Embed the examples. After a failure, retry when the next message needs them."""
    if not await due(desk) or desk.embedder is None:
        return
    desk.kinds.wanted = False
    means: dict[str, tuple[float, ...]] = {}
    try:
        for task, examples in EXAMPLES.items():
            vectors = await desk.embedder.embed(examples)
            check_size(desk.embedder, vectors)
            summed = [sum(column) for column in zip(*(array("f", each) for each in vectors), strict=True)]
            length = math.hypot(*summed) or 1.0
            means[task] = tuple(number / length for number in summed)
    except BackendError as error:
        log.warning("The task classifier uses rules only: %s", desk.writer.clean(str(error)))
        return
    desk.kinds.means, desk.kinds.space = means, space_of(desk.embedder)


async def due(desk: Desk) -> int:
    """Return whether the examples need to be embedded."""
    return int(desk.embedder is not None and desk.kinds.wanted)
