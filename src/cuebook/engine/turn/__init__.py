"""Turn: load the conversation, build the prompt, call the model, store the reply."""
