"""Embed the example messages of the task classifier once, in the background, when first needed."""

import logging
from array import array
from operator import mul

from cuebook.engine.core.services import Services
from cuebook.records.memory import Dense
from cuebook.signals.task_examples import nearest

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
