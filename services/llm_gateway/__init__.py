"""The LLM gateway: one streaming API over model providers."""
