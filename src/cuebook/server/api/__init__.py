"""Serve Cuebook's HTTP API, `/api` and `/learning`: routes, request and response types."""
