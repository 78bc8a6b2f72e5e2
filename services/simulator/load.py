"""Models that only make load: `bench-64x20ms` streams 64 deltas 20 ms apart, `idle` goes silent at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.simulator.steps import Content, Reply, Stall

if TYPE_CHECKING:
    from services.simulator.ask import Ask

DELTAS_MAX = 1_000_000
"""More would take minutes flat out, and is rather a slip."""

_BENCH = re.compile(r"bench(?:-(?P<deltas>\d{1,7})x(?P<pace_ms>\d{1,6})ms)?")
_TEXT = " headrace"


def load(ask: Ask) -> Reply | None:
    """The reply of a load model; None for other models. `bench` alone is `bench-64x20ms`."""
    if ask.model == "idle":
        return Reply(steps=(Stall(),))
    if not (bench := _BENCH.fullmatch(ask.model)):
        return None
    deltas = min(int(bench["deltas"] or 64), DELTAS_MAX)
    return Reply(steps=(Content(content=(_TEXT,) * deltas),), pace_ms=float(bench["pace_ms"] or 20))
