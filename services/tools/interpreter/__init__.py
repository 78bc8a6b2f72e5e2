"""Keeps the interpreters of the tool `python` from one call of a run to the next.

repl.py runs inside the sandbox, session.py in the service.
"""
