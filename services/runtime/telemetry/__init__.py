"""OpenTelemetry traces, exported over OTLP when an endpoint is set.

Attributes are names, ids and numbers, never a user's content or an error's text.
"""
