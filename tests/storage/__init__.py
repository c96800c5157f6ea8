"""The contract of a store: tests that every backend passes, and a reference that checks each of its histories."""
