from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from prometheus_client import Histogram

if TYPE_CHECKING:
    from headrace.v1 import tools_pb2

SECONDS = Histogram(
    "headrace_tool_seconds",
    "From a call's begin to its end. `left`: it was cancelled, or broke off.",
    ("tool", "outcome"),
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300),
)


@dataclass(slots=True)
class CallTiming:
    last: tools_pb2.ToolDelta | None = None

    @property
    def outcome(self) -> str:
        if self.last is None or not self.last.HasField("result"):
            return "left"
        return "ok" if self.last.result.ok else "failed"


@contextmanager
def time_call(tool: str) -> Generator[CallTiming]:
    started, timing = monotonic(), CallTiming()
    try:
        yield timing
    finally:
        SECONDS.labels(tool, timing.outcome).observe(monotonic() - started)
