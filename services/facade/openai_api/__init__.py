"""The OpenAI API: serves agents as models to existing clients."""
