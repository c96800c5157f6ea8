"""Serve the Model Context Protocol (MCP) for agents: over stdio and at `/mcp`."""
