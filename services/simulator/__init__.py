"""A model provider without a model: a real HTTP server for demos, tests and benchmarks.

It plays scripts, answers simple questions by itself, records its requests, and misbehaves on demand. It knows nothing
of the gateway, which treats it as any other provider.
"""
