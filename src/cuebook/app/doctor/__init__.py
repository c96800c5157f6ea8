"""`cuebook doctor`: check the configuration and its dependencies."""

from cuebook.app.doctor.examine import examine

__all__ = ["examine"]
