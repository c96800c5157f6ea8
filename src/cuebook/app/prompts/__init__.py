"""The public API for managed prompts (`cue.prompts`): versions, branches, labels, rendering, A/B selection, rollback.

A slug identifies a prompt. The default branch is `main`, the default version the branch's active one. An unknown slug
is looked up again under `default/`.
"""

from cuebook.app.prompts.answers import ObservationResult, VersionIdentity
from cuebook.app.prompts.arguments import ForkOrigin
from cuebook.app.prompts.impact import Impact, PromptImpactApi
from cuebook.app.prompts.learning import PromptLearningApi
from cuebook.app.prompts.migration import PromptMigrationApi
from cuebook.app.prompts.reading import RenderedPrompt
from cuebook.app.prompts.views import PromptViews
from cuebook.app.prompts.writing import KEEP
from cuebook.prompts.names import Reference
from cuebook.prompts.rating import QualityRating

__all__ = [
    "KEEP",
    "ForkOrigin",
    "Impact",
    "ObservationResult",
    "Prompts",
    "QualityRating",
    "Reference",
    "RenderedPrompt",
    "VersionIdentity",
]


class Prompts(PromptMigrationApi, PromptLearningApi, PromptImpactApi, PromptViews):
    """The managed prompts of a project."""
