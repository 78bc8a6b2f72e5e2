"""OpenAI's Responses API, without a state at the provider."""
