"""Cassettes: recorded runs as files, one JSON object a line (docs/reference/cassette.md)."""
