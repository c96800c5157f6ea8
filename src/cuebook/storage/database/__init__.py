"""Databases: named statements in transactions, run in threads. Everything above this package exists once."""
