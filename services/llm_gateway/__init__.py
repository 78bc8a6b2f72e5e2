"""The LLM gateway: one streaming API over model providers. A provider's delta becomes one LlmDelta, at once."""
