"""Fetching from addresses that a model names, and so an attacker may: one request can reach the public web alone.

A URL is taken apart (targets.py), its name resolved once, every address checked (addresses.py), and the connection goes
to one of those very addresses (connecting.py); each redirect begins again at the start (fetcher.py).
"""
