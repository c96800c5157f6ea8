"""The prompt book's public API: write, read, render, compare, choose, learn and roll back prompts.

A prompt is named by its slug; without a branch `main` is meant, without a version the branch's active one. A slug that
is not found as it stands is looked for under `default/`.
"""

from cuebook.app.prompts.impact import Impact, Measuring
from cuebook.app.prompts.learning import Learning, Observed
from cuebook.app.prompts.reading import Rendered
from cuebook.app.prompts.writing import KEEP, PromptWriting

__all__ = ["KEEP", "Impact", "Observed", "Prompts", "Rendered"]


class Prompts(PromptWriting, Learning, Measuring):
    """The prompts of a book."""
