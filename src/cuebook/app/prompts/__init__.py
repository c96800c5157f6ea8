"""The public API for managed prompts (`cue.prompts`): versions, branches, labels, rendering, A/B selection, rollback.

A slug identifies a prompt. The default branch is `main`, the default version the branch's active one. An unknown slug
is looked up again under `default/`.
"""

from cuebook.prompts.files import write_file
from cuebook.prompts.lint import SEVERITIES, LintFinding
from cuebook.prompts.migrate import read_document
from cuebook.prompts.rating import QualityRating
from cuebook.prompts.rollback_evidence import Course
from cuebook.prompts.select import Choice, Selection

__all__ = ["SEVERITIES", "Choice", "Course", "LintFinding", "QualityRating", "Selection", "read_document", "write_file"]
