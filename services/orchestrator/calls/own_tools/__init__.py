"""The orchestrator's own tools, which work on the run, its session state and its memory."""
