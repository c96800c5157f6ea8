"""`cuebook doctor`: whether a book can work here, thing by thing."""

from cuebook.app.doctor.examine import examine

__all__ = ["examine"]
