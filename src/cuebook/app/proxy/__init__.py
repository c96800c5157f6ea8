"""Provider APIs (Anthropic Messages, OpenAI Responses and Conversations) on top of any model."""
