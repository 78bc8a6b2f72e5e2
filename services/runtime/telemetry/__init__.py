"""OpenTelemetry traces: one from the facade to the tool, exported over OTLP when an endpoint is set.

Where none is set nothing but OpenTelemetry's small API is imported, and a span costs a look at a None. Attributes are
names, ids and numbers: never a prompt, an argument, a result or an error's text.
"""
