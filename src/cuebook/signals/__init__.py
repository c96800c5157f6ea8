"""Message signals: sentiment, events, tasks, metaprompts. Pure functions; imports only `records` and below."""
