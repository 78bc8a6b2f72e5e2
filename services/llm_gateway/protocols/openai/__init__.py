"""Protocol `openai`: chat completions of OpenAI and compatible servers."""
