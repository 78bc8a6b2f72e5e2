"""A simulated model provider: a real HTTP server for demos, tests and benchmarks.

It plays scripts, answers simple questions, records requests, and misbehaves on demand.
"""
