"""What every part of the engine shares: services and settings, queues, drafts, time zones."""
