"""How a project is read from its directory and put together: templates, personas, experiences, settings."""
