"""Load models: `bench-64x20ms` streams 64 deltas 20 ms apart, `idle` goes silent at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.simulator.scripts.steps import TIMES_MAX, Repeat, Reply, Stall

if TYPE_CHECKING:
    from services.simulator.requests.model_request import ModelRequest

_BENCH = re.compile(r"bench(?:-(?P<deltas>[1-9]\d{0,6})x(?P<pace_ms>\d{1,6})ms)?")
_TEXT = " headrace"


def build_load_reply(request: ModelRequest) -> Reply | None:
    """Build a load model's reply; None for other models. `bench` alone is `bench-64x20ms`."""
    if request.model == "idle":
        return Reply(steps=(Stall(),))
    if not (bench := _BENCH.fullmatch(request.model)):
        return None
    repeat = Repeat(repeat=_TEXT, times=min(int(bench["deltas"] or 64), TIMES_MAX))
    return Reply(steps=(repeat,), pace_ms=float(bench["pace_ms"] or 20))
