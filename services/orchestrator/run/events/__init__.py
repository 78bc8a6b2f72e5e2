"""Events for readers: numbered and stored."""
