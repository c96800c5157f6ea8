"""Doubles for tests: a scripted model, a clock that stands still and loaded dice."""

from cuebook.testing.doubles import FrozenClock, LoadedDice, Script, ScriptedModel

__all__ = ["FrozenClock", "LoadedDice", "Script", "ScriptedModel"]
