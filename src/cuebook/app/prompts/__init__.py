"""The public API for managed prompts (`cue.prompts`): versions, branches, labels, rendering, A/B selection, rollback.

A slug identifies a prompt. The default branch is `main`, the default version the branch's active one. An unknown slug
is looked up again under `default/`.
"""

from cuebook.app.prompts.impact import Impact, Measuring
from cuebook.app.prompts.learning import Learning, Observed
from cuebook.app.prompts.reading import Rendered
from cuebook.app.prompts.writing import KEEP, PromptWriting

__all__ = ["KEEP", "Impact", "Observed", "Prompts", "Rendered"]


class Prompts(PromptWriting, Learning, Measuring):
    """The managed prompts of a project."""
