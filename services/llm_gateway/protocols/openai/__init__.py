"""Protocol `openai`: chat completions, as OpenAI and the many servers that are compatible with it speak them."""
