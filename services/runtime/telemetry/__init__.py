"""OpenTelemetry traces from the facade to the tool, exported over OTLP when an endpoint is set.

Without one only OpenTelemetry's small API is imported. Attributes are names, ids and numbers, never a prompt, an
argument, a result or an error's text.
"""
