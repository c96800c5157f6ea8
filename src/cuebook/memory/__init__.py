"""Memory: extract, merge, summarize and recall. Pure functions."""
