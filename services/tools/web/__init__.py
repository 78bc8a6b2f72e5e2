"""Gives tools the web, from addresses that a model names and an attacker may choose.

services/runtime/net takes a URL apart, resolves its name once, checks every address, and connects to one of those; each
redirect starts again (fetcher.py). The answer is parsed in a process that can be killed (extract.py).
"""
