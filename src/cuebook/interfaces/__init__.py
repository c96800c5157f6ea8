"""What the engine asks of the outside: Protocols, and the frozen records that cross them. No code."""
