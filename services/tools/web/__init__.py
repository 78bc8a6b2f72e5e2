"""Gives tools the web, at addresses that a model names and an attacker may choose.

services/runtime/net parses a URL, resolves its name once, checks every address, and connects to one of those; each
redirect starts again (fetcher.py). The response is parsed in a process that can be killed (extract.py).
"""
