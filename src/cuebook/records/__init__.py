"""Cuebook's data model: frozen records, and their codec."""
