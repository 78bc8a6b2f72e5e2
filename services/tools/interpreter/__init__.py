"""python's interpreters: processes in the sandbox that keep their variables from one call of a run to the next.

repl.py runs inside; session.py is one of them as the service sees it; interpreters.py has all of them, and their end.
"""
