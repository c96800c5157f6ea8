"""Command-line interface: parse arguments, call the public API, print results and one-line errors."""
