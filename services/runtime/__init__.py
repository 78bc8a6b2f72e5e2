"""The base of every server: transport, auth, settings, telemetry; nothing of the domain."""
