"""Modes of the operator's own in a cassette: Python code, which runs with the rights of whoever replays it."""

from __future__ import annotations

from headrace.cassette.lines import Cassette


def find_refusal(cassette: Cassette, *, runs_modes: bool) -> str:
    """Return why the cassette is not to be replayed; empty: it may be."""
    if cassette.withheld:
        return f"its agents' definitions were withheld: `headrace record` needs the scope {cassette.withheld}"
    for name, mode in sorted(cassette.modes.items()):
        if not mode.is_whole:
            return (
                f"the code of its mode {name!r} is not what ran (SHA-256 {mode.sha256}): what looked like a secret in"
                " it was masked when it was recorded, or it was changed since"
            )
        if not runs_modes:
            return (
                f"it brings Python code of its own, the mode {name!r} (SHA-256 {mode.sha256}): read it in the file, and"
                " say --run-modes if you trust it as you would any program"
            )
    return ""


def describe_missing(cassette: Cassette) -> str:
    """Say which code the cassette lacks, as a reason for what differs; empty where none."""
    named = {str((definition.get("custom") or {}).get("mode") or "") for definition in cassette.agents.values()}
    missing = sorted(named - {""} - cassette.modes.keys())
    return f" (the cassette does not have the code of: {', '.join(missing)})" if missing else ""
