"""The storage layer: the store, a module for each noun, over SQLite or PostgreSQL."""
