"""Wire formats of providers: chat completions, Responses, Anthropic messages, and their streams. No I/O."""
