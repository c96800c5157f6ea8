"""The memory of a project: `cue.memory`."""

from cuebook.app.memories.search import Memories

__all__ = ["Memories"]
