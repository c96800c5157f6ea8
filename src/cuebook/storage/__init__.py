"""The store: one interface, on SQLite."""
