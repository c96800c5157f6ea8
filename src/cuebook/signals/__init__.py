"""What a message says beside its words, and what that moves. Pure: it sees `records` and below."""
