"""The composition root and the public API: the only room that knows engine and backends both."""
