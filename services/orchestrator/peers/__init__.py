"""The services that the orchestrator calls, and what it keeps of their answers."""
