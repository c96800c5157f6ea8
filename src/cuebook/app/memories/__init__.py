"""The memory of a project: `cue.memory`."""
