"""The contents of MemoryService's requests and responses."""
