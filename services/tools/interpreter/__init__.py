"""The interpreters of the tool `python`: processes in the sandbox that keep their variables between a run's calls.

repl.py runs inside; session.py is one of them as the service sees it; pool.py has all of them, and ends them.
"""
