"""The storage layer: the database schema, and the store on SQLite."""
