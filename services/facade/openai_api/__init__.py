"""The OpenAI face: agents as models, for the clients that people have. docs/openai.md says what maps to what."""
