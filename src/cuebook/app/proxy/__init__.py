"""Provider wires that the project's own model answers too."""
