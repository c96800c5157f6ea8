"""Adapters: the store on SQLite, models and upstreams on the OpenAI wire, the machine's clock and dice."""
