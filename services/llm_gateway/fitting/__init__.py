"""Fits a request to its provider's rules: the order of turns, names, ids and schemas; the log keeps the original."""
