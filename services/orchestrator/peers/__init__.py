"""The services that the orchestrator calls, and caches of their answers."""
