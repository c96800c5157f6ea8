"""What an operator is shown: audit, usage, shadow mode, use of memories."""
