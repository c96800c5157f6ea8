"""Prompt sync between projects: signed TUF repositories, where they are stored, merges and bundles."""
