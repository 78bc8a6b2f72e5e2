"""headrace gates: list, watch and answer gates, and manage grants."""

from headrace.cli.commands.gates.group import gates

__all__ = ["gates"]
