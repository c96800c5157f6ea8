"""The turn and the work behind it: the only room where time passes."""
