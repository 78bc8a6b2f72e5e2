"""The base of every server, independent of the domain."""
