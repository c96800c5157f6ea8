"""Test doubles: a scripted model, a frozen clock and predictable ids."""

from cuebook.testing.doubles import FrozenClock, LoadedDice, Script, ScriptedModel

__all__ = ["FrozenClock", "LoadedDice", "Script", "ScriptedModel"]
