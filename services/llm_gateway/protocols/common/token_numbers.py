"""Numbers of tokens that providers report, of which some are none: negative, or of more digits than we keep."""

from __future__ import annotations

import msgspec

TOKENS_MAX = 1_000_000_000
"""No call has more."""


def drop_impossible(report: msgspec.Struct) -> None:
    """Take away what no call can have, from a report and its parts; it counts as not told."""
    for name in report.__struct_fields__:
        value = getattr(report, name)
        if isinstance(value, msgspec.Struct):
            drop_impossible(value)
        elif isinstance(value, int) and not 0 <= value <= TOKENS_MAX:
            setattr(report, name, None)
