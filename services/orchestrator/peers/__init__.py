"""The services that the orchestrator calls."""
