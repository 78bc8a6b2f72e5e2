"""AG-UI 1.0: serves published agents to AG-UI frontends."""
