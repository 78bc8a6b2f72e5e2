"""Fits a request to what its provider takes: the order of turns, names, ids and schemas; the log keeps what came."""
