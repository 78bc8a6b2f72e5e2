"""Gives tools the web, from addresses that a model names and an attacker may choose.

A URL is taken apart (targets.py), its name is resolved once, every address is checked (net/addresses.py), and the
connection goes to one of those (pinned_connection.py); each redirect starts again (fetcher.py). The answer is parsed in
a process that can be killed (extractor.py).
"""
