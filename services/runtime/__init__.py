"""The base of every server, without anything of the domain."""
