"""Reports for operators: audit log, token usage and cost, shadow mode, memory utility."""
