"""The OpenAI API: agents as models, for existing clients."""
