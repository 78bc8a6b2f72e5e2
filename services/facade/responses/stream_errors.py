"""The event for a stream that fails between its headers and its first event.

A caller of Query or Compact has no run to return to, so every failure is sent. A failure of Attach is sent only
if attaching again would not help; otherwise the stream just ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.errors import BY_REASON
from headrace.v1 import agent_pb2, common_pb2
from services.runtime.clock import now_ms

ErrorEncoder: TypeAlias = Callable[[common_pb2.Failure], bytes]
"""Returns a failure's frames; empty when the stream should just end."""

SEQ_MAX = 2**64 - 1


def build_run_error(request: Any, failure: common_pb2.Failure) -> agent_pb2.AgentDelta | None:
    """Build the only event of a failed stream; None if its run may be alive."""
    run_id: str = getattr(request, "run_id", "")
    if run_id and not is_final_failure(failure):
        return None
    last_seq: int = getattr(request, "last_seq", 0)
    return agent_pb2.AgentDelta(
        seq=min(last_seq, SEQ_MAX - 1) + 1,
        timestamp=now_ms(),
        run_error=agent_pb2.RunError(run_id=run_id, error=failure, usage=common_pb2.Usage()),
    )


def is_final_failure(failure: common_pb2.Failure) -> bool:
    """Return whether a service reported a permanent failure, so that attaching again is useless."""
    return failure.code in BY_REASON and not failure.retriable
