"""What the requests of MemoryService say, and what they are answered with."""
