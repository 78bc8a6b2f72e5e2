"""Cassettes: recorded runs as files, one JSON object per line (docs/reference/cassette.md)."""
