"""Recording of runs for cassettes (docs/reference/cassette.md)."""
