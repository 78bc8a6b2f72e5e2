"""OpenAI's Responses API, without state at the provider."""
