"""The last attempts at a model, from which operators see how it does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW_S = 300.0
"""Long enough for a rate of a quiet model, short enough that an outage shows at once and leaves soon."""

KEPT_MAX = 1000
"""Attempts that are remembered, about 100 KB."""


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    own: int
    """Attempts of the tenant that asks."""
    error_ratio: float | None
    """Of attempts whose end says something of the model; None without any."""
    first_delta_s: float | None
    first_delta_s_p95: float | None


@dataclass(frozen=True, slots=True)
class _Attempt:
    ended_s: float
    tenant: str
    succeeded: bool | None
    first_delta_s: float | None


class RecentAttempts:
    def __init__(self) -> None:
        self._attempts: deque[_Attempt] = deque(maxlen=KEPT_MAX)

    def add_attempt(self, now_s: float, tenant: str, succeeded: bool | None, first_delta_s: float | None) -> None:
        """Record an attempt that has ended now; `succeeded` as the breaker is told, `first_delta_s` from its begin."""
        self._attempts.append(_Attempt(now_s, tenant, succeeded, first_delta_s))

    def summarise(self, now_s: float, tenant: str) -> AttemptSummary:
        recent = [attempt for attempt in self._attempts if attempt.ended_s > now_s - WINDOW_S]
        judged = [attempt.succeeded for attempt in recent if attempt.succeeded is not None]
        begun = sorted(attempt.first_delta_s for attempt in recent if attempt.first_delta_s is not None)
        return AttemptSummary(
            own=sum(attempt.tenant == tenant for attempt in recent),
            error_ratio=judged.count(False) / len(judged) if judged else None,
            first_delta_s=begun[len(begun) // 2] if begun else None,
            first_delta_s_p95=begun[len(begun) * 95 // 100] if begun else None,
        )
