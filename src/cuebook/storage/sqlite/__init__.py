"""The SQLite store: one file, one writer thread, full-text search by FTS5."""
