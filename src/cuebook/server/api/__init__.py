"""Cuebook's own HTTP API, `/api` and `/learning`: routes and the types they read and write."""
