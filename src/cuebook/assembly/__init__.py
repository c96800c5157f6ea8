"""Where the token budget is spent: counting, partition, rendering the window, providers' cache rules. Pure."""
