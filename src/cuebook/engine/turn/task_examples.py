"""Embed the example messages of the task classifier once, in the background, when first needed."""

import logging
import math
from array import array
from operator import mul

from cuebook.engine.core.query_vector import check_size, space_of
from cuebook.engine.core.services import Services
from cuebook.errors import BackendError
from cuebook.records.memory import Dense
from cuebook.signals.task_examples import EXAMPLES, nearest

log = logging.getLogger("cuebook.embedder")


def kind_of(services: Services, dense: Dense) -> str:
    """Return the task type closest to a message's vector, "" if none stands out or the examples are
    not embedded yet.
    """
    kinds = services.caches.task_means
    if kinds.space != dense.model:
        kinds.wanted = True
        return ""
    own = array("f", dense.vector)
    return nearest({task: sum(map(mul, own, mean)) for task, mean in kinds.means.items()}, akin=dense.akin)


async def embed_kinds(services: Services) -> None:
    """Embed the examples. After a failure, retry when the next message needs them."""
    if not await due(services) or services.embedder is None:
        return
    services.caches.task_means.wanted = False
    means: dict[str, tuple[float, ...]] = {}
    try:
        for task, examples in EXAMPLES.items():
            vectors = await services.embedder.embed(examples)
            check_size(services.embedder, vectors)
            summed = [sum(column) for column in zip(*(array("f", each) for each in vectors), strict=True)]
            length = math.hypot(*summed) or 1.0
            means[task] = tuple(number / length for number in summed)
    except BackendError as error:
        log.warning("The task classifier uses rules only: %s", services.writer.clean(str(error)))
        return
    services.caches.task_means.means, services.caches.task_means.space = means, space_of(services.embedder)


async def due(services: Services) -> int:
    """Return whether the examples need to be embedded."""
    return int(services.embedder is not None and services.caches.task_means.wanted)
