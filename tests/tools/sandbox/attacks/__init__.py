"""The attack battery: what a command tries (table.py), how it tries in the sandbox (attempts.py), at whom (victims.py).

Attempts run in the sandbox and nowhere else, and only at files, sockets and processes that the test has made.
"""
