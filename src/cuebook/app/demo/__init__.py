"""`cuebook demo`: replay a long conversation through the whole pipeline, and report the results."""
