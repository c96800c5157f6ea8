"""Where the token budget is spent: counting, partition, rendering the window, cache rules of providers. Pure."""
