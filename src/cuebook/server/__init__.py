"""Serve HTTP: routes, request and response bodies, errors. The engine implements the behavior."""
