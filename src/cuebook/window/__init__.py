"""Context window: count tokens, partition posts to the token budget, render messages, apply providers' cache rules. No
I/O.
"""
