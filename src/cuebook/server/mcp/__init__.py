"""The book for agents' own tools, by the Model Context Protocol: over a pipe and at `/mcp`."""
