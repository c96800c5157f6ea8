"""The public API for managed prompts (`cue.prompts`): versions, branches, labels, rendering, A/B selection, rollback.

A slug identifies a prompt. The default branch is `main`, the default version the branch's active one. An unknown slug
is looked up again under `default/`.
"""

from cuebook.app.prompts.answers import ObservationResult, VersionIdentity
from cuebook.app.prompts.arguments import ForkOrigin
from cuebook.app.prompts.impact import Impact
from cuebook.app.prompts.reading import RenderedPrompt
from cuebook.app.prompts.writing import KEEP, Prompts
from cuebook.prompts.files import write_file
from cuebook.prompts.lint import LintFinding
from cuebook.prompts.migrate import read_document
from cuebook.prompts.names import Reference
from cuebook.prompts.rating import QualityRating
from cuebook.prompts.rollback_evidence import Course
from cuebook.prompts.select import Choice, Selection
from cuebook.records.prompt import PromptEvent

__all__ = [
    "KEEP",
    "Choice",
    "Course",
    "ForkOrigin",
    "Impact",
    "LintFinding",
    "ObservationResult",
    "PromptEvent",
    "Prompts",
    "QualityRating",
    "Reference",
    "RenderedPrompt",
    "Selection",
    "VersionIdentity",
    "read_document",
    "write_file",
]
