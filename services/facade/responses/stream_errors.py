"""The event for a stream that fails after its headers and before its first event.

What was to begin a run (Query, Compact) has none that the caller could find, so every failure is told. A stream of a
known run (Attach) is told to have failed only when coming back would not help: else it ends, and the caller attaches
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.errors import BY_REASON
from headrace.v1 import agent_pb2, common_pb2

ErrorEncoder: TypeAlias = Callable[[common_pb2.Failure], bytes]
"""The frames for a failure; none: the stream just ends."""

SEQ_MAX = 2**64 - 1


def build_run_error(request: Any, failure: common_pb2.Failure) -> agent_pb2.AgentDelta | None:
    """The only event of the stream that `request` asked for; None: its run may well live."""
    run_id: str = getattr(request, "run_id", "")
    if run_id and not is_final_failure(failure):
        return None
    last_seq: int = getattr(request, "last_seq", 0)
    return agent_pb2.AgentDelta(
        seq=min(last_seq, SEQ_MAX - 1) + 1,
        timestamp=time.time_ns() // 1_000_000,
        run_error=agent_pb2.RunError(run_id=run_id, error=failure, usage=common_pb2.Usage()),
    )


def is_final_failure(failure: common_pb2.Failure) -> bool:
    """Whether attaching again is no use: a service has said so, and it is none of those that pass."""
    return failure.code in BY_REASON and not failure.retriable
