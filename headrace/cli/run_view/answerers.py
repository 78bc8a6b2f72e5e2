"""Who may answer a gate, for people."""

from __future__ import annotations

from collections.abc import Sequence


def describe_answerers(any_of: Sequence[str], *, not_requester: bool) -> str:
    """Return such as `role:finance or user:ada, not the requester`; empty where it is the requester alone."""
    if list(any_of) in ([], ["requester"]):
        return ""
    return " or ".join(any_of) + (", not the requester" if not_requester else "")
