"""Load a project from its directory: settings, personas, experiences, templates, and the engine's dependencies."""
