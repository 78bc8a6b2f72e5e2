"""Keeps the interpreters of the tool `python`, with their variables, from one call of a run to the next.

repl.py runs inside the sandbox; session.py is one interpreter as the service sees it; pool.py has all of them.
"""
