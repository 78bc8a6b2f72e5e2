"""Finds out who calls: a service, by certificate or the suite's token, or a client, by its credential."""
