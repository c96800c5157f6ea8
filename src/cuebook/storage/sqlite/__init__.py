"""The store on SQLite: one file, one writer, full text by FTS5."""
