"""The store contract: tests that every backend passes, and a reference model that checks operation histories."""
