"""The attack battery: the attempts (table.py), the program that makes them (attempts.py), their targets (victims.py).

Attempts run only in the sandbox, and only against files, sockets and processes that the test created.
"""
