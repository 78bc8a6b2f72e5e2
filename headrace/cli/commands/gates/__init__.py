"""headrace gates: what waits for a person, answers to it, and what is approved ahead."""

from headrace.cli.commands.gates.group import gates

__all__ = ["gates"]
